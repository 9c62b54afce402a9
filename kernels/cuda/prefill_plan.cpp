#include "kernels/cuda/prefill_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/cuda/prefill_table.h"

namespace kernels::cuda {
namespace {

constexpr std::int64_t kTileRows16 = 16;
constexpr std::int64_t kSliceAlign = 128;  // rows of a tile of the product
constexpr int kWeightExponent = 12;
constexpr double kTie = 0.97;  // ties within 3 % keep the lower path

/// How far a measured shape is from the one asked for: types first, then sizes by ratio.
double distance(const PrefillMeasured& m, const PrefillQuery& query) {
    const auto ratio = [](std::int64_t a, std::int64_t b) {
        return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
    };
    constexpr double kOtherType = 100.0;
    return (m.dtype == query.dtype ? 0.0 : kOtherType) + ratio(m.n, query.n) + ratio(m.k, query.k);
}

}  // namespace

std::int64_t prefill_rows_min(const PrefillQuery& query) {
    const PrefillMeasured* nearest = &kPrefillTable[0];
    for (const PrefillMeasured& m : kPrefillTable)
        if (distance(m, query) < distance(*nearest, query)) nearest = &m;
    // The first count from which on the path stays ahead.
    std::int64_t rows = kPrefillRows[std::size(kPrefillRows) - 1] + 1;
    for (std::size_t i = std::size(kPrefillRows); i-- > 0;) {
        if (!(nearest->cublaslt_us[i] < kTie * nearest->matmul_us[i])) break;
        rows = kPrefillRows[i];
    }
    return rows;
}

std::int64_t prefill_bucket(std::int64_t rows) {
    std::int64_t bucket = 32;
    while (bucket < rows)
        bucket *= 2;
    return bucket;
}

std::int64_t prefill_slice_rows(const PrefillLimits& limits, std::int64_t outputs, std::int64_t k) {
    const std::int64_t by_weights = limits.weight_bytes / (2 * prefill_inputs(k));
    const std::int64_t by_sums = limits.sum_bytes / (4 * std::max<std::int64_t>(limits.rows, 1));
    const std::int64_t whole = (outputs + kTileRows16 - 1) / kTileRows16 * kTileRows16;
    const std::int64_t most =
        std::max(kSliceAlign, std::min(by_weights, by_sums) / kSliceAlign * kSliceAlign);
    if (whole <= most) return whole;
    // Equal slices, so that one algorithm serves all and the last is not a sliver.
    const std::int64_t slices = (whole + most - 1) / most;
    const std::int64_t even = (whole + slices - 1) / slices;
    return std::min(most, (even + kSliceAlign - 1) / kSliceAlign * kSliceAlign);
}

float prefill_weight_scale(float largest) {
    if (!(largest > 0.0F) || !std::isfinite(largest)) return 0.0F;
    constexpr int kExponentMax = 100;  // both it and its inverse are normal
    const int exponent =
        std::clamp(kWeightExponent - std::ilogb(largest), -kExponentMax, kExponentMax);
    return std::ldexp(1.0F, exponent);
}

std::uint64_t prefill_numerics_id(const PrefillQuery& query, std::int64_t rows) {
    std::uint64_t id = 0x9e3779b97f4a7c15ULL;  // another family than matmul_plan's
    for (const std::int64_t part :
         {static_cast<std::int64_t>(query.dtype), query.n, query.k, prefill_bucket(rows)})
        id = (id ^ static_cast<std::uint64_t>(part)) * 0x100000001B3ULL;  // FNV-1a's prime
    return id;
}

}  // namespace kernels::cuda
