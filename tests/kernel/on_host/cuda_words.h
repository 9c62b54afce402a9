// CUDA's words as C++ has them, for device code that runs in a grid.h. In front of everything else.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/kernel/on_host/grid.h"

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define threadIdx (::on_host::position().thread)
#define blockIdx (::on_host::position().block)
#define blockDim (::on_host::position().block_size)
#define gridDim (::on_host::position().grid_size)

struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline float __uint_as_float(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}
inline std::uint32_t __float_as_uint(float value) {
    return std::bit_cast<std::uint32_t>(value);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __expf(float x) {
    return std::exp(x);
}
inline float rsqrtf(float x) {
    return 1.0F / std::sqrt(x);
}

inline void __syncthreads() {
    on_host::wait_for_block();
}
inline void __syncwarp() {
    const char nothing = 0;
    on_host::exchange(&nothing, 1);
}
/// What lane `from` of the warp gives.
template <class T>
T lane_value(T value, unsigned from) {
    const std::byte* all = on_host::exchange(&value, sizeof value);
    std::memcpy(&value, all + from % on_host::kWarpLanes * on_host::kPayloadBytes, sizeof value);
    return value;
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
    return lane_value(value, threadIdx.x ^ static_cast<unsigned>(distance));
}
inline float __shfl_up_sync(unsigned, float value, unsigned distance) {
    const unsigned lane = threadIdx.x % on_host::kWarpLanes;
    return lane_value(value, lane >= distance ? lane - distance : lane);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
    return lane_value(value, static_cast<unsigned>(lane));
}

/// Byte i of the result is byte (selectors >> 4 i) mod 8 of b:a, its sign alone with 8 added.
inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t selector = selectors >> (4 * i) & 15U;
        std::uint32_t byte = (selector % 8 < 4 ? a : b) >> (8 * (selector % 4)) & 255U;
        if (selector >= 8) byte = byte >= 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

using std::max;
using std::min;
