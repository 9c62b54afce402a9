#include "kernels/cuda/kernel_names.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace kernels::cuda {
namespace {

constexpr std::size_t kWideWidths = 3;

constexpr DeviceFile kFiles[] = {
    // stem, sm_90a, sm_70; read by tests/volta/ptx too, and CMakeLists.txt lists the second column.
    {"embed", true, true},
    {"norm_rows", true, true},
    {"linear_float", true, true},
    {"linear_block32", true, true},
    {"linear_block256", true, true},
    {"delta_net", true, true},
    {"attention", true, true},
    {"read_stream", true, true},
    {"matmul_iq4_xs", true, false},
    {"matmul_q6_k", true, false},
    {"matmul_q5_k", true, false},
    {"matmul_q8_0", true, false},
    {"matmul_q4_k", true, false},
    {"matmul_q4_0", true, false},
    {"matmul_iq4_nl", true, false},
    {"matmul_mixed", true, false},
    {"matmul_peak", true, false},
    {"pack", true, false},
    {"prepare_wide", true, false},
    {"dequantise_packed", true, false},
    {"dequantise_file", true, false},
    {"prefill", true, false},
    {"delta_step", true, false},
    {"delta_chunk_prepare", true, false},
    {"delta_chunk_scan", true, false},
    {"sample", true, false},
    {"attention_decode", true, false},
    {"attention_prefill", true, false},
    {"prepare_lanes", false, true},
    {"pack_lanes", false, true},
    {"volta_iq4_xs", false, true},
    {"volta_q6_k", false, true},
    {"volta_q5_k", false, true},
    {"volta_q8_0", false, true},
    {"volta_q4_k", false, true},
    {"volta_q4_0", false, true},
    {"volta_iq4_nl", false, true},
};

constexpr KernelName kNames[] = {
    {"embed_rows", "embed"},
    {"norm_rows", "norm_rows"},
    {"delta_net_1", "delta_net"},
    {"delta_net_2", "delta_net"},
    {"delta_net_4", "delta_net"},
    {"step_inputs_store", "delta_net"},
    {"delta_step_1", "delta_step"},
    {"delta_step_2", "delta_step"},
    {"delta_step_3", "delta_step"},
    {"delta_step_4", "delta_step"},
    {"delta_chunk_prepare", "delta_chunk_prepare"},
    {"delta_chunk_scan", "delta_chunk_scan"},
    {"attention_append", "attention"},
    {"attention_2", "attention"},
    {"attention_4", "attention"},
    {"attention_8", "attention"},
    {"attention_decode_64_8", "attention_decode"},
    {"attention_decode_64_16", "attention_decode"},
    {"attention_decode_64_32", "attention_decode"},
    {"attention_decode_128_8", "attention_decode"},
    {"attention_decode_128_16", "attention_decode"},
    {"attention_decode_128_32", "attention_decode"},
    {"attention_decode_256_8", "attention_decode"},
    {"attention_decode_256_16", "attention_decode"},
    {"attention_decode_256_32", "attention_decode"},
    {"attention_prefill_64", "attention_prefill"},
    {"attention_prefill_128", "attention_prefill"},
    {"attention_prefill_256", "attention_prefill"},
    {"sample_rows", "sample"},
    {"read_stream", "read_stream"},
    {"prepare_wide", "prepare_wide"},
    // One for each of kMatmulTypes, in its order; again; again; then three: 16, 32, 64 columns;
    // then whole tiles.
    {"pack_iq4_xs", "pack"},
    {"pack_q6_k", "pack"},
    {"pack_q5_k", "pack"},
    {"pack_q8_0", "pack"},
    {"pack_q4_k", "pack"},
    {"pack_q4_0", "pack"},
    {"pack_iq4_nl", "pack"},
    {"matmul_peak_iq4_xs", "matmul_peak"},
    {"matmul_peak_q6_k", "matmul_peak"},
    {"matmul_peak_q5_k", "matmul_peak"},
    {"matmul_peak_q8_0", "matmul_peak"},
    {"matmul_peak_q4_k", "matmul_peak"},
    {"matmul_peak_q4_0", "matmul_peak"},
    {"matmul_peak_iq4_nl", "matmul_peak"},
    {"matmul_iq4_xs_8", "matmul_iq4_xs"},
    {"matmul_q6_k_8", "matmul_q6_k"},
    {"matmul_q5_k_8", "matmul_q5_k"},
    {"matmul_q8_0_8", "matmul_q8_0"},
    {"matmul_q4_k_8", "matmul_q4_k"},
    {"matmul_q4_0_8", "matmul_q4_0"},
    {"matmul_iq4_nl_8", "matmul_iq4_nl"},
    {"matmul_iq4_xs_wide_16", "matmul_iq4_xs"},
    {"matmul_iq4_xs_wide_32", "matmul_iq4_xs"},
    {"matmul_iq4_xs_wide_64", "matmul_iq4_xs"},
    {"matmul_q6_k_wide_16", "matmul_q6_k"},
    {"matmul_q6_k_wide_32", "matmul_q6_k"},
    {"matmul_q6_k_wide_64", "matmul_q6_k"},
    {"matmul_q5_k_wide_16", "matmul_q5_k"},
    {"matmul_q5_k_wide_32", "matmul_q5_k"},
    {"matmul_q5_k_wide_64", "matmul_q5_k"},
    {"matmul_q8_0_wide_16", "matmul_q8_0"},
    {"matmul_q8_0_wide_32", "matmul_q8_0"},
    {"matmul_q8_0_wide_64", "matmul_q8_0"},
    {"matmul_q4_k_wide_16", "matmul_q4_k"},
    {"matmul_q4_k_wide_32", "matmul_q4_k"},
    {"matmul_q4_k_wide_64", "matmul_q4_k"},
    {"matmul_q4_0_wide_16", "matmul_q4_0"},
    {"matmul_q4_0_wide_32", "matmul_q4_0"},
    {"matmul_q4_0_wide_64", "matmul_q4_0"},
    {"matmul_iq4_nl_wide_16", "matmul_iq4_nl"},
    {"matmul_iq4_nl_wide_32", "matmul_iq4_nl"},
    {"matmul_iq4_nl_wide_64", "matmul_iq4_nl"},
    {"matmul_iq4_xs_whole", "matmul_iq4_xs"},
    {"matmul_q6_k_whole", "matmul_q6_k"},
    {"matmul_q5_k_whole", "matmul_q5_k"},
    {"matmul_q8_0_whole", "matmul_q8_0"},
    // One for each of kMatmulTypes, in its order.
    {"matmul_iq4_xs_pair", "matmul_iq4_xs"},
    {"matmul_q6_k_pair", "matmul_q6_k"},
    {"matmul_q5_k_pair", "matmul_q5_k"},
    {"matmul_q8_0_pair", "matmul_q8_0"},
    {"matmul_q4_k_pair", "matmul_q4_k"},
    {"matmul_q4_0_pair", "matmul_q4_0"},
    {"matmul_iq4_nl_pair", "matmul_iq4_nl"},
    // One for each of kMatmulMixes, in its order.
    {"matmul_iq4_xs_q5_k_pair", "matmul_mixed"},
    {"matmul_iq4_xs_q6_k_pair", "matmul_mixed"},
    {"matmul_q4_k_q5_k_pair", "matmul_mixed"},
    {"matmul_q4_k_q6_k_pair", "matmul_mixed"},
    // Two for each of kLinearTypes, in its order.
    {"linear_f32_1", "linear_float"},
    {"linear_f32_8", "linear_float"},
    {"linear_f16_1", "linear_float"},
    {"linear_f16_8", "linear_float"},
    {"linear_bf16_1", "linear_float"},
    {"linear_bf16_8", "linear_float"},
    {"linear_q8_0_1", "linear_block32"},
    {"linear_q8_0_8", "linear_block32"},
    {"linear_q4_0_1", "linear_block32"},
    {"linear_q4_0_8", "linear_block32"},
    {"linear_q4_1_1", "linear_block32"},
    {"linear_q4_1_8", "linear_block32"},
    {"linear_q5_0_1", "linear_block32"},
    {"linear_q5_0_8", "linear_block32"},
    {"linear_q5_1_1", "linear_block32"},
    {"linear_q5_1_8", "linear_block32"},
    {"linear_iq4_nl_1", "linear_block32"},
    {"linear_iq4_nl_8", "linear_block32"},
    {"linear_q2_k_1", "linear_block256"},
    {"linear_q2_k_8", "linear_block256"},
    {"linear_q3_k_1", "linear_block256"},
    {"linear_q3_k_8", "linear_block256"},
    {"linear_q4_k_1", "linear_block256"},
    {"linear_q4_k_8", "linear_block256"},
    {"linear_q5_k_1", "linear_block256"},
    {"linear_q5_k_8", "linear_block256"},
    {"linear_q6_k_1", "linear_block256"},
    {"linear_q6_k_8", "linear_block256"},
    {"linear_iq4_xs_1", "linear_block256"},
    {"linear_iq4_xs_8", "linear_block256"},
    {"cast_rows", "prefill"},
    {"cast_rows_short", "prefill"},
    {"finish_rows", "prefill"},
    {"finish_sums", "prefill"},
    // One for each of kMatmulTypes, then two for each of kDequantiseFileTypes.
    {"dequantise_iq4_xs", "dequantise_packed"},
    {"dequantise_q6_k", "dequantise_packed"},
    {"dequantise_q5_k", "dequantise_packed"},
    {"dequantise_q8_0", "dequantise_packed"},
    {"dequantise_q4_k", "dequantise_packed"},
    {"dequantise_q4_0", "dequantise_packed"},
    {"dequantise_iq4_nl", "dequantise_packed"},
    {"dequantise_f32", "dequantise_file"},
    {"largest_f32", "dequantise_file"},
    {"dequantise_f16", "dequantise_file"},
    {"largest_f16", "dequantise_file"},
    {"dequantise_bf16", "dequantise_file"},
    {"largest_bf16", "dequantise_file"},
    {"dequantise_q4_1", "dequantise_file"},
    {"largest_q4_1", "dequantise_file"},
    {"dequantise_q5_0", "dequantise_file"},
    {"largest_q5_0", "dequantise_file"},
    {"dequantise_q5_1", "dequantise_file"},
    {"largest_q5_1", "dequantise_file"},
    {"dequantise_q2_k", "dequantise_file"},
    {"largest_q2_k", "dequantise_file"},
    {"dequantise_q3_k", "dequantise_file"},
    {"largest_q3_k", "dequantise_file"},
    // Of sm_70 alone.
    {"quantise_lanes", "prepare_lanes"},
    {"halve_lanes", "prepare_lanes"},
    {"finish_lanes", "prepare_lanes"},
    // One for each of kMatmulTypes, in its order; again; then one for each of kDp4aWidths.
    {"pack_lanes_iq4_xs", "pack_lanes"},
    {"pack_lanes_q6_k", "pack_lanes"},
    {"pack_lanes_q5_k", "pack_lanes"},
    {"pack_lanes_q8_0", "pack_lanes"},
    {"pack_lanes_q4_k", "pack_lanes"},
    {"pack_lanes_q4_0", "pack_lanes"},
    {"pack_lanes_iq4_nl", "pack_lanes"},
    {"matmul_hmma_iq4_xs", "volta_iq4_xs"},
    {"matmul_hmma_q6_k", "volta_q6_k"},
    {"matmul_hmma_q5_k", "volta_q5_k"},
    {"matmul_hmma_q8_0", "volta_q8_0"},
    {"matmul_hmma_q4_k", "volta_q4_k"},
    {"matmul_hmma_q4_0", "volta_q4_0"},
    {"matmul_hmma_iq4_nl", "volta_iq4_nl"},
    {"matmul_dp4a_iq4_xs_1", "volta_iq4_xs"},
    {"matmul_dp4a_iq4_xs_2", "volta_iq4_xs"},
    {"matmul_dp4a_iq4_xs_4", "volta_iq4_xs"},
    {"matmul_dp4a_iq4_xs_8", "volta_iq4_xs"},
    {"matmul_dp4a_iq4_xs_12", "volta_iq4_xs"},
    {"matmul_dp4a_iq4_xs_64", "volta_iq4_xs"},
    {"matmul_dp4a_q6_k_1", "volta_q6_k"},
    {"matmul_dp4a_q6_k_2", "volta_q6_k"},
    {"matmul_dp4a_q6_k_4", "volta_q6_k"},
    {"matmul_dp4a_q6_k_8", "volta_q6_k"},
    {"matmul_dp4a_q6_k_12", "volta_q6_k"},
    {"matmul_dp4a_q6_k_64", "volta_q6_k"},
    {"matmul_dp4a_q5_k_1", "volta_q5_k"},
    {"matmul_dp4a_q5_k_2", "volta_q5_k"},
    {"matmul_dp4a_q5_k_4", "volta_q5_k"},
    {"matmul_dp4a_q5_k_8", "volta_q5_k"},
    {"matmul_dp4a_q5_k_12", "volta_q5_k"},
    {"matmul_dp4a_q5_k_64", "volta_q5_k"},
    {"matmul_dp4a_q8_0_1", "volta_q8_0"},
    {"matmul_dp4a_q8_0_2", "volta_q8_0"},
    {"matmul_dp4a_q8_0_4", "volta_q8_0"},
    {"matmul_dp4a_q8_0_8", "volta_q8_0"},
    {"matmul_dp4a_q8_0_12", "volta_q8_0"},
    {"matmul_dp4a_q8_0_64", "volta_q8_0"},
    {"matmul_dp4a_q4_k_1", "volta_q4_k"},
    {"matmul_dp4a_q4_k_2", "volta_q4_k"},
    {"matmul_dp4a_q4_k_4", "volta_q4_k"},
    {"matmul_dp4a_q4_k_8", "volta_q4_k"},
    {"matmul_dp4a_q4_k_12", "volta_q4_k"},
    {"matmul_dp4a_q4_k_64", "volta_q4_k"},
    {"matmul_dp4a_q4_0_1", "volta_q4_0"},
    {"matmul_dp4a_q4_0_2", "volta_q4_0"},
    {"matmul_dp4a_q4_0_4", "volta_q4_0"},
    {"matmul_dp4a_q4_0_8", "volta_q4_0"},
    {"matmul_dp4a_q4_0_12", "volta_q4_0"},
    {"matmul_dp4a_q4_0_64", "volta_q4_0"},
    {"matmul_dp4a_iq4_nl_1", "volta_iq4_nl"},
    {"matmul_dp4a_iq4_nl_2", "volta_iq4_nl"},
    {"matmul_dp4a_iq4_nl_4", "volta_iq4_nl"},
    {"matmul_dp4a_iq4_nl_8", "volta_iq4_nl"},
    {"matmul_dp4a_iq4_nl_12", "volta_iq4_nl"},
    {"matmul_dp4a_iq4_nl_64", "volta_iq4_nl"},
};
static_assert(kernel_after(KernelId::kLinearFirst, 2 * kLinearTypes.size()) == KernelId::kCastRows);
static_assert(kernel_after(KernelId::kDequantiseFirst,
                           kMatmulTypes.size() + 2 * kDequantiseFileTypes.size()) ==
              KernelId::kQuantiseLanes);
static_assert(kernel_after(KernelId::kPackLanesFirst, kMatmulTypes.size()) ==
              KernelId::kMatmulHmmaFirst);
static_assert(kernel_after(KernelId::kMatmulHmmaFirst, kMatmulTypes.size()) ==
              KernelId::kMatmulDp4aFirst);
static_assert(std::size(kNames) == static_cast<std::size_t>(KernelId::kMatmulDp4aFirst) +
                                       kMatmulTypes.size() * std::size(kDp4aWidths));
static_assert(kernel_after(KernelId::kPackFirst, kMatmulTypes.size()) == KernelId::kPeakFirst);
static_assert(kernel_after(KernelId::kPeakFirst, kMatmulTypes.size()) == KernelId::kMatmulFirst);
static_assert(kernel_after(KernelId::kMatmulFirst, kMatmulTypes.size()) ==
              KernelId::kMatmulWideFirst);
static_assert(kernel_after(KernelId::kMatmulWideFirst, kWideWidths* kMatmulTypes.size()) ==
              KernelId::kMatmulWholeFirst);
static_assert(kernel_after(KernelId::kMatmulWholeFirst, kWholeTypes) == KernelId::kMatmulPairFirst);
static_assert(kernel_after(KernelId::kMatmulPairFirst, kMatmulTypes.size()) ==
              KernelId::kMatmulMixedFirst);
static_assert(kernel_after(KernelId::kMatmulMixedFirst, std::size(kMatmulMixes)) ==
              KernelId::kLinearFirst);

template <class List>
int index_in(const List& list, DType dtype) {
    const auto* found = std::find(list.begin(), list.end(), dtype);
    return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

}  // namespace

std::span<const KernelName> kernel_names() {
    return kNames;
}

const KernelName& name_of(KernelId id) {
    return kNames[static_cast<std::size_t>(id)];
}

std::span<const DeviceFile> device_files() {
    return kFiles;
}

bool has_code(KernelId id, CodeKind code) {
    const auto* file =
        std::ranges::find(kFiles, std::string_view(name_of(id).cubin), &DeviceFile::stem);
    assert(file != std::end(kFiles) && "every kernel's file is listed");
    return code == CodeKind::kSm90 ? file->has_sm_90 : file->has_sm_70;
}

KernelId linear_kernel(int type_index, bool is_wide) {
    return kernel_after(KernelId::kLinearFirst,
                        2 * static_cast<std::size_t>(type_index) + (is_wide ? 1 : 0));
}

KernelId attention_kernel(std::int32_t head_dim) {
    if (head_dim <= 64) return KernelId::kAttention2;
    return head_dim <= 128 ? KernelId::kAttention4 : KernelId::kAttention8;
}

KernelId delta_net_kernel(std::int32_t state_size) {
    if (state_size <= 32) return KernelId::kDeltaNet1;
    return state_size <= 64 ? KernelId::kDeltaNet2 : KernelId::kDeltaNet4;
}

KernelId matmul_dp4a_kernel(int type_index, int width) {
    return kernel_after(KernelId::kMatmulDp4aFirst,
                        static_cast<std::size_t>(type_index) * std::size(kDp4aWidths) +
                            static_cast<std::size_t>(width));
}

KernelId matmul_hmma_kernel(int type_index) {
    return kernel_after(KernelId::kMatmulHmmaFirst, static_cast<std::size_t>(type_index));
}

KernelId pack_lanes_kernel(int type_index) {
    return kernel_after(KernelId::kPackLanesFirst, static_cast<std::size_t>(type_index));
}

int linear_type_index(DType dtype) {
    return index_in(kLinearTypes, dtype);
}

int dequantise_type_index(DType dtype, bool is_packed) {
    return is_packed ? matmul_type_index(dtype) : index_in(kDequantiseFileTypes, dtype);
}

int matmul_type_index(DType dtype) {
    return index_in(kMatmulTypes, dtype);
}

KernelId matmul_kernel(int type_index, int columns, MatmulWay way) {
    const auto type = static_cast<std::size_t>(type_index);
    if (way == MatmulWay::kPair) return kernel_after(KernelId::kMatmulPairFirst, type);
    if (way == MatmulWay::kWhole) {
        assert(type < kWholeTypes && "the plan knows which types have one");
        return kernel_after(KernelId::kMatmulWholeFirst, type);
    }
    if (way == MatmulWay::kJoined) return kernel_after(KernelId::kMatmulFirst, type);
    const std::size_t width = columns == 16 ? 0 : columns == 32 ? 1 : 2;
    return kernel_after(KernelId::kMatmulWideFirst, kWideWidths * type + width);
}

std::vector<KernelId> matmul_kernels(std::size_t type_index) {
    std::vector<KernelId> ids = {kernel_after(KernelId::kMatmulFirst, type_index),
                                 kernel_after(KernelId::kMatmulPairFirst, type_index)};
    for (std::size_t width = 0; width < kWideWidths; ++width)
        ids.push_back(kernel_after(KernelId::kMatmulWideFirst, kWideWidths * type_index + width));
    if (type_index < kWholeTypes)
        ids.push_back(kernel_after(KernelId::kMatmulWholeFirst, type_index));
    for (std::size_t mix = 0; mix < std::size(kMatmulMixes); ++mix)
        if (kMatmulMixes[mix].first == kMatmulTypes[type_index] ||
            kMatmulMixes[mix].second == kMatmulTypes[type_index])
            ids.push_back(kernel_after(KernelId::kMatmulMixedFirst, mix));
    return ids;
}

}  // namespace kernels::cuda
