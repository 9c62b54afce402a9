// Instructions of sm_70 by name: those that PTX has a word for and C++ has none.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

/// sum + the dot product of four signed bytes with four signed bytes.
__device__ inline int dot4(int a, int b, int sum) {
    int result;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

/// C += A B by each quad pair, lanes 4q .. 4q + 3 and 16 + 4q .. 16 + 4q + 3, on its own: A 8 x 4,
/// B 4 x 8 in binary16, C in f32. Of the quad pair's eight lanes, in this order, a lane holds a row
/// of A and a column of B; of C rows (lane mod 2) + (i and 2), + 4 in the upper lanes, and columns
/// (i and 4) + (lane and 2) + (i and 1). PTX ISA, "Matrix Fragments for mma.m8n8k4".
__device__ inline void mma_m8n8k4(float (&c)[8], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
          "+f"(c[7])
        : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t add_half_pairs(std::uint32_t a, std::uint32_t b) {
    std::uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/// Weights are read once: past the L1, which x lives in.
__device__ inline uint4 load_weights16(const std::uint8_t* from) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
    return v;
}
__device__ inline uint2 load_weights8(const std::uint8_t* from) {
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}
__device__ inline std::uint32_t load_weights4(const std::uint8_t* from) {
    std::uint32_t v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

/// x, which many blocks read. Here and below as one instruction: copied as a whole, a uint4 in an
/// array keeps the array in memory.
__device__ inline uint4 load_x16(const uint4* from) {
    uint4 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
    return v;
}
__device__ inline void store_shared16(uint4* to, const uint4& v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/// What the launch gave the block, 16-byte aligned.
__device__ inline std::uint8_t* block_memory() {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<std::uint8_t*>(memory);
}

__device__ inline std::uint32_t warp_max(std::uint32_t value) {
#pragma unroll
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
        value = max(value, __shfl_xor_sync(~0U, value, distance));
    return value;
}

}  // namespace kernels::cuda
