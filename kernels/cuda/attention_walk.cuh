// A block's walk over its units (attention_cut.h): where the run begins, what comes next.
#pragma once

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

/// A unit, and the (sequence, KV head, chunk of columns) it belongs to.
struct AttentionPlace {
    int unit = 0;  // of all units
    int seq = 0, head = 0, chunk = 0;
    int first_row = 0, rows = 0, kv_before = 0;
    int units = 1, chunks = 1;
    int first_unit = 0, first_group = 0;  // of this sequence, head and chunk

    __device__ int local_unit() const { return unit - first_unit; }
    __device__ int groups() const {
        return (units + kAttentionGroupUnits - 1) / kAttentionGroupUnits;
    }
    __device__ int first_token() const { return local_unit() * kAttentionUnitTokens; }

    __device__ AttentionWork read(const AttentionDecodeParams& p, int s) {
        const StepView& step = p.attention.step;
        first_row = step.row_begin[s];
        rows = step.row_begin[s + 1] - first_row;
        kv_before = step.kv_len_before[s];
        const AttentionWork work = attention_work(rows, kv_before + rows, p.heads_of_group);
        units = work.units;
        chunks = work.chunks;
        return work;
    }
    /// To the first unit of the next sequence, head or chunk.
    __device__ void skip(const AttentionDecodeParams& p, int seqs) {
        first_unit += units;
        first_group += groups();
        unit = first_unit;
        if (++chunk < chunks) return;
        chunk = 0;
        if (++head < p.attention.n_kv) return;
        head = 0;
        while (++seq < seqs)
            if (read(p, seq).units > 0) return;
        units = 1;  // past the end
        chunks = 1;
    }
    __device__ void advance(const AttentionDecodeParams& p, int seqs) {
        if (++unit - first_unit == units) skip(p, seqs);
    }
};

/// Everything a block knows before the kernel in front has ended: the step was copied in front of
/// all kernels.
struct AttentionRun {
    AttentionCut cut{};
    AttentionPlace start;
    int begin = 0, end = 0;  // units
    int seqs = 0;
    bool has_whole =
        false;  // blocks own whole (sequence, head, chunk): those that begin in the run

    __device__ bool holds(const AttentionPlace& place) const {
        return has_whole ? place.first_unit < end : place.unit < end;
    }
};

/// All lanes of every warp compute the same.
__device__ inline AttentionRun find_run(const AttentionDecodeParams& p, int block, int grid) {
    AttentionRun run;
    run.seqs = *p.attention.step.seqs;
    const auto count = [&](int s, AttentionPlace& place) {
        AttentionWork work{};
        if (s < run.seqs) work = place.read(p, s);
        const int heads = work.chunks * p.attention.n_kv;
        return AttentionWork{.units = work.units * heads, .groups = work.groups * heads};
    };
    int units = 0;
    int groups = 0;
    for (int s = lane_index(); s < run.seqs + lane_index(); s += kWarpLanes) {
        AttentionPlace place;
        const AttentionWork work = count(s, place);
        units += __shfl_sync(~0U, inclusive_sum(work.units), kWarpLanes - 1);
        groups += __shfl_sync(~0U, inclusive_sum(work.groups), kWarpLanes - 1);
    }
    run.cut = attention_cut(units, grid);
    run.has_whole = groups > p.group_slots;
    if (block >= run.cut.blocks) return run;
    run.begin = run.cut.begin(block);
    run.end = run.cut.begin(block + 1);
    int units_before = 0;
    int groups_before = 0;
    for (int first = 0; first < run.seqs; first += kWarpLanes) {
        AttentionPlace place;
        const AttentionWork work = count(first + lane_index(), place);
        const int units_to = units_before + inclusive_sum(work.units);
        const int groups_to = groups_before + inclusive_sum(work.groups);
        const unsigned past = __ballot_sync(~0U, units_to > run.begin);
        if (past != 0) {
            const int lane = __ffs(static_cast<int>(past)) - 1;
            const int first_unit = __shfl_sync(~0U, units_to - work.units, lane);
            const int first_group = __shfl_sync(~0U, groups_to - work.groups, lane);
            AttentionPlace& at = run.start;
            at.seq = first + lane;
            at.read(p, at.seq);
            const int nth = (run.begin - first_unit) / at.units;
            at.head = nth / at.chunks;
            at.chunk = nth % at.chunks;
            at.first_unit = first_unit + nth * at.units;
            at.first_group = first_group + nth * at.groups();
            at.unit = run.begin;
            break;
        }
        units_before = __shfl_sync(~0U, units_to, kWarpLanes - 1);
        groups_before = __shfl_sync(~0U, groups_to, kWarpLanes - 1);
    }
    if (run.has_whole && run.start.local_unit() != 0) run.start.skip(p, run.seqs);
    return run;
}

}  // namespace kernels::cuda
