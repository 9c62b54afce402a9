// A warpgroup's product of weights in registers with columns of x' in shared memory.
//
// Four warps hold 16 rows of W each, as the A operand of mma.m16n8k16 has them: that is the packed
// order (packed.h), so that a warp brings its own row tile and nothing is moved. The columns are
// read by the tensor cores themselves, once for all four tiles.
//
// x' lies in atoms of a kilobyte: eight columns of 64 inputs, a column's 16-byte chunks swapped by
// its number (wgmma.cuh). A record of 256 inputs is four atoms; records of eight columns follow
// each other: [columns / 8][4 atoms].
//
// Registers that a product in flight reads or writes may not be touched: between issue and wait
// sums belong to the tensor cores, and so do fragments.
//
// Source    PTX ISA: wgmma.mma_async, register fragments of A and D, matrix descriptors
#pragma once

#include "kernels/cuda/matmul_cut.h"
#include "kernels/cuda/matmul_parts.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace kernels::cuda {

/// Descriptors of a record's columns at shared address `address`: inputs beside each other, eight
/// columns every kWideGroupBytes.
struct ColumnsDescriptor {
    std::uint32_t low;

    __device__ explicit ColumnsDescriptor(std::uint32_t address) : low(address >> 4 | kUnused) {}
    __device__ std::uint64_t of_step(int step) const {
        const std::uint32_t at = kWideAtomBytes * (step / 4) + 32 * (step % 4);
        return std::uint64_t{kHigh} << 32 | (low + (at >> 4));
    }

private:
    // The stride along the inputs: an atom holds all of a step.
    static constexpr std::uint32_t kUnused = 1U << 16;
    static constexpr std::uint32_t kHigh = (kWideGroupBytes >> 4) | 1U << 30;  // 128-byte swizzle
};

/// sums = a b, plus sums when `adds`: a step of 16 inputs, b at descriptor `b`.
__device__ inline void multiply_step(Sums<2>& sums, const Fragment& f, std::uint64_t b, int adds) {
    float(&d)[2][4] = sums.v;
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, adds, 1, 1, 0;\n}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3])
        : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "l"(b), "r"(adds));
}
__device__ inline void multiply_step(Sums<4>& sums, const Fragment& f, std::uint64_t b, int adds) {
    float(&d)[4][4] = sums.v;
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, adds, 1, 1, 0;\n}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "l"(b), "r"(adds));
}
__device__ inline void multiply_step(Sums<8>& sums, const Fragment& f, std::uint64_t b, int adds) {
    float(&d)[8][4] = sums.v;
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "l"(b), "r"(adds));
}

/// The compiler may not move a use of the sums in front of a wait.
template <int kTiles>
__device__ inline void pin(Sums<kTiles>& sums) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm volatile("" : "+f"(sums.v[n][i])::"memory");
}

}  // namespace kernels::cuda
