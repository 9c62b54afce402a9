// kernels/cuda/wgmma_bfloat.cuh, and what it has of wgmma.cuh, for the host. Products are done when
// they are issued: a wait that is missing does not show here.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace kernels::cuda {

using WarpgroupSums = float[32];

/// Addresses count in 16 bytes.
inline std::uint64_t matrix_descriptor(std::uint32_t address) {
    return address / 16;
}
inline void warpgroup_fence() {}
inline void warpgroup_commit() {}
template <int kPending>
inline void warpgroup_wait() {}
inline void pin(WarpgroupSums&) {}
template <int kRegisters>
inline void shrink_registers() {}
template <int kRegisters>
inline void grow_registers() {}

/// Value of column `column` of row `row` (128 bytes) of a tile of swapped chunks that begins at a
/// multiple of 1024; `descriptor` may point into the first row.
inline float swizzled_value(std::uint64_t descriptor, int row, int column) {
    const std::uint32_t address = static_cast<std::uint32_t>(descriptor) * 16 +
                                  static_cast<std::uint32_t>(row * 128 + column * 2);
    const std::uint32_t place = address ^ (address / 128 % 8 * 16);
    if (place + 2 > on_host::kSharedBytes) on_host::fail("an operand outside shared memory");
    std::uint16_t value = 0;
    std::memcpy(&value, on_host::shared() + place, sizeof value);
    return __uint_as_float(std::uint32_t{value} << 16);
}

/// d (+)= a b; `right(k, n)` is b's value. Columns kFirst .. kEnd of d.
template <int kFirst, int kEnd, class Right>
inline void multiply_emulated(WarpgroupSums& d, const std::uint32_t (&a)[4], bool adds,
                              Right right) {
    const std::byte* all = on_host::exchange(&a, sizeof a);
    const int group = lane_index() / 4;
    float rows[2][16];
    for (int k = 0; k < 16; ++k)
        for (int i = 0; i < 2; ++i) {
            std::uint32_t of[4];
            std::memcpy(
                &of, all + static_cast<std::size_t>(group * 4 + k % 8 / 2) * on_host::kPayloadBytes,
                sizeof of);
            rows[i][k] = half_of(of[i + 2 * (k / 8)], k % 2);
        }
    for (int tile = kFirst / 8; tile < kEnd / 8; ++tile)
        for (int i = 0; i < 4; ++i) {
            const int column = 8 * tile + 2 * (lane_index() % 4) + i % 2 - kFirst;
            float sum = 0.0F;
            for (int k = 0; k < 16; ++k)
                sum += rows[i / 2][k] * right(k, column);
            d[4 * tile + i] = adds ? d[4 * tile + i] + sum : sum;
        }
}

template <bool kAdds>
inline void multiply_rows(WarpgroupSums& d, const std::uint32_t (&a)[4], std::uint64_t b) {
    multiply_emulated<0, 64>(d, a, kAdds, [=](int k, int n) { return swizzled_value(b, n, k); });
}
inline void multiply_columns(WarpgroupSums& d, const std::uint32_t (&a)[4], std::uint64_t b) {
    multiply_emulated<0, 64>(d, a, true, [=](int k, int n) { return swizzled_value(b, k, n); });
}

}  // namespace kernels::cuda
