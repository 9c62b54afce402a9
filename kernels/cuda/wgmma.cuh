// Products of a warpgroup's tensor cores: 64 rows of a warpgroup (four warps, the first a multiple
// of four) times 64 columns from shared memory.
//
//     issue      fence, products, commit; nothing of it may be touched
//     complete   wait, then pin() every register that a product wrote, before the first use
//
// Operands in shared memory lie in rows of 128 bytes, eight to a kilobyte, a row's 16-byte chunks
// swapped by its number: chunk c of row r at 16 (c ^ (r % 8)). Blocks begin at multiples of 1024.
//
// Source    PTX ISA: wgmma, matrix descriptors, 128-byte swizzle
#pragma once

#include <cstdint>

namespace kernels::cuda {

/// D of 64 rows and 64 columns. Lane (g, t) of warp w: v[4 i + 0, 1] in row 16 w + g, columns 8 i +
/// 2 t (+ 1); v[4 i + 2, 3] in row 16 w + g + 8.
using WarpgroupSums = float[32];

/// A block of rows of 64 values of binary16 at shared address `address`, from its `address` on.
/// As rows of the product's inner dimension, and, transposed, as columns of it alike: eight rows
/// follow each other every 1024 bytes.
__device__ inline std::uint64_t matrix_descriptor(std::uint32_t address) {
    constexpr std::uint64_t kGroupBytes = 1024;
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
    return ((address & 0x3FFFF) >> 4) | (kGroupBytes >> 4) << 16 | (kGroupBytes >> 4) << 32 |
           kSwizzle128;
}

__device__ inline void warpgroup_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void warpgroup_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most kPending groups of products are under way.
template <int kPending>
__device__ inline void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// The compiler may not move a use of these in front of a wait.
__device__ inline void pin(WarpgroupSums& d) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}
/// What threads wrote to shared memory, also by cp.async, becomes visible to tensor cores; by each
/// writer, in front of the barrier.
__device__ inline void publish_to_tensor_cores() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// d = a b^T, plus d when `adds`: a [64, 16] and b [64, 16], 16 inner values side by side.
__device__ inline void multiply_transposed(WarpgroupSums& d, std::uint64_t a, std::uint64_t b,
                                           int adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, adds, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(adds));
}
/// d += a b: a [64, 16] in registers as the A operand of mma (tensor_core.cuh) has it, warp by
/// warp; b [16, 64], 64 columns side by side.
__device__ inline void multiply_registers(WarpgroupSums& d, const std::uint32_t (&a)[4],
                                          std::uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// Registers of a warpgroup from here on: what one role gives up another takes. Every warp of it.
template <int kRegisters>
__device__ inline void shrink_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void grow_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace kernels::cuda
