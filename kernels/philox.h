// Philox4x32-10: random numbers as a pure function of a key and a counter.
//
// Nothing is carried from draw to draw, so a draw does not depend on scheduling, batching or
// preemption, and a GPU gives the same number as the host.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; the known answers of
// their Random123 library are in tests/unit/kernels/philox_test.cpp.
#pragma once

#include <array>
#include <cstdint>

namespace kernels {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline constexpr int kPhiloxRounds = 10;

/// Four random words for one counter under one key.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
    constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
    constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
    constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;  // golden ratio
    constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;  // sqrt(3) - 1
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const std::uint64_t product0 = kMultiplier0 * counter[0];
        const std::uint64_t product1 = kMultiplier1 * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(product0)};
        key = {key[0] + kWeyl0, key[1] + kWeyl1};
    }
    return counter;
}

/// The random number of one draw: uniform in [0, 1) with 53 bits, from seed and draw index alone.
constexpr double draw_uniform(std::uint64_t seed, std::uint64_t draw_index) {
    const PhiloxCounter words =
        philox4x32({static_cast<std::uint32_t>(draw_index),
                    static_cast<std::uint32_t>(draw_index >> 32), 0, 0},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint64_t bits = (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace kernels
