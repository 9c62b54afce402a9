// What all kernels share: warps, sums in a fixed order, binary16, the order of launches.
//
// Device code is compiled without contraction of products and sums, so that arithmetic is what is
// written; where fusing is meant, the code says fmaf.
#pragma once

#include <cstdint>

namespace kernels::cuda {

inline constexpr int kWarpLanes = 32;

__device__ inline int lane_index() {
    return static_cast<int>(threadIdx.x) % kWarpLanes;
}
__device__ inline int warp_index() {
    return static_cast<int>(threadIdx.x) / kWarpLanes;
}

/// Sum over the warp, the same bits in every lane: each step adds the same two numbers.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(~0U, value, distance);
    return value;
}

/// Of the lanes up to one's own.
__device__ inline int inclusive_sum(int value) {
#pragma unroll
    for (int distance = 1; distance < kWarpLanes; distance *= 2) {
        const int other = __shfl_up_sync(~0U, value, distance);
        if (lane_index() >= distance) value += other;
    }
    return value;
}

__device__ inline float half_to_float(std::uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

/// Rounds to nearest, ties to even.
__device__ inline std::uint16_t float_to_half(float value) {
    std::uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ inline float bfloat_to_float(std::uint16_t value) {
    return __uint_as_float(static_cast<std::uint32_t>(value) << 16);
}

__device__ inline float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

/// The next kernel of the stream may start where this one leaves room.
__device__ inline void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;");
}
/// Everything the kernels in front have written is there. On every path of every block: the kernel
/// behind relies on it.
__device__ inline void wait_for_previous_kernel() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// One store of 16 bytes: the compiler takes a uint4 apart where it pleases.
__device__ inline void store_global16(void* to, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

__device__ inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// One more arrival of this warp; the number of those before. What the warp has written is seen by
/// who sees the arrival, and the other way round: the release is cumulative over the warp's
/// barrier.
__device__ inline unsigned arrive(std::uint32_t* arrivals) {
    unsigned before = 0;
    __syncwarp();
    if (lane_index() == 0)
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(arrivals)
                     : "memory");
    return __shfl_sync(~0U, before, 0);
}

}  // namespace kernels::cuda
