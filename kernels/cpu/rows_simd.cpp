// Row by row: RMSNorm, quantisation of activations, SwiGLU. Arithmetic in f32, sums per lane and
// then across, so an order given by the length alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows_simd.cpp"
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

void rms_norm(const float* x, const float* weight, float eps, std::int64_t count, float* out) {
    const auto n = static_cast<std::size_t>(count);
    const std::size_t whole = n / kLanes * kLanes;
    VF squares = hn::Zero(DF());
    for (std::size_t i = 0; i < whole; i += kLanes) {
        const VF v = hn::LoadU(DF(), x + i);
        squares = hn::MulAdd(v, v, squares);
    }
    if (whole < n) {
        const VF v = load_part(x + whole, n - whole);
        squares = hn::MulAdd(v, v, squares);
    }
    const float mean = sum_of(squares) / static_cast<float>(count);
    const float factor = 1.0F / std::sqrt(mean + eps);
    const VF f = hn::Set(DF(), factor);
    for (std::size_t i = 0; i < whole; i += kLanes)
        hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(DF(), x + i), f), hn::LoadU(DF(), weight + i)), DF(),
                   out + i);
    for (std::size_t i = whole; i < n; ++i)
        out[i] = x[i] * factor * weight[i];
}

/// Values of this size and below become 0: their inverse scale would not be finite.
constexpr float kTiny = 1e-30F;

constexpr std::int32_t kInfinityBits = 0x7f800000;

/// One group of 32 values; lanes of the width at hand. Sizes are compared as bit patterns, whose
/// order is that of the values, with infinities and then NaNs above them.
HWY_INLINE void quantise_group(const float* x, std::int8_t* q, float& d, std::int32_t (&sums)[2]) {
    VI largest = hn::Zero(DI());
    for (std::size_t i = 0; i < kGroupValues; i += kLanes) {
        const VF v = hn::LoadU(DF(), x + i);
        largest = hn::Max(largest, hn::BitCast(DI(), hn::Abs(v)));
    }
    const std::int32_t largest_bits = hn::GetLane(hn::MaxOfLanes(DI(), largest));
    if (largest_bits >= kInfinityBits) {
        std::memset(q, 0, kGroupValues);
        d = std::numeric_limits<float>::quiet_NaN();
        sums[0] = sums[1] = 0;
        return;
    }
    const auto amax = std::bit_cast<float>(largest_bits);
    const bool is_tiny = amax <= kTiny;
    d = is_tiny ? 0.0F : amax / 127.0F;
    const VF inverse = hn::Set(DF(), is_tiny ? 0.0F : 127.0F / amax);
    for (std::size_t half = 0; half < 2; ++half) {
        VI sum = hn::Zero(DI());
        for (std::size_t i = 16 * half; i < 16 * half + 16; i += kLanes) {
            const VI rounded = hn::NearestInt(hn::Mul(hn::LoadU(DF(), x + i), inverse));
            sum = hn::Add(sum, rounded);
            const hn::Rebind<std::int8_t, DI> d8;
            hn::StoreU(hn::DemoteTo(d8, rounded), d8, q + i);
        }
        sums[half] = hn::GetLane(hn::SumOfLanes(DI(), sum));
    }
}

void quantise(const float* x, std::int64_t count, std::uint8_t* record) {
    const ActivationLayout layout = ActivationLayout::of(count);
    void* base = record;
    auto* q = static_cast<std::int8_t*>(base);
    auto* floats = static_cast<float*>(base);
    auto* integers = static_cast<std::int32_t*>(base);
    float* d = floats + layout.d / 4;
    float* d_sum = floats + layout.d_sum / 4;
    float* d_sum16 = floats + layout.d_sum16 / 4;
    std::int32_t* minus_sum = integers + layout.minus_sum / 4;
    std::int32_t* minus_sum16 = integers + layout.minus_sum16 / 4;
    const auto groups = static_cast<std::size_t>(count / kGroupValues);
    for (std::size_t g = 0; g < groups; ++g) {
        std::int32_t sums[2];
        quantise_group(x + g * kGroupValues, q + g * kGroupValues, d[g], sums);
        const std::int32_t both = sums[0] + sums[1];
        d_sum[g] = d[g] * static_cast<float>(both);
        minus_sum[g] = -both;
        for (std::size_t half = 0; half < 2; ++half) {
            d_sum16[2 * g + half] = d[g] * static_cast<float>(sums[half]);
            minus_sum16[2 * g + half] = -sums[half];
        }
    }
}

void swiglu(const float* gate, const float* up, std::int64_t count, float* out) {
    const auto n = static_cast<std::size_t>(count);
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        hn::StoreU(hn::Mul(silu_of(hn::LoadU(DF(), gate + i)), hn::LoadU(DF(), up + i)), DF(),
                   out + i);
    if (i < n)
        store_part(hn::Mul(silu_of(load_part(gate + i, n - i)), load_part(up + i, n - i)), out + i,
                   n - i);
}

RowKernels row_table() {
    return {rms_norm, quantise, swiglu};
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(row_table);

RowKernels row_kernels() {
    return HWY_DYNAMIC_DISPATCH(row_table)();
}

}  // namespace kernels::cpu
#endif
