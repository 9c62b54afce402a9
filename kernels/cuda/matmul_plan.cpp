#include "kernels/cuda/matmul_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {
namespace {

constexpr std::int32_t kTableBytes = 256 * 256;  // matmul_format.cuh
constexpr std::int32_t kSlotBytes = 2 * kRecordInputs;
constexpr std::int32_t kColumnPadBytes = 64;  // puts two columns into different banks
constexpr std::int32_t kFloatBytes = 4;
constexpr std::int32_t kPartBytes = 4 * 32 * kFloatBytes;  // a tile's sums in a warp
constexpr std::int32_t kSumsBytes = 8 * kFloatBytes;       // of a slot and column

struct TypeFacts {
    bool has_table = true;
    bool has_minimum = false;
    bool has_whole = true;  // the first kWholeTypes of kernel_set.h
};
TypeFacts facts_of(DType dtype) {
    return {.has_table = dtype != DType::kQ8_0,
            .has_minimum = dtype == DType::kQ4_K || dtype == DType::kQ5_K,
            .has_whole = dtype != DType::kQ4_K && dtype != DType::kQ4_0 && dtype != DType::kIQ4_NL};
}

/// Of the kernel for a pass. A step's rows share a numerics id, so that a last pass of few rows
/// goes the way of the others.
constexpr std::int32_t columns_for(const MatmulQuery& query) {
    return query.step_rows <= kMatmulFewColumns ? kMatmulFewColumns : wide_columns(query.rows);
}

/// Blocks of matmul_wide: as many for every group of row tiles where the longest run is no longer
/// for it. Runs then end with groups: fewer parts, and fewer blocks to wait for.
std::int32_t wide_blocks(const MatmulCut& cut) {
    if (cut.blocks < cut.groups) return cut.blocks;
    const std::int32_t even = cut.blocks / cut.groups * cut.groups;
    const auto longest = [&](std::int32_t blocks) { return (cut.units() + blocks - 1) / blocks; };
    return longest(even) == longest(cut.blocks) ? even : cut.blocks;
}

/// Shared memory as WideMemory in matmul_wide.cuh lays it out.
constexpr std::int32_t wide_bytes(bool has_table, std::int32_t columns) {
    constexpr std::int32_t kBarrierBytes = 16;  // full and empty
    return (has_table ? kTableBytes : 0) +
           wide_stages(columns) * (wide_stage_bytes(columns) + kBarrierBytes) +
           columns * kFloatBytes;
}

/// What PairView in matmul_pair.cuh lays around the window.
std::int32_t pair_bytes(const TypeFacts& facts, const MatmulPlan& plan,
                        std::int32_t squares_bytes) {
    constexpr std::int32_t kWarps = kMatmulThreads / 32;
    constexpr std::int32_t kGaps = 256 / 4;  // parts that lie between the table's entries
    const std::int32_t parts = 2 * plan.pair_slots;
    return (facts.has_table ? kTableBytes : 0) + squares_bytes +
           (2 + kWarps) * kMatmulFewColumns * kFloatBytes +
           (facts.has_table && parts <= kGaps ? 0 : parts * kPartBytes);
}

/// Shared memory as WindowView in matmul_parts.cuh lays it out.
struct SharedNeed {
    std::int32_t fixed;
    std::int32_t per_slot;
};
SharedNeed shared_need(const TypeFacts& facts, const MatmulPlan& plan) {
    const std::int32_t squares_bytes = plan.window_columns * plan.cut.k_records * kFloatBytes;
    const std::int32_t parts_bytes =
        plan.way == MatmulWay::kWhole ? kMatmulPartRows * 32 * kFloatBytes : 0;
    std::int32_t beside = facts.has_table ? kTableBytes : std::max(squares_bytes, parts_bytes);
    if (plan.way == MatmulWay::kPair) beside = pair_bytes(facts, plan, squares_bytes);
    return {.fixed = beside + plan.window_columns * kColumnPadBytes + plan.columns * kFloatBytes,
            .per_slot = plan.window_columns * kSlotBytes + plan.columns * kFloatBytes +
                        (facts.has_minimum ? plan.columns * kSumsBytes : 0)};
}

/// Whole tiles pay where a block's run of units sees all of K anyway and eight rows of x fit: then
/// they save the join. Where a run is shorter, making the rest of x costs more than the join
/// (kernels/README.md, 5120 x 6144: 16.6 against 13.1 us at 8 rows). The same answer for 1 to 8
/// rows, which share their bits.
bool is_whole(const MatmulQuery& query, const TypeFacts& facts, const MatmulCut& cut) {
    constexpr std::int32_t kRows = 8;
    const std::int32_t k_records = cut.k_records;
    if (query.step_rows > kRows || !facts.has_whole || cut.units() < k_records * cut.blocks)
        return false;
    MatmulPlan eight;
    eight.columns = kRows;
    eight.window_columns = kRows;
    eight.way = MatmulWay::kWhole;
    eight.cut.k_records = k_records;
    const SharedNeed need = shared_need(facts, eight);
    return need.fixed + k_records * need.per_slot <= query.shared_bytes_max;
}

/// Pairs of blocks need no join, and each block makes a half of x: they serve wherever the parts of
/// their tiles and a half of eight rows of x fit (kernels/README.md: 3 to 5 us a launch). A pair
/// has one tile or more.
bool is_pair(const MatmulQuery& query, const TypeFacts& facts, MatmulPlan& plan) {
    const std::int32_t pairs = static_cast<std::int32_t>(std::min<std::int64_t>(
        query.pairs_max > 0 ? query.pairs_max : query.multiprocessors / 2, query.tiles));
    const std::int32_t k_records = plan.cut.k_records;
    if (query.step_rows > kMatmulFewColumns || pairs < 1 || k_records < 2) return false;
    const std::int64_t tiles_max = (query.tiles + pairs - 1) / pairs;
    constexpr std::int64_t kTilesMax = 64;
    if (tiles_max > kTilesMax) return false;
    MatmulPlan eight = plan;
    eight.way = MatmulWay::kPair;
    eight.window_columns = kMatmulFewColumns;
    eight.pair_slots = static_cast<std::int32_t>(tiles_max) + kMatmulThreads / 32 - 1;
    const SharedNeed need = shared_need(facts, eight);
    if (need.fixed + (k_records + 1) / 2 * need.per_slot > query.shared_bytes_max) return false;
    plan.way = MatmulWay::kPair;
    plan.pair_slots = eight.pair_slots;
    plan.cut.blocks = 2 * pairs;
    return true;
}

/// How much of x a block of matmul_mma, matmul_whole or matmul_pair holds; or why it holds too
/// little.
std::optional<std::string> plan_window(const MatmulQuery& query, const TypeFacts& facts,
                                       MatmulPlan& plan) {
    plan.window_columns = static_cast<std::int32_t>(query.rows);
    const SharedNeed need = shared_need(facts, plan);
    const std::int32_t run = (plan.cut.units() + plan.cut.blocks - 1) / plan.cut.blocks;
    // Distinct records of a run.
    const std::int32_t wanted = plan.way == MatmulWay::kWhole  ? plan.cut.k_records
                                : plan.way == MatmulWay::kPair ? (plan.cut.k_records + 1) / 2
                                                               : std::min(plan.cut.k_records, run);
    const std::int32_t fitting = (query.shared_bytes_max - need.fixed) / need.per_slot;
    if (fitting < 1)
        return std::to_string(query.shared_bytes_max) +
               " bytes of shared memory do not hold one record of x";
    plan.window_slots = std::min(wanted, fitting);
    plan.shared_bytes = need.fixed + plan.window_slots * need.per_slot;
    return std::nullopt;
}

/// What a row's bits depend on: type, order of sums, the cut. Never the number of rows.
std::uint64_t numerics_of(const MatmulQuery& query, const MatmulPlan& plan) {
    constexpr std::uint64_t kKernelVersion = 5;  // up to 8 rows scales after the mma, groups, then
                                                 // records in order of k; above before it
    std::uint64_t id = kKernelVersion;
    for (const std::int64_t part :
         {static_cast<std::int64_t>(query.dtype), query.tiles,
          static_cast<std::int64_t>(plan.cut.k_records), static_cast<std::int64_t>(plan.cut.blocks),
          static_cast<std::int64_t>(plan.way)})
        id = (id ^ static_cast<std::uint64_t>(part)) * 0x100000001B3ULL;  // FNV-1a's prime
    return id;
}

}  // namespace

float weight_unit(float peak) {
    constexpr int kLargestExponent = 14;
    constexpr int kExponentMax = 100;  // its inverse stays normal
    if (!(peak > 0.0F) || !std::isfinite(peak)) return 1.0F;
    return std::ldexp(1.0F,
                      std::clamp(kLargestExponent - std::ilogb(peak), -kExponentMax, kExponentMax));
}

std::int64_t matmul_partial_floats(std::int32_t multiprocessors) {
    return std::int64_t{2} * multiprocessors * kMatmulUnitTiles * kTileRows * kMatmulFewColumns;
}
std::int64_t matmul_wide_part_floats(std::int32_t multiprocessors) {
    return std::int64_t{2} * multiprocessors * kMatmulUnitTiles * kTileRows * kMatmulColumnsMax;
}

tl::expected<MatmulPlan, std::string> matmul_plan(const MatmulQuery& query) {
    if (!is_packable(query.dtype, query.k))
        return tl::unexpected<std::string>("the type has no packed order for this K");
    if (query.k > kMatmulInputsMax)
        return tl::unexpected("K = " + std::to_string(query.k) + " is above " +
                              std::to_string(kMatmulInputsMax));
    if (query.rows < 1 || query.rows > kMatmulColumnsMax || query.rows > query.step_rows)
        return tl::unexpected(std::to_string(query.rows) + " rows are not between 1 and " +
                              std::to_string(kMatmulColumnsMax));
    const std::int64_t groups = (query.tiles + kMatmulUnitTiles - 1) / kMatmulUnitTiles;
    const std::int64_t k_records = record_count(query.k);
    if (query.tiles < 1 || query.tiles * k_records > kMatmulUnitsMax)
        return tl::unexpected(std::to_string(query.tiles) + " row tiles are out of range");
    if (query.multiprocessors < 1 || query.multiprocessors > kMatmulBlocksMax)
        return tl::unexpected("a device of " + std::to_string(query.multiprocessors) +
                              " multiprocessors");

    MatmulPlan plan;
    plan.columns = columns_for(query);
    plan.threads = plan.columns > kMatmulFewColumns ? kWideThreads : kMatmulThreads;
    plan.cut = {.groups = static_cast<std::int32_t>(groups),
                .k_records = static_cast<std::int32_t>(k_records),
                .blocks = static_cast<std::int32_t>(
                    std::min<std::int64_t>(query.multiprocessors, groups * k_records))};
    const TypeFacts facts = facts_of(query.dtype);
    if (plan.columns > kMatmulFewColumns) {
        plan.way = MatmulWay::kWide;
        plan.cut.blocks = wide_blocks(plan.cut);
    } else if (!is_pair(query, facts, plan) && is_whole(query, facts, plan.cut)) {
        plan.way = MatmulWay::kWhole;
        plan.cut.blocks =
            static_cast<std::int32_t>(std::min<std::int64_t>(query.multiprocessors, query.tiles));
    }
    if (plan.way == MatmulWay::kWide) {
        plan.shared_bytes = wide_bytes(facts.has_table, plan.columns);
        if (plan.shared_bytes > query.shared_bytes_max)
            return tl::unexpected(std::to_string(query.shared_bytes_max) +
                                  " bytes of shared memory do not hold the ring of x");
    } else if (auto refusal = plan_window(query, facts, plan)) {
        return tl::unexpected(*std::move(refusal));
    }
    plan.partial_floats =
        std::int64_t{2} * plan.cut.blocks * kMatmulUnitTiles * kTileRows * plan.columns;
    plan.weight_bytes = query.tiles * k_records * record_bytes(query.dtype);
    plan.numerics_id = numerics_of(query, plan);
    return plan;
}

namespace {

/// What a pair spends on a record, relative: bytes over the rate its loop reaches
/// (kernels/README.md: 3.9 TB/s for IQ4_XS, 2.9 to 3.3 for the others).
double record_cost(DType dtype) {
    constexpr double kNibbleRate = 3.9;
    constexpr double kOtherRate = 3.1;
    const bool is_nibble = dtype == DType::kIQ4_XS || dtype == DType::kIQ4_NL ||
                           dtype == DType::kQ4_0 || dtype == DType::kQ8_0;
    return static_cast<double>(record_bytes(dtype)) / (is_nibble ? kNibbleRate : kOtherRate);
}

}  // namespace

std::optional<MatmulMixPlan> matmul_mix_plan(MatmulQuery first, MatmulQuery second) {
    const std::int32_t pairs = first.multiprocessors / 2;
    if (first.step_rows > kMatmulFewColumns || pairs < 2) return std::nullopt;
    const auto time_of = [](const MatmulQuery& query, std::int32_t share) {
        return static_cast<double>((query.tiles + share - 1) / share) * record_cost(query.dtype);
    };
    std::int32_t best = 1;
    for (std::int32_t share = 2; share < pairs; ++share)
        if (std::max(time_of(first, share), time_of(second, pairs - share)) <
            std::max(time_of(first, best), time_of(second, pairs - best)))
            best = share;
    first.pairs_max = best;
    second.pairs_max = pairs - best;
    const auto a = matmul_plan(first);
    const auto b = matmul_plan(second);
    if (!a || !b || a->way != MatmulWay::kPair || b->way != MatmulWay::kPair) return std::nullopt;
    return MatmulMixPlan{*a, *b};
}

}  // namespace kernels::cuda
