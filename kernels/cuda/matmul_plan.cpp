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
constexpr std::int32_t kSumsBytes = 8 * kFloatBytes;  // of a slot and column
constexpr std::int64_t kUnitsMax = std::int64_t{1} << 30;

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

/// Shared memory as WideMemory in matmul_wide.cuh lays it out.
constexpr std::int32_t wide_bytes(bool has_table, std::int32_t columns) {
    constexpr std::int32_t kBarrierBytes = 16;  // full and empty
    return (has_table ? kTableBytes : 0) +
           wide_stages(columns) * (wide_stage_bytes(columns) + kBarrierBytes) +
           columns * kFloatBytes;
}

/// Shared memory as WindowView in matmul_parts.cuh lays it out.
struct SharedNeed {
    std::int32_t fixed;
    std::int32_t per_slot;
};
SharedNeed shared_need(const TypeFacts& facts, const MatmulPlan& plan) {
    const std::int32_t squares_bytes = plan.window_columns * plan.cut.k_records * kFloatBytes;
    const std::int32_t parts_bytes = plan.is_whole ? kMatmulPartRows * 32 * kFloatBytes : 0;
    return {.fixed = (facts.has_table ? kTableBytes : std::max(squares_bytes, parts_bytes)) +
                     plan.window_columns * kColumnPadBytes + plan.columns * kFloatBytes,
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
    eight.is_whole = true;
    eight.cut.k_records = k_records;
    const SharedNeed need = shared_need(facts, eight);
    return need.fixed + k_records * need.per_slot <= query.shared_bytes_max;
}

/// How much of x a block of matmul_mma or matmul_whole holds; or why it holds too little.
std::optional<std::string> plan_window(const MatmulQuery& query, const TypeFacts& facts,
                                       MatmulPlan& plan) {
    plan.window_columns = static_cast<std::int32_t>(query.rows);
    const SharedNeed need = shared_need(facts, plan);
    const std::int32_t run = (plan.cut.units() + plan.cut.blocks - 1) / plan.cut.blocks;
    // Distinct records of a run.
    const std::int32_t wanted =
        plan.is_whole ? plan.cut.k_records : std::min(plan.cut.k_records, run);
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
    constexpr std::uint64_t kKernelVersion = 3;  // up to 8 rows scales after the mma, groups, then
                                                 // records in order of k; above before it
    std::uint64_t id = kKernelVersion;
    for (const std::int64_t part :
         {static_cast<std::int64_t>(query.dtype), query.tiles,
          static_cast<std::int64_t>(plan.cut.k_records), static_cast<std::int64_t>(plan.cut.blocks),
          std::int64_t{plan.is_whole                      ? 1
                       : plan.columns > kMatmulFewColumns ? 2
                                                          : 0}})
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
    if (query.tiles < 1 || groups * k_records > kUnitsMax)
        return tl::unexpected(std::to_string(query.tiles) + " row tiles are out of range");
    if (query.multiprocessors < 1)
        return tl::unexpected<std::string>("the device has no multiprocessors");

    MatmulPlan plan;
    plan.columns = columns_for(query);
    plan.threads = plan.columns > kMatmulFewColumns ? wide_threads() : kMatmulThreads;
    plan.cut = {.groups = static_cast<std::int32_t>(groups),
                .k_records = static_cast<std::int32_t>(k_records),
                .blocks = static_cast<std::int32_t>(
                    std::min<std::int64_t>(query.multiprocessors, groups * k_records))};
    const TypeFacts facts = facts_of(query.dtype);
    plan.is_whole = is_whole(query, facts, plan.cut);
    if (plan.is_whole)
        plan.cut.blocks =
            static_cast<std::int32_t>(std::min<std::int64_t>(query.multiprocessors, query.tiles));
    if (plan.columns > kMatmulFewColumns) {
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

}  // namespace kernels::cuda
