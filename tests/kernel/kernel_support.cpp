#include "tests/kernel/kernel_support.h"

#include <algorithm>

#include "kernels/quant/blocks.h"

namespace kernels::test {
namespace {

/// A scale whose products stay small: magnitudes 0.004 .. 0.06, either sign.
std::uint16_t random_scale(Random& random) {
    const float magnitude = random.uniform(0.004F, 0.06F);
    return f32_to_f16(random.byte() % 2 == 0 ? magnitude : -magnitude);
}

template <class Block>
std::vector<std::uint8_t> blocks_with_scales(std::int64_t values, std::int64_t block_values,
                                             Random& random) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(values / block_values) *
                                    sizeof(Block));
    for (std::uint8_t& byte : bytes)
        byte = random.byte();
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Block)) {
        Block block;
        std::memcpy(&block, &bytes[at], sizeof(Block));
        block.d = random_scale(random);
        if constexpr (requires { block.m; }) block.m = random_scale(random);
        if constexpr (requires { block.dmin; }) block.dmin = random_scale(random);
        std::memcpy(&bytes[at], &block, sizeof(Block));
    }
    return bytes;
}

std::vector<std::uint8_t> plain_values(DType dtype, std::int64_t values, Random& random) {
    const std::size_t width = dtype == DType::kF32 ? 4 : 2;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(values) * width);
    for (std::int64_t i = 0; i < values; ++i) {
        const float value = 0.1F * random.normal();
        std::uint8_t* at = &bytes[static_cast<std::size_t>(i) * width];
        if (dtype == DType::kF32) {
            std::memcpy(at, &value, width);
        } else {
            const std::uint16_t half =
                dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
            std::memcpy(at, &half, width);
        }
    }
    return bytes;
}

}  // namespace

std::vector<std::uint8_t> random_blocks(DType dtype, std::int64_t values, Random& random) {
    switch (dtype) {
        case DType::kQ8_0:
            return blocks_with_scales<BlockQ8_0>(values, 32, random);
        case DType::kQ4_0:
            return blocks_with_scales<BlockQ4_0>(values, 32, random);
        case DType::kQ4_1:
            return blocks_with_scales<BlockQ4_1>(values, 32, random);
        case DType::kQ5_0:
            return blocks_with_scales<BlockQ5_0>(values, 32, random);
        case DType::kQ5_1:
            return blocks_with_scales<BlockQ5_1>(values, 32, random);
        case DType::kIQ4_NL:
            return blocks_with_scales<BlockIQ4_NL>(values, 32, random);
        case DType::kQ2_K:
            return blocks_with_scales<BlockQ2_K>(values, 256, random);
        case DType::kQ3_K:
            return blocks_with_scales<BlockQ3_K>(values, 256, random);
        case DType::kQ4_K:
            return blocks_with_scales<BlockQ4_K>(values, 256, random);
        case DType::kQ5_K:
            return blocks_with_scales<BlockQ5_K>(values, 256, random);
        case DType::kQ6_K:
            return blocks_with_scales<BlockQ6_K>(values, 256, random);
        case DType::kIQ4_XS:
            return blocks_with_scales<BlockIQ4_XS>(values, 256, random);
        default:
            return plain_values(dtype, values, random);
    }
}

Step::Step(const std::vector<SequencePart>& parts, std::int32_t blocks_per_seq) {
    row_begin.push_back(0);
    for (std::size_t s = 0; s < parts.size(); ++s) {
        const SequencePart& part = parts[s];
        for (std::int32_t i = 0; i < part.rows; ++i) {
            seq_of_row.push_back(static_cast<std::int32_t>(s));
            position.push_back(part.kv_len_before + i + part.position_offset);
            token.push_back(0);
        }
        row_begin.push_back(row_begin.back() + part.rows);
        kv_len_before.push_back(part.kv_len_before);
        kv_len.push_back(part.kv_len_before + part.rows);
        state_slot.push_back(part.state_slot);
        for (std::int32_t b = 0; b < blocks_per_seq; ++b)
            block_table.push_back(static_cast<std::size_t>(b) < part.blocks.size()
                                      ? part.blocks[static_cast<std::size_t>(b)]
                                      : -1);
    }
    // Left empty where no sequence needs them: that is a case of its own.
    const auto replays = [](const SequencePart& part) { return part.replay_rows != 0; };
    const auto holds = [](const SequencePart& part) { return !part.commits; };
    if (std::any_of(parts.begin(), parts.end(), replays))
        for (const SequencePart& part : parts)
            replay_rows.push_back(part.replay_rows);
    if (std::any_of(parts.begin(), parts.end(), holds))
        for (const SequencePart& part : parts)
            commit.push_back(part.commits ? 1 : 0);
    descriptor.rows = row_begin.back();
    descriptor.seqs = static_cast<std::int32_t>(parts.size());
    descriptor.blocks_per_seq_max = blocks_per_seq;
    link();
}

void Step::link() {
    descriptor.logit_rows = static_cast<std::int32_t>(logit_row.size());
    descriptor.token = token;
    descriptor.position = position;
    descriptor.seq_of_row = seq_of_row;
    descriptor.row_begin = row_begin;
    descriptor.kv_len_before = kv_len_before;
    descriptor.kv_len = kv_len;
    descriptor.state_slot = state_slot;
    descriptor.block_table = block_table;
    descriptor.logit_row = logit_row;
    descriptor.sampling = sampling;
    descriptor.replay_rows = replay_rows;
    descriptor.commit = commit;
    descriptor.hidden_row = hidden_row;
}

}  // namespace kernels::test
