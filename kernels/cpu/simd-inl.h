// Vector helpers shared by the kernel files; compiled once per instruction set.
//
// Lanes are counted at compile time (kLanes 32-bit lanes: 4, 8 or 16), which the tiles rely on.

#if defined(KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SIMD_INL_H_
#undef KERNELS_CPU_SIMD_INL_H_
#else
#define KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

// In front of loops over arrays of vectors: unrolled in full, the arrays become registers. Emulated
// vectors have no registers, only more to compile.
#undef KERNELS_UNROLL
#if HWY_TARGET == HWY_EMU128
#define KERNELS_UNROLL
#else
#define KERNELS_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU8 = hn::Repartition<std::uint8_t, DU>;
using DI8 = hn::Repartition<std::int8_t, DU>;
using DF16 = hn::Rebind<hwy::float16_t, DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

constexpr std::size_t kLanes = HWY_LANES(float);

HWY_INLINE float sum_of(VF v) {
    return hn::GetLane(hn::SumOfLanes(DF(), v));
}

/// e^x for x up to 88, and e^88 above, where Highway's Exp returns anything. A NaN is kept (Exp
/// makes it 0): a lost NaN is a wrong answer unnoticed.
HWY_INLINE VF exp_of(VF x) {
    const VF bounded = hn::Min(x, hn::Set(DF(), 88.0F));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(DF(), bounded));
}

HWY_INLINE VF sigmoid_of(VF x) {
    const VF one = hn::Set(DF(), 1.0F);
    return hn::Div(one, hn::Add(one, exp_of(hn::Neg(x))));
}

HWY_INLINE VF silu_of(VF x) {
    return hn::Mul(x, sigmoid_of(x));
}

/// The first `count` < kLanes values, zeros behind them.
HWY_INLINE VF load_part(const float* from, std::size_t count) {
    HWY_ALIGN float part[kLanes] = {};
    for (std::size_t i = 0; i < count; ++i)
        part[i] = from[i];
    return hn::Load(DF(), part);
}

HWY_INLINE void store_part(VF v, float* to, std::size_t count) {
    HWY_ALIGN float part[kLanes];
    hn::Store(v, DF(), part);
    for (std::size_t i = 0; i < count; ++i)
        to[i] = part[i];
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_SIMD_INL_H_
