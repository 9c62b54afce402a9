#include "kernels/cuda/kernel_set.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "kernels/cuda/cubins.h"
#include "kernels/cuda/matmul_cut.h"

namespace kernels::cuda {
namespace {

constexpr std::size_t kWideWidths = 3;

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
    {"attention_decode_64", "attention_decode"},
    {"attention_decode_128", "attention_decode"},
    {"attention_decode_256", "attention_decode"},
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
};
static_assert(kernel_after(KernelId::kLinearFirst, 2 * kLinearTypes.size()) == KernelId::kCastRows);
static_assert(std::size(kNames) == static_cast<std::size_t>(KernelId::kDequantiseFirst) +
                                       kMatmulTypes.size() + 2 * kDequantiseFileTypes.size());
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

KernelSet::KernelSet(const Driver& driver, const DeviceCode& code)
    : driver_(driver), functions_(std::size(kNames)), runs_(std::size(kNames)) {
    for (const Cubin& cubin : code.images) {
        modules_.push_back(load_module(driver_, cubin.image.data()));
        for (std::size_t i = 0; i < std::size(kNames); ++i) {
            if (kNames[i].cubin != cubin.name) continue;
            const std::string what = std::string("kernel ") + kNames[i].symbol;
            check_cuda(
                driver_,
                driver_.module_function(&functions_[i], modules_.back().get(), kNames[i].symbol),
                what.c_str());
        }
    }
    for (const FunctionHandle function : functions_)
        assert((function != nullptr || !code.is_complete) && "every name has a cubin");
}

void KernelSet::launch_raw(KernelId id, const GridShape& grid, StreamHandle stream, void* params) {
    const auto index = static_cast<std::size_t>(id);
    assert(has(id) && "the registries ask");
    assert(grid.x > 0 && grid.x < (std::int64_t{1} << 31) && grid.y > 0 && grid.y <= 65535 &&
           "a grid the hardware takes");
    void* parameters[] = {params};
    LaunchAttribute overlap{};
    overlap.id = kProgrammaticSerialization;
    overlap.value = 1;
    const LaunchConfig config = {.grid_x = static_cast<unsigned>(grid.x),
                                 .grid_y = static_cast<unsigned>(grid.y),
                                 .block_x = static_cast<unsigned>(grid.threads),
                                 .shared_bytes = static_cast<unsigned>(grid.shared_bytes),
                                 .stream = stream,
                                 .attributes = &overlap,
                                 .attribute_count = grid.overlaps_previous ? 1U : 0U};
    check_cuda(driver_, driver_.launch(&config, functions_[index], parameters, nullptr),
               kNames[index].symbol);
}

void KernelSet::enqueue(LaunchList& list, StreamHandle stream, std::size_t count) {
    const std::span<const Launch> launches = list.launches();
    for (const Launch& launch : launches.first(std::min(count, launches.size())))
        launch_raw(launch.id, launch.grid, stream, list.params(launch));
}

void KernelSet::count(const LaunchList& list) {
    for (const Launch& launch : list.launches())
        ++runs_[static_cast<std::size_t>(launch.id)];
}

}  // namespace kernels::cuda
