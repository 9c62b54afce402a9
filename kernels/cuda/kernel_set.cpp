#include "kernels/cuda/kernel_set.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "kernels/cuda/cubins.h"

namespace kernels::cuda {
namespace {

constexpr std::size_t kLinearFirst = static_cast<std::size_t>(KernelId::kLinearFirst);

constexpr KernelName kNames[] = {
    {"embed_rows", "embed"},
    {"norm_rows", "norm_rows"},
    {"delta_net_1", "delta_net"},
    {"delta_net_2", "delta_net"},
    {"delta_net_4", "delta_net"},
    {"step_inputs_store", "delta_net"},
    {"attention_append", "attention"},
    {"attention_2", "attention"},
    {"attention_4", "attention"},
    {"attention_8", "attention"},
    {"read_stream", "read_stream"},
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
};
static_assert(std::size(kNames) == kLinearFirst + 2 * kLinearTypes.size());

}  // namespace

std::span<const KernelName> kernel_names() {
    return kNames;
}

int linear_type_index(DType dtype) {
    const auto* found = std::find(kLinearTypes.begin(), kLinearTypes.end(), dtype);
    return found == kLinearTypes.end() ? -1 : static_cast<int>(found - kLinearTypes.begin());
}

KernelSet::KernelSet(const Driver& driver)
    : driver_(driver), functions_(std::size(kNames)), runs_(std::size(kNames)) {
    for (const Cubin& cubin : cubins()) {
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
        assert(function != nullptr && "every name has a cubin");
}

void KernelSet::launch_raw(KernelId id, const GridShape& grid, StreamHandle stream, void* params) {
    const auto index = static_cast<std::size_t>(id);
    assert(grid.x > 0 && grid.x < (std::int64_t{1} << 31) && grid.y > 0 && grid.y <= 65535 &&
           "a grid the hardware takes");
    void* parameters[] = {params};
    check_cuda(driver_,
               driver_.launch(functions_[index], static_cast<unsigned>(grid.x),
                              static_cast<unsigned>(grid.y), 1, static_cast<unsigned>(grid.threads),
                              1, 1, 0, stream, parameters, nullptr),
               kNames[index].symbol);
    ++runs_[index];
}

}  // namespace kernels::cuda
