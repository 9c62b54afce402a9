#include "kernels/cpu/scratch.h"

#include <algorithm>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/simd_kernels.h"

namespace kernels::cpu {
namespace {

/// Rows of `inputs_max` values a thread may need at once: attention keeps kAttentionQueries
/// queries, as many sums, and a stretch of K and V; a delta-net head q, k, v and output of
/// kDeltaRows rows and a part of the state.
constexpr std::int64_t kWorkRows =
    std::max(2 * kAttentionQueries + 2 * kAttentionStretch, 4 * kDeltaRows + kDeltaStateRows);

}  // namespace

void Scratch::reserve(const StepLimits& limits, int thread_count, bool with_doubles, Arena& arena) {
    rows = limits.rows;
    inputs_max = (std::int64_t{limits.inputs_max} + kGroupValues - 1) / kGroupValues * kGroupValues;
    work_values = kWorkRows * inputs_max;
    const auto record_bytes =
        static_cast<std::int64_t>(ActivationLayout::of(inputs_max).record_bytes);
    records = arena.take_array<std::uint8_t>(rows * record_bytes);
    floats = arena.take_array<float>(rows * inputs_max);
    if (with_doubles) doubles = arena.take_array<double>(rows * inputs_max);
    threads.resize(static_cast<std::size_t>(thread_count));
    for (ThreadScratch& thread : threads) {
        thread.panel = arena.take_array<std::uint8_t>(kPanelBytes);
        for (float*& tile : thread.tile)
            tile = arena.take_array<float>(kColumnBlock * static_cast<std::int64_t>(kTileStride));
        thread.work = arena.take_array<float>(work_values);
        if (with_doubles) thread.work_double = arena.take_array<double>(work_values);
    }
    // Any thread may draw any row.
    for (ThreadScratch& thread : threads)
        thread.sampling.reserve(limits.vocabulary);
}

}  // namespace kernels::cpu
