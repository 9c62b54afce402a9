// kernels/cuda/tensor_core.cuh for the host: what the delta net's kernels use of it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

/// Rounds to nearest, ties to even.
inline std::uint32_t bfloat_of(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    constexpr std::uint32_t kInfinity = 0x7F800000;
    constexpr std::uint32_t kQuiet = 0x0040;
    if ((bits & 0x7FFFFFFF) > kInfinity) return bits >> 16 | kQuiet;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline std::uint32_t pack_bfloats(float low, float high) {
    return bfloat_of(low) | bfloat_of(high) << 16;
}

/// One of the two values of a register.
inline float half_of(std::uint32_t pair, int index) {
    return __uint_as_float(index == 0 ? pair << 16 : pair & 0xFFFF0000U);
}

inline void mma_bfloat(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                       std::uint32_t b1) {
    struct Operands {
        std::uint32_t a[4], b[2];
    };
    const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const std::byte* all = on_host::exchange(&mine, sizeof mine);
    const auto of_lane = [&](int lane) {
        Operands operands;
        std::memcpy(&operands, all + static_cast<std::size_t>(lane) * on_host::kPayloadBytes,
                    sizeof operands);
        return operands;
    };
    const int group = lane_index() / 4;
    const int place = lane_index() % 4;
    for (int i = 0; i < 4; ++i) {
        const int column = 2 * place + i % 2;
        float sum = 0.0F;
        for (int k = 0; k < 16; ++k) {
            const int register_half = k / 8;
            const Operands row = of_lane(group * 4 + k % 8 / 2);
            const Operands other = of_lane(column * 4 + k % 8 / 2);
            sum += half_of(row.a[i / 2 + 2 * register_half], k % 2) *
                   half_of(other.b[register_half], k % 2);
        }
        c[i] += sum;
    }
}

/// Value `column` of row `row` of 8 x 8 values whose rows lie where lanes 8 i .. 8 i + 7 say.
inline std::uint32_t matrix_value(const std::byte* addresses, int matrix, int row, int column) {
    std::uint32_t address = 0;
    std::memcpy(&address,
                addresses + static_cast<std::size_t>(8 * matrix + row) * on_host::kPayloadBytes,
                sizeof address);
    if (address % 16 != 0 || address + 16 > on_host::kSharedBytes)
        on_host::fail("a matrix row outside shared memory or not aligned");
    std::uint16_t value = 0;
    std::memcpy(&value, on_host::shared() + address + 2 * column, sizeof value);
    return value;
}
inline void load_matrices(std::uint32_t (&m)[4], std::uint32_t address) {
    const std::byte* all = on_host::exchange(&address, sizeof address);
    const int row = lane_index() / 4;
    const int column = lane_index() % 4 * 2;
    for (int i = 0; i < 4; ++i)
        m[i] = matrix_value(all, i, row, column) | matrix_value(all, i, row, column + 1) << 16;
}
inline void load_transposed(std::uint32_t (&m)[4], std::uint32_t address) {
    const std::byte* all = on_host::exchange(&address, sizeof address);
    const int column = lane_index() / 4;
    const int row = lane_index() % 4 * 2;
    for (int i = 0; i < 4; ++i)
        m[i] = matrix_value(all, i, row, column) | matrix_value(all, i, row + 1, column) << 16;
}

inline void copy_async(std::uint32_t to, const void* from) {
    if (to % 16 != 0 || to + 16 > on_host::kSharedBytes ||
        reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
        on_host::fail("a copy outside shared memory or not aligned");
    on_host::copy_some_time(on_host::shared() + to, from, 16);
}
inline void commit_copies() {}
template <int kPending>
inline void wait_copies() {
    static_assert(kPending == 0, "groups are not told apart");
    on_host::finish_copies();
}

}  // namespace kernels::cuda
