// Tiles of a product with block-quantised weights: exact integer dot products per group of 16 or
// 32 values, then one f32 multiply-add per group and output.
//
//   out[c][r] = sum over groups g:  scale[r][g] * d[c][g] * (sum of code * q)  [+ min[r][g] * ...]
//
// A lane is a row of W, so an output is one chain of additions in the order of g, whatever the
// width of the vectors and the number of columns. W is decoded once per block of columns
// (tile_decode-inl.h). Moves: the blocks of W once, activations from the caches.
//
// Source: the formulas are those of ggml's integer dot products; the arrangement is ours. Checked
// by tests/kernel/linear_test.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_quant_simd.cpp"
#include <cassert>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/cpu/tile_decode-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
// Highway chooses this target only where VNNI is present, but does not enable it for the compiler.
#pragma GCC push_options
#pragma GCC target("avx512vnni")
#endif
namespace kernels::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define KERNELS_HAVE_MADDUBS 1  // u8 * s8 added in pairs to saturating i16; no 4-way product
#else
#define KERNELS_HAVE_MADDUBS 0
#endif

/// Four codes of every row (u8) times the same four activations (i8), added to `sum`.
HWY_INLINE VI add_products(VI sum, VU codes, VI activations) {
#if HWY_TARGET == HWY_AVX3_DL
    return VI{_mm512_dpbusd_epi32(sum.raw, codes.raw, activations.raw)};
#else
    // Any processor: byte by byte in 32-bit lanes.
    const VI byte = hn::Set(DI(), 0xff);
    const VI w = hn::BitCast(DI(), codes);
    sum =
        hn::Add(sum, hn::Mul(hn::And(w, byte), hn::ShiftRight<24>(hn::ShiftLeft<24>(activations))));
    sum = hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<8>(w), byte),
                               hn::ShiftRight<24>(hn::ShiftLeft<16>(activations))));
    sum = hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<16>(w), byte),
                               hn::ShiftRight<24>(hn::ShiftLeft<8>(activations))));
    return hn::Add(sum,
                   hn::Mul(hn::And(hn::ShiftRight<24>(w), byte), hn::ShiftRight<24>(activations)));
#endif
}

#if KERNELS_HAVE_MADDUBS
using DI16 = hn::Repartition<std::int16_t, DI>;
using VI16 = hn::Vec<DI16>;

HWY_INLINE VI16 pair_products(VU codes, VI activations) {
#if HWY_TARGET == HWY_AVX3
    return VI16{_mm512_maddubs_epi16(codes.raw, activations.raw)};
#elif HWY_TARGET == HWY_AVX2
    return VI16{_mm256_maddubs_epi16(codes.raw, activations.raw)};
#else
    return VI16{_mm_maddubs_epi16(codes.raw, activations.raw)};
#endif
}

HWY_INLINE VI add_pairs(VI sum, VI16 pairs) {
#if HWY_TARGET == HWY_AVX3
    const VI wide{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
    const VI wide{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
#else
    const VI wide{_mm_madd_epi16(pairs.raw, _mm_set1_epi16(1))};
#endif
    return hn::Add(sum, wide);
}

/// `activations` with the signs of `codes`; where a code is 0 the product is 0 either way.
HWY_INLINE VI move_signs(VI activations, VI codes) {
#if HWY_TARGET == HWY_AVX2
    return VI{_mm256_sign_epi8(activations.raw, codes.raw)};
#elif HWY_TARGET == HWY_SSE4
    return VI{_mm_sign_epi8(activations.raw, codes.raw)};
#else
    const auto a = hn::BitCast(DI8(), activations);
    return hn::BitCast(DI(), hn::IfNegativeThenElse(hn::BitCast(DI8(), codes), hn::Neg(a), a));
#endif
}
#endif

HWY_INLINE VI broadcast_activations(const std::uint8_t* q) {
    std::int32_t four;
    std::memcpy(&four, q, sizeof(four));
    return hn::Set(DI(), four);
}

/// Sums of (code - offset) * q over one group for every column: exact.
/// codes: the group's dwords of the panel; q: where the group begins in each column.
template <class Shape, std::size_t columns>
HWY_INLINE void group_sums(const std::uint32_t* codes, const std::uint8_t* const* column,
                           std::size_t q_offset, const VI (&start)[columns], VI (&sum)[columns]) {
    constexpr auto kDwords = static_cast<std::size_t>(Shape::kGroup / 4);
#if KERNELS_HAVE_MADDUBS
    if constexpr (Shape::kBits == 8) {
        // Unsigned codes would saturate the pair sums; |signed code| <= 128 stays just below:
        // 2 * 128 * 127 = 32512.
        (void)start;
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c)
            sum[c] = hn::Zero(DI());
        KERNELS_UNROLL
        for (std::size_t j = 0; j < kDwords; ++j) {
            const VU biased = hn::Load(DU(), codes + j * kLanes);
            const VI w = hn::BitCast(DI(), hn::Xor(biased, hn::Set(DU(), 0x80808080U)));
            const VU magnitude = hn::BitCast(DU(), hn::Abs(hn::BitCast(DI8(), w)));
            KERNELS_UNROLL
            for (std::size_t c = 0; c < columns; ++c) {
                const VI a = broadcast_activations(column[c] + q_offset + 4 * j);
                sum[c] = add_pairs(sum[c], pair_products(magnitude, move_signs(a, w)));
            }
        }
    } else {
        // As many pair sums as 16 bits hold: (2^bits - 1) * 127 * 2 each.
        constexpr std::size_t kFits = 32767U / (((1U << Shape::kBits) - 1U) * 254U);
        constexpr std::size_t kRun = kFits < kDwords ? (kFits < 4 ? kFits : 4) : kDwords;
        static_assert(kRun >= 1 && kDwords % kRun == 0);
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c)
            sum[c] = start[c];
        KERNELS_UNROLL
        for (std::size_t j = 0; j < kDwords; j += kRun) {
            VI16 pairs[columns];
            KERNELS_UNROLL
            for (std::size_t i = 0; i < kRun; ++i) {
                const VU w = hn::Load(DU(), codes + (j + i) * kLanes);
                KERNELS_UNROLL
                for (std::size_t c = 0; c < columns; ++c) {
                    const VI a = broadcast_activations(column[c] + q_offset + 4 * (j + i));
                    const VI16 products = pair_products(w, a);
                    pairs[c] = i == 0 ? products : hn::Add(pairs[c], products);
                }
            }
            KERNELS_UNROLL
            for (std::size_t c = 0; c < columns; ++c)
                sum[c] = add_pairs(sum[c], pairs[c]);
        }
    }
#else
    KERNELS_UNROLL
    for (std::size_t c = 0; c < columns; ++c)
        sum[c] = start[c];
    KERNELS_UNROLL
    for (std::size_t j = 0; j < kDwords; ++j) {
        const VU w = hn::Load(DU(), codes + j * kLanes);
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c)
            sum[c] = add_products(sum[c], w, broadcast_activations(column[c] + q_offset + 4 * j));
    }
#endif
}

template <class T>
HWY_INLINE T read_at(const std::uint8_t* record, std::size_t offset, std::size_t index) {
    T value;
    std::memcpy(&value, record + offset + index * sizeof(T), sizeof(T));
    return value;
}

/// A decoded stretch of a tile's rows.
struct Panel {
    const std::uint32_t* codes;
    const float* scales;
    const float* mins;
    std::size_t first_value;  // k of the stretch's first value
    std::size_t values;
};

/// Adds the stretch to the results of `columns` columns.
template <class Shape, std::size_t columns>
HWY_NOINLINE void add_panel(const Panel& panel, const ActivationLayout& layout,
                            const std::uint8_t* const* column, float* out) {
    constexpr auto kGroup = static_cast<std::size_t>(Shape::kGroup);
    constexpr bool kBy16 = Shape::kGroup == 16;
    const std::size_t minus_sum = kBy16 ? layout.minus_sum16 : layout.minus_sum;
    const std::size_t d_sum = kBy16 ? layout.d_sum16 : layout.d_sum;
    VF total[columns];
    KERNELS_UNROLL
    for (std::size_t c = 0; c < columns; ++c)
        total[c] = hn::LoadU(DF(), out + c * kTileStride);
    const std::size_t groups = panel.values / kGroup;
    for (std::size_t g = 0; g < groups; ++g) {
        const std::size_t group = panel.first_value / kGroup + g;  // in the row
        VI start[columns];
        VI sum[columns];
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c) {
            if constexpr (Shape::kOffsetLog2 >= 0) {
                start[c] = hn::ShiftLeft<Shape::kOffsetLog2>(
                    hn::Set(DI(), read_at<std::int32_t>(column[c], minus_sum, group)));
            } else {
                start[c] = hn::Zero(DI());
            }
        }
        group_sums<Shape, columns>(panel.codes + g * (kGroup / 4) * kLanes, column,
                                   panel.first_value + g * kGroup, start, sum);
        const VF scale = hn::Load(DF(), panel.scales + g * kLanes);
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c) {
            const VF d =
                hn::Set(DF(), read_at<float>(column[c], layout.d, kBy16 ? group / 2 : group));
            total[c] = hn::MulAdd(hn::ConvertTo(DF(), sum[c]), hn::Mul(scale, d), total[c]);
        }
        if constexpr (Shape::kHasMin) {
            const VF min = hn::Load(DF(), panel.mins + g * kLanes);
            KERNELS_UNROLL
            for (std::size_t c = 0; c < columns; ++c)
                total[c] = hn::MulAdd(min, hn::Set(DF(), read_at<float>(column[c], d_sum, group)),
                                      total[c]);
        }
    }
    KERNELS_UNROLL
    for (std::size_t c = 0; c < columns; ++c)
        hn::StoreU(total[c], DF(), out + c * kTileStride);
}

/// Columns done at once: with 32 vector registers there is room for eight sums and totals.
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
constexpr std::size_t kWide = 8;
#else
constexpr std::size_t kWide = 4;
#endif

template <class Shape>
HWY_INLINE void add_panel_to_columns(const Panel& panel, const ActivationLayout& layout,
                                     const Tile& tile, float* out) {
    const auto columns = static_cast<std::size_t>(tile.columns);
    std::size_t c = 0;
    for (; c + kWide <= columns; c += kWide)
        add_panel<Shape, kWide>(panel, layout, tile.column + c, out + c * kTileStride);
    if constexpr (kWide > 4)
        for (; c + 4 <= columns; c += 4)
            add_panel<Shape, 4>(panel, layout, tile.column + c, out + c * kTileStride);
    for (; c + 2 <= columns; c += 2)
        add_panel<Shape, 2>(panel, layout, tile.column + c, out + c * kTileStride);
    for (; c < columns; ++c)
        add_panel<Shape, 1>(panel, layout, tile.column + c, out + c * kTileStride);
}

/// Copies one block of each of `rows` < kLanes rows behind each other and repeats the last, so that
/// decoding may always read kLanes rows.
template <std::size_t block_bytes>
void gather_blocks(const std::uint8_t* block, std::int64_t row_bytes, std::size_t rows,
                   std::uint8_t* out) {
    for (std::size_t r = 0; r < kLanes; ++r) {
        const std::size_t from = r < rows ? r : rows - 1;
        std::memcpy(out + r * block_bytes, block + static_cast<std::int64_t>(from) * row_bytes,
                    block_bytes);
    }
}

constexpr std::size_t kLineBytes = 64;

template <class Decode>
void tile_quant(const Tile& tile) {
    using Shape = typename Decode::Shape;
    constexpr std::size_t kBlockBytes = sizeof(typename Decode::Block);
    constexpr std::size_t kBlockDwords = Decode::kValues / 4;
    constexpr auto kBlockGroups = Decode::kValues / static_cast<std::size_t>(Shape::kGroup);
    const auto k = static_cast<std::size_t>(tile.k);
    const ActivationLayout layout = ActivationLayout::of(tile.k);
    void* storage = tile.panel;
    auto* codes = static_cast<std::uint32_t*>(storage);
    auto* scales = static_cast<float*>(storage) + kPanelValues / 4 * kLanes;
    float* mins = scales + kPanelValues / 16 * kLanes;
    HWY_ALIGN std::uint8_t gathered[kLanes * kBlockBytes];
    const DI di;

    for (int first = 0; first < tile.rows; first += static_cast<int>(kLanes)) {
        const auto rows = static_cast<std::size_t>(tile.rows - first);
        const std::uint8_t* blocks = tile.blocks + first * tile.row_bytes;
        float* out = tile.out + first;
        for (std::size_t c = 0; c < static_cast<std::size_t>(tile.columns); ++c)
            hn::StoreU(hn::Zero(DF()), DF(), out + c * kTileStride);
        const bool full = rows >= kLanes;
        const std::ptrdiff_t stride =
            full ? tile.row_bytes : static_cast<std::ptrdiff_t>(kBlockBytes);
        const VI lane_offset =
            hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(stride)));
        // Rows of W are read in order: what the next pass reads is fetched during this one. It may
        // lie behind the matrix, where fetching does nothing.
        const std::uint8_t* ahead = blocks + static_cast<std::int64_t>(kLanes) * tile.row_bytes;
        for (std::size_t k0 = 0; k0 < k; k0 += kPanelValues) {
            const std::size_t values = k - k0 < kPanelValues ? k - k0 : kPanelValues;
            for (std::size_t b = 0; b < values / Decode::kValues; ++b) {
                const std::uint8_t* block = blocks + (k0 / Decode::kValues + b) * kBlockBytes;
                for (std::size_t line = 0; line < kLanes * kBlockBytes; line += kLineBytes)
                    hwy::Prefetch(ahead + line);
                ahead += kLanes * kBlockBytes;
                if (!full) {
                    gather_blocks<kBlockBytes>(block, tile.row_bytes, rows, gathered);
                    block = gathered;
                }
                Decode::decode(
                    BlockRows{block, stride, lane_offset},
                    PanelPart{codes + b * kBlockDwords * kLanes, scales + b * kBlockGroups * kLanes,
                              mins + b * kBlockGroups * kLanes});
            }
            add_panel_to_columns<Shape>(Panel{codes, scales, mins, k0, values}, layout, tile, out);
        }
    }
}

TileKernel quant_kernel(DType dtype) {
    switch (dtype) {
        case DType::kQ8_0:
            return tile_quant<DecodeQ8_0>;
        case DType::kQ4_0:
            return tile_quant<DecodeQ4_0>;
        case DType::kQ4_1:
            return tile_quant<DecodeQ4_1>;
        case DType::kQ5_0:
            return tile_quant<DecodeQ5_0>;
        case DType::kQ5_1:
            return tile_quant<DecodeQ5_1>;
        case DType::kIQ4_NL:
            return tile_quant<DecodeIQ4_NL>;
        case DType::kIQ4_XS:
            return tile_quant<DecodeIQ4_XS>;
        case DType::kQ2_K:
            return tile_quant<DecodeQ2_K>;
        case DType::kQ3_K:
            return tile_quant<DecodeQ3_K>;
        case DType::kQ4_K:
            return tile_quant<DecodeQ4_K>;
        case DType::kQ5_K:
            return tile_quant<DecodeQ5_K>;
        case DType::kQ6_K:
            return tile_quant<DecodeQ6_K>;
        default:
            return nullptr;
    }
}

#undef KERNELS_HAVE_MADDUBS

}  // namespace kernels::cpu::HWY_NAMESPACE
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC pop_options
#endif
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(quant_kernel);

TileKernels quant_tile_kernel(DType dtype) {
    return {HWY_DYNAMIC_DISPATCH(quant_kernel)(dtype), true};
}

}  // namespace kernels::cpu
#endif
