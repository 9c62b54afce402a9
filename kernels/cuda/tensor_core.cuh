// What kernels ask of the tensor cores and of asynchronous copies: one small function an
// instruction. Shared memory is addressed by bytes.
//
// Source    PTX ISA: mma.m16n8k16, ldmatrix, cp.async
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

__device__ inline unsigned char* dynamic_shared() {
    extern __shared__ uint4 shared_words[];
    return reinterpret_cast<unsigned char*>(shared_words);
}

/// c += a b. Lane (g, t) = (lane / 4, lane % 4) holds of a [16, 16] rows g, g + 8 of columns 2t,
/// 2t + 1, then the same of columns + 8; of b [16, 8] rows 2t, 2t + 1 (+ 8) of column g; of c [16,
/// 8] rows g, g + 8 of columns 2t, 2t + 1.
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same of bfloat16. Not volatile: the compiler may move it.
__device__ inline void mma_bfloat(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of binary16; lane i gives the address of row i % 8 of matrix i / 8 and gets
/// of each matrix row lane / 4, columns 2 (lane % 4) and the next.
__device__ inline void load_matrices(std::uint32_t (&m)[4], std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}
/// The same, each matrix transposed.
__device__ inline void load_transposed(std::uint32_t (&m)[4], std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

__device__ inline void copy_async(std::uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kPending of this thread's groups are on their way.
template <int kPending>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void store_words(std::uint32_t to, std::uint32_t a, std::uint32_t b,
                                   std::uint32_t c, std::uint32_t d) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
__device__ inline void store_word(std::uint32_t to, std::uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ inline void store_float_pair(std::uint32_t to, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ inline float2 load_float_pair(std::uint32_t from) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
    return v;
}

/// 2^x to two units in the last place; exactly 1 at 0 and 0 at minus infinity.
__device__ inline float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline std::uint32_t pack_halves(float low, float high) {
    return static_cast<std::uint32_t>(float_to_half(low)) |
           static_cast<std::uint32_t>(float_to_half(high)) << 16;
}

__device__ inline std::uint32_t pack_bfloats(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/// Largest over lanes of equal lane % 4; the same in each.
__device__ inline float max_over_rows(float value) {
#pragma unroll
    for (int distance = 4; distance < kWarpLanes; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(~0U, value, distance));
    return value;
}
__device__ inline float sum_over_rows(float value) {
#pragma unroll
    for (int distance = 4; distance < kWarpLanes; distance *= 2)
        value += __shfl_xor_sync(~0U, value, distance);
    return value;
}

}  // namespace kernels::cuda
