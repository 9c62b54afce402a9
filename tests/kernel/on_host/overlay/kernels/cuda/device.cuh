// kernels/cuda/device.cuh for the host: the same words, by grid.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/quant/half.h"

namespace kernels::cuda {

inline constexpr int kWarpLanes = on_host::kWarpLanes;

inline int lane_index() {
    return static_cast<int>(threadIdx.x) % kWarpLanes;
}
inline int warp_index() {
    return static_cast<int>(threadIdx.x) / kWarpLanes;
}
inline float warp_sum(float value) {
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(~0U, value, distance);
    return value;
}
inline float half_to_float(std::uint16_t half) {
    return kernels::f16_to_f32(half);
}
inline std::uint16_t float_to_half(float value) {
    return kernels::f32_to_f16(value);
}
inline float sigmoid(float x) {
    return 1.0F / (1.0F + std::exp(-x));
}
inline void let_next_kernel_start() {}
inline void wait_for_previous_kernel() {}  // grids follow each other
inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - on_host::shared());
}

}  // namespace kernels::cuda
