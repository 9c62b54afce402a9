// Tiles of a product with F32, F16 or BF16 weights: f32 dot products along k, the 16-bit types
// widened as they are loaded.
//
// Lanes run along k; every output has one vector of partial sums, added across at the end, so its
// order is given by k alone. kRows x kColumns outputs share their loads.
//
// Checked by tests/kernel/linear_test.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_float_simd.cpp"
#include <cstring>

#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

struct LoadF32 {
    static constexpr std::size_t kBytes = 4;
    static HWY_INLINE VF load(const std::uint8_t* from) {
        return hn::BitCast(DF(), hn::LoadU(DU8(), from));
    }
};

struct LoadF16 {
    static constexpr std::size_t kBytes = 2;
    static HWY_INLINE VF load(const std::uint8_t* from) {
        const hn::Repartition<std::uint8_t, DF16> d8;
        return hn::PromoteTo(DF(), hn::BitCast(DF16(), hn::LoadU(d8, from)));
    }
};

struct LoadBF16 {
    static constexpr std::size_t kBytes = 2;
    static HWY_INLINE VF load(const std::uint8_t* from) {
        const hn::Repartition<std::uint8_t, DU16> d8;
        const auto half = hn::BitCast(DU16(), hn::LoadU(d8, from));
        return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), half)));
    }
};

/// The last count < kLanes weights of a row, zeros behind them.
template <class Weight>
HWY_INLINE VF load_weights_part(const std::uint8_t* from, std::size_t count) {
    HWY_ALIGN std::uint8_t part[kLanes * Weight::kBytes] = {};
    std::memcpy(part, from, count * Weight::kBytes);
    return Weight::load(part);
}

template <class Weight, std::size_t rows, std::size_t columns>
HWY_NOINLINE void multiply(const std::uint8_t* w, std::int64_t row_bytes, std::size_t k,
                           const float* const* x, float* out) {
    VF sum[rows][columns];
    KERNELS_UNROLL
    for (std::size_t r = 0; r < rows; ++r)
        KERNELS_UNROLL
    for (std::size_t c = 0; c < columns; ++c)
        sum[r][c] = hn::Zero(DF());
    const auto stride = static_cast<std::size_t>(row_bytes);
    const std::size_t whole = k / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
        VF column[columns];
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c)
            column[c] = hn::LoadU(DF(), x[c] + i);
        KERNELS_UNROLL
        for (std::size_t r = 0; r < rows; ++r) {
            const VF weights = Weight::load(w + r * stride + i * Weight::kBytes);
            KERNELS_UNROLL
            for (std::size_t c = 0; c < columns; ++c)
                sum[r][c] = hn::MulAdd(weights, column[c], sum[r][c]);
        }
    }
    if (whole < k) {
        VF column[columns];
        KERNELS_UNROLL
        for (std::size_t c = 0; c < columns; ++c)
            column[c] = load_part(x[c] + whole, k - whole);
        KERNELS_UNROLL
        for (std::size_t r = 0; r < rows; ++r) {
            const VF weights =
                load_weights_part<Weight>(w + r * stride + whole * Weight::kBytes, k - whole);
            KERNELS_UNROLL
            for (std::size_t c = 0; c < columns; ++c)
                sum[r][c] = hn::MulAdd(weights, column[c], sum[r][c]);
        }
    }
    KERNELS_UNROLL
    for (std::size_t r = 0; r < rows; ++r)
        KERNELS_UNROLL
    for (std::size_t c = 0; c < columns; ++c)
        out[c * kTileStride + r] = sum_of(sum[r][c]);
}

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
constexpr std::size_t kRows = 4;  // 16 sums of 32 registers
#else
constexpr std::size_t kRows = 2;  // 8 sums of 16 registers
#endif
constexpr std::size_t kColumns = 4;

template <class Weight, std::size_t rows>
void multiply_rows(const Tile& tile, std::size_t first) {
    const auto k = static_cast<std::size_t>(tile.k);
    const auto columns = static_cast<std::size_t>(tile.columns);
    const std::uint8_t* w = tile.blocks + static_cast<std::int64_t>(first) * tile.row_bytes;
    const float* x[kColumns];
    std::size_t c = 0;
    for (; c + kColumns <= columns; c += kColumns) {
        for (std::size_t i = 0; i < kColumns; ++i) {
            const void* column = tile.column[c + i];
            x[i] = static_cast<const float*>(column);
        }
        multiply<Weight, rows, kColumns>(w, tile.row_bytes, k, x,
                                         tile.out + c * kTileStride + first);
    }
    for (; c < columns; ++c) {
        const void* column = tile.column[c];
        x[0] = static_cast<const float*>(column);
        multiply<Weight, rows, 1>(w, tile.row_bytes, k, x, tile.out + c * kTileStride + first);
    }
}

template <class Weight>
void tile_float(const Tile& tile) {
    const auto rows = static_cast<std::size_t>(tile.rows);
    std::size_t r = 0;
    for (; r + kRows <= rows; r += kRows)
        multiply_rows<Weight, kRows>(tile, r);
    for (; r < rows; ++r)
        multiply_rows<Weight, 1>(tile, r);
}

TileKernel float_kernel(DType dtype) {
    switch (dtype) {
        case DType::kF32:
            return tile_float<LoadF32>;
        case DType::kF16:
            return tile_float<LoadF16>;
        case DType::kBF16:
            return tile_float<LoadBF16>;
        default:
            return nullptr;
    }
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(float_kernel);

TileKernels float_tile_kernel(DType dtype) {
    return {HWY_DYNAMIC_DISPATCH(float_kernel)(dtype), false};
}

}  // namespace kernels::cpu
#endif
