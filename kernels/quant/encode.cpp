#include "kernels/quant/encode.h"

#include <cassert>
#include <cstring>

#include "kernels/quant/encode_search.h"
#include "kernels/quant/encode_simple.h"
#include "kernels/quant/format.h"
#include "kernels/quant/half.h"

namespace kernels {
namespace {

template <std::uint16_t (*kConvert)(float)>
void encode_halves(const float* in, void* blocks, std::int64_t values) {
    auto* halves = static_cast<std::uint16_t*>(blocks);
    for (std::int64_t i = 0; i < values; ++i)
        halves[i] = kConvert(in[i]);
}

template <class Block>
void encode_simple(const float* in, void* blocks, std::int64_t values) {
    auto* block = static_cast<Block*>(blocks);
    for (std::int64_t i = 0; i < values; i += 32)
        encode_block(in + i, *block++);
}

template <class Block, int kValues>
void encode_search(const float* in, void* blocks, std::int64_t values, const float* importance) {
    auto* block = static_cast<Block*>(blocks);
    for (std::int64_t i = 0; i < values; i += kValues)
        encode_block(in + i, importance != nullptr ? importance + i : nullptr, *block++);
}

}  // namespace

bool can_encode(DType dtype) {
    return dtype != DType::kI32 && dtype != DType::kQ2_K && dtype != DType::kQ3_K;
}

void encode_row(DType dtype, const float* in, void* blocks, std::int64_t values,
                const float* importance) {
    assert(values >= 0 && values % format_of(dtype).block_values == 0 && "a row is whole blocks");
    if (values == 0) return;
    switch (dtype) {
        case DType::kF32:
            std::memcpy(blocks, in, static_cast<std::size_t>(values) * sizeof(float));
            return;
        case DType::kF16:
            return encode_halves<f32_to_f16>(in, blocks, values);
        case DType::kBF16:
            return encode_halves<f32_to_bf16>(in, blocks, values);
        case DType::kQ8_0:
            return encode_simple<BlockQ8_0>(in, blocks, values);
        case DType::kQ4_0:
            return encode_simple<BlockQ4_0>(in, blocks, values);
        case DType::kQ4_1:
            return encode_simple<BlockQ4_1>(in, blocks, values);
        case DType::kQ5_0:
            return encode_simple<BlockQ5_0>(in, blocks, values);
        case DType::kQ5_1:
            return encode_simple<BlockQ5_1>(in, blocks, values);
        case DType::kIQ4_NL:
            return encode_search<BlockIQ4_NL, 32>(in, blocks, values, importance);
        case DType::kIQ4_XS:
            return encode_search<BlockIQ4_XS, 256>(in, blocks, values, importance);
        case DType::kQ4_K:
            return encode_search<BlockQ4_K, 256>(in, blocks, values, importance);
        case DType::kQ5_K:
            return encode_search<BlockQ5_K, 256>(in, blocks, values, importance);
        case DType::kQ6_K:
            return encode_search<BlockQ6_K, 256>(in, blocks, values, importance);
        case DType::kQ2_K:
        case DType::kQ3_K:
        case DType::kI32:
            break;
    }
    assert(false && "a type with an encoder: see can_encode");
}

}  // namespace kernels
