// A block's walk over its units (attention_cut.h): where the run begins, what comes next.
#pragma once

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

/// A sequence's rows in the step.
struct AttentionRows {
    int first_row = 0, rows = 0, kv_before = 0;

    static __device__ AttentionRows load(const StepView& step, int s) {
        AttentionRows r;
        const int end = step.row_begin[s + 1];
        r.first_row = step.row_begin[s];
        r.kv_before = step.kv_len_before[s];
        r.rows = end - r.first_row;
        return r;
    }
    __device__ AttentionWork work(int heads_of_group) const {
        return attention_work(rows, kv_before + rows, heads_of_group);
    }
};

/// A unit, and the (sequence, KV head, chunk of columns) it belongs to.
struct AttentionPlace {
    int unit = 0;  // of the sequence
    int item = 0;  // of all items
    int seq = 0, head = 0, chunk = 0;
    int first_row = 0, rows = 0, kv_before = 0;
    int units = 1, chunks = 1;
    int first_item = 0, items = 1, first_group = 0;  // of this sequence, head and chunk

    __device__ int groups() const {
        return (units + kAttentionGroupUnits - 1) / kAttentionGroupUnits;
    }
    __device__ int first_token() const { return unit * kAttentionUnitTokens; }

    __device__ void take(const AttentionRows& r, const AttentionWork& work, int grain) {
        first_row = r.first_row;
        rows = r.rows;
        kv_before = r.kv_before;
        units = work.units;
        chunks = work.chunks;
        items = work.items(grain);
    }
    /// To the first unit of the next sequence, head or chunk.
    __device__ void skip(const AttentionDecodeParams& p, int seqs, int grain) {
        first_item += items;
        first_group += groups();
        item = first_item;
        unit = 0;
        if (++chunk < chunks) return;
        chunk = 0;
        if (++head < p.attention.n_kv) return;
        head = 0;
        while (++seq < seqs) {
            const AttentionRows r = AttentionRows::load(p.attention.step, seq);
            const AttentionWork work = r.work(p.heads_of_group);
            take(r, work, grain);
            if (work.units > 0) return;
        }
        units = chunks = items = 1;  // past the end
    }
    __device__ void advance(const AttentionDecodeParams& p, int seqs, int grain) {
        if (++unit == units)
            skip(p, seqs, grain);
        else if (unit % grain == 0)
            ++item;
    }
};

/// Everything a block knows before the kernel in front has ended: the step was copied in front of
/// all kernels.
struct AttentionRun {
    AttentionCut cut{};
    AttentionPlace start;
    int begin = 0, end = 0;  // items
    int seqs = 0;
    int grain = 1;
    bool has_whole =
        false;  // blocks own whole (sequence, head, chunk): those that begin in the run

    __device__ bool holds(const AttentionPlace& place) const {
        return has_whole ? place.first_item < end : place.item < end;
    }
    __device__ AttentionItems group_of(const AttentionPlace& at) const {
        const int size = kAttentionGroupUnits / grain;
        const int begin_item = at.first_item + at.unit / kAttentionGroupUnits * size;
        return {begin_item, min(begin_item + size, at.first_item + at.items)};
    }
};

/// All lanes of every warp compute the same. The first 32 sequences' rows are asked for before
/// their number is known: the descriptor's arrays reach that far (step_upload.cpp).
template <int kTiles>
__device__ AttentionRun find_run(const AttentionDecodeParams& p, int block, int grid) {
    const StepView& step = p.attention.step;
    const int lane = lane_index();
    const AttentionRows mine = AttentionRows::load(step, lane);
    AttentionRun run;
    run.seqs = *step.seqs;
    const auto rows_of = [&](int first) {
        if (first == 0) return lane < run.seqs ? mine : AttentionRows{};
        return first + lane < run.seqs ? AttentionRows::load(step, first + lane) : AttentionRows{};
    };
    int units = 0;
    int quads = 0;
    int groups = 0;
    for (int first = 0; first < run.seqs; first += kWarpLanes) {
        const AttentionRows r = rows_of(first);
        const AttentionWork work = r.work(p.heads_of_group);
        const int heads = work.chunks * p.attention.n_kv;
        units += __reduce_add_sync(~0U, work.units * heads);
        quads += __reduce_add_sync(~0U, work.items(kAttentionQuadUnits) * heads);
        groups += __reduce_add_sync(~0U, work.groups() * heads);
    }
    run.grain = attention_grain(units, quads, grid, attention_region_slots(kTiles));
    run.cut = attention_cut(run.grain == 1 ? units : quads, grid);
    run.has_whole = groups > p.group_slots;
    if (block >= run.cut.blocks) return run;
    run.begin = run.cut.begin(block);
    run.end = run.cut.begin(block + 1);
    int items_before = 0;
    int groups_before = 0;
    for (int first = 0; first < run.seqs; first += kWarpLanes) {
        const AttentionRows r = rows_of(first);
        const AttentionWork work = r.work(p.heads_of_group);
        const int heads = work.chunks * p.attention.n_kv;
        const int items = work.items(run.grain) * heads;
        const int items_to = items_before + inclusive_sum(items);
        const int groups_to = groups_before + inclusive_sum(work.groups() * heads);
        const unsigned past = __ballot_sync(~0U, items_to > run.begin);
        if (past != 0) {
            const int from = __ffs(static_cast<int>(past)) - 1;
            const auto told = [&](int value) { return __shfl_sync(~0U, value, from); };
            AttentionPlace& at = run.start;
            at.seq = first + from;
            at.take({told(r.first_row), told(r.rows), told(r.kv_before)},
                    {.units = told(work.units), .chunks = told(work.chunks)}, run.grain);
            const int first_item = told(items_to - items);
            const int nth = (run.begin - first_item) / at.items;
            at.head = nth / at.chunks;
            at.chunk = nth - at.head * at.chunks;
            at.first_item = first_item + nth * at.items;
            at.first_group = told(groups_to - work.groups() * heads) + nth * at.groups();
            at.item = run.begin;
            at.unit = (run.begin - at.first_item) * run.grain;
            break;
        }
        items_before = __shfl_sync(~0U, items_to, kWarpLanes - 1);
        groups_before = __shfl_sync(~0U, groups_to, kWarpLanes - 1);
    }
    if (run.has_whole && run.start.unit != 0) run.start.skip(p, run.seqs, run.grain);
    return run;
}

}  // namespace kernels::cuda
