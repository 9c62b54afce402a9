// kernels/cuda/volta_core.cuh for the host.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

inline int dot4(int a, int b, int sum) {
    for (int i = 0; i < 4; ++i)
        sum += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
    return sum;
}

inline float half_of(std::uint32_t pair, int index) {
    return half_to_float(static_cast<std::uint16_t>(pair >> (16 * index)));
}

/// As the PTX ISA lays the fragments out; each quad pair on its own.
inline void mma_m8n8k4(float (&c)[8], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0,
                       std::uint32_t b1) {
    struct Operands {
        std::uint32_t a[2], b[2];
    };
    const Operands mine{{a0, a1}, {b0, b1}};
    const std::byte* all = on_host::exchange(&mine, sizeof mine);
    const int lane = lane_index();
    // Of the quad pair's member that holds row or column `index`.
    const auto member = [&](int index) {
        Operands operands;
        const int at = lane % 16 / 4 * 4 + index % 4 + index / 4 * 16;
        std::memcpy(&operands, all + static_cast<std::size_t>(at) * on_host::kPayloadBytes,
                    sizeof operands);
        return operands;
    };
    for (int i = 0; i < 8; ++i) {
        const Operands row = member((lane & 1) + (i & 2) + (lane >= 16 ? 4 : 0));
        const Operands column = member((i & 4) + (lane & 2) + (i & 1));
        for (int k = 0; k < 4; ++k)
            c[i] += half_of(row.a[k / 2], k % 2) * half_of(column.b[k / 2], k % 2);
    }
}

inline std::uint32_t add_half_pairs(std::uint32_t a, std::uint32_t b) {
    std::uint32_t sum = 0;
    for (int i = 0; i < 2; ++i)
        sum |= std::uint32_t{float_to_half(half_of(a, i) + half_of(b, i))} << (16 * i);
    return sum;
}

template <class Word>
Word load_aligned(const void* from) {
    if (reinterpret_cast<std::uintptr_t>(from) % sizeof(Word) != 0)
        on_host::fail("a load that is not aligned");
    Word word;
    std::memcpy(&word, from, sizeof word);
    return word;
}
inline uint4 load_weights16(const std::uint8_t* from) {
    return load_aligned<uint4>(from);
}
inline uint2 load_weights8(const std::uint8_t* from) {
    return load_aligned<uint2>(from);
}
inline std::uint32_t load_weights4(const std::uint8_t* from) {
    return load_aligned<std::uint32_t>(from);
}
inline uint4 load_x16(const uint4* from) {
    return load_aligned<uint4>(from);
}
inline void store_shared16(uint4* to, const uint4& v) {
    const std::uint32_t at = shared_address(to);
    if (at % 16 != 0 || at + 16 > on_host::kSharedBytes)
        on_host::fail("a store outside shared memory or not aligned");
    *to = v;
}
inline std::uint8_t* block_memory() {
    return reinterpret_cast<std::uint8_t*>(on_host::shared());
}
inline std::uint32_t warp_max(std::uint32_t value) {
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
        value = max(value, __shfl_xor_sync(~0U, value, distance));
    return value;
}

}  // namespace kernels::cuda
