// sample_rows: one token for each row of logits, by the rules of kernels/sampling.h.
//
// Math      bias, penalties, bans; weight = exp((logit - best) / temperature); ids in the order
//           (logit falling, id rising) are kept up to a border that top_k, top_p and min_p set; the
//           draw walks the kept ids in rising order until their weights pass uniform of the whole
// Shapes    logits [rows, vocabulary] f32; a cluster of 8 blocks a row
// Moves     the logits once, from the L2; everything else stays in shared memory
// Floor     latency: five barriers of the cluster, 1 us each
// Achieved  kernels/README.md
// Plan      Weights are sums of 2^-40, integers: their order does not matter, so that atomic sums
//           are the same every time. Logits fall into 1024 equal bins between the best and the
//           worst; counts and weights of bins tell in which bin a border lies. Few candidates (the
//           usual case) go to the first block, which sorts them and does the rest; else only the
//           border's bin is sorted there and all blocks draw together. A bin of more candidates
//           than a block sorts (thousands of equal logits) is left to the host, by name.
// Source    kernels/sampling.cpp; weights there are f32 and sums f64, so that a draw within 1e-9 of
//           a border between ids may differ
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/sample_parts.cuh"
#include "kernels/cuda/sample_rows.h"

namespace kernels::cuda {
namespace {

/// Up to where ids are kept: entries not above it (sample_parts.cuh).
constexpr std::uint64_t kNoBorder = ~0ULL;

struct RowState {
    const SampleRow* rules;
    float best_logit;
    float bins_per_logit;

    __device__ float weight(float logit) const {
        return expf((logit - best_logit) * rules->inverse_temperature);
    }
    __device__ int bin(float logit) const {
        return min(kSampleThreads - 1, static_cast<int>((best_logit - logit) * bins_per_logit));
    }
    __device__ std::uint64_t mass(float logit) const { return mass_of(weight(logit)); }
};

__device__ void load_logits(const SampleParams& p, const SampleRow& rules, const float* row,
                            int first_id, float* logits) {
    const int count = p.ids * kSampleThreads;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
        logits[i] = first_id + i < p.vocabulary ? __ldcg(row + first_id + i) : kNotALogit;
    __syncthreads();
    for (int e = static_cast<int>(threadIdx.x); e < rules.edit_count; e += kSampleThreads) {
        const LogitEdit edit = p.edits[rules.edit_begin + e];
        const int at = edit.token - first_id;
        if (at < 0 || at >= count || edit.token >= p.vocabulary) continue;
        float logit = logits[at] + edit.bias;
        if (edit.occurred > 0)
            logit =
                logit > 0.0F ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
        if (edit.generated > 0)
            logit -= rules.frequency_penalty * static_cast<float>(edit.generated) +
                     rules.presence_penalty;
        logits[at] = logit;
    }
    __syncthreads();
}

/// Appends this block's candidates of bins [first, last] to the list in block 0.
__device__ void gather(const SampleShared& s, const RowState& state, const SampleParams& p,
                       int first_id, int first, int last) {
    const int begin = static_cast<int>(threadIdx.x) * p.ids;
    std::uint32_t count = 0;
    for (int i = begin; i < begin + p.ids; ++i) {
        const float logit = s.logits[i];
        if (!is_logit(logit)) continue;
        const int bin = state.bin(logit);
        if (bin >= first && bin <= last) ++count;
    }
    const std::uint32_t until = block_scan(count, s.scan32);
    if (threadIdx.x == kSampleThreads - 1) *s.list_base = add_in_block(s.list_count, 0, until);
    __syncthreads();
    std::uint32_t at = *s.list_base + until - count;
    if (count == 0) return;
    for (int i = begin; i < begin + p.ids; ++i) {
        const float logit = s.logits[i];
        if (!is_logit(logit)) continue;
        const int bin = state.bin(logit);
        if (bin >= first && bin <= last)
            store_in_block(s.list + at++, 0, entry_of(logit, first_id + i));
    }
}

/// Among the sorted list: how many of the first `count` weigh `need` together; at least one.
__device__ int reach_mass(const SampleShared& s, const RowState& state, int count,
                          std::uint64_t need) {
    std::uint64_t before = 0;
    for (int begin = 0; begin < count; begin += kSampleThreads) {
        const int i = begin + static_cast<int>(threadIdx.x);
        const std::uint64_t own = i < count ? state.mass(logit_of(s.list[i])) : 0;
        const std::uint64_t until = before + block_scan(own, s.scan64);
        if (threadIdx.x == 0) *s.found = -1;
        __syncthreads();
        if (i < count && until >= need && until - own < need) *s.found = i;
        if (threadIdx.x == kSampleThreads - 1) *s.total = until;
        __syncthreads();
        const int found = *s.found;
        before = *s.total;
        __syncthreads();
        if (found >= 0) return found + 1;
    }
    return count;
}

/// All of the draw in one block: the list holds every candidate. `need`: what top_p alone keeps at
/// least of the whole row; 0 = to be found behind top_k.
__device__ int draw_from_list(const SampleShared& s, const RowState& state, int count,
                              std::uint64_t need) {
    const SampleRow& rules = *state.rules;
    sort_list(s.list, count);
    if (rules.top_k > 0) count = min(count, rules.top_k);
    if (rules.top_p < 1.0F) {
        if (need == 0) {
            std::uint64_t whole = 0;
            for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
                whole += state.mass(logit_of(s.list[i]));
            need = share_of(block_total(whole, s.scan64), rules.top_p);
        }
        count = reach_mass(s, state, count, need);
    }
    // The order of weights is that of the list, so min_p cuts it too.
    std::uint32_t heavy = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
        heavy += state.weight(logit_of(s.list[i])) >= rules.min_p ? 1 : 0;
    count = max(1, static_cast<int>(block_total(heavy, s.scan32)));
    // From here on in rising order of ids.
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
        s.list[i] = s.list[i] << 32 | s.list[i] >> 32;
    __syncthreads();
    sort_list(s.list, count);
    std::uint64_t whole = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
        whole += state.mass(logit_of(s.list[i] << 32 | s.list[i] >> 32));
    whole = block_total(whole, s.scan64);
    const std::uint64_t target = share_of_draw(whole, rules.uniform);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads)
        s.list[i] = s.list[i] << 32 | s.list[i] >> 32;
    __syncthreads();
    const int place = reach_mass(s, state, count, target + 1) - 1;
    return static_cast<int>(s.list[place] & 0xFFFFFFFFU);
}

/// Draws from every id whose entry is not above `border`, all blocks together.
__device__ void draw_from_all(const SampleShared& s, const RowState& state, const SampleParams& p,
                              int row, int rank, int first_id, std::uint64_t border) {
    const SampleRow& rules = *state.rules;
    const int begin = static_cast<int>(threadIdx.x) * p.ids;
    const auto mass_at = [&](int i) -> std::uint64_t {
        const float logit = s.logits[i];
        if (!is_logit(logit) || entry_of(logit, first_id + i) > border) return 0;
        const float weight = state.weight(logit);
        return weight >= rules.min_p ? mass_of(weight) : 0;
    };
    std::uint64_t own = 0;
    for (int i = begin; i < begin + p.ids; ++i)
        own += mass_at(i);
    const std::uint64_t until = block_scan(own, s.scan64);
    if (threadIdx.x == kSampleThreads - 1)
        for (int block = 0; block < kSampleBlocks; ++block)
            store_in_block(s.block_mass + rank, block, until);
    cluster_arrive();
    cluster_wait();
    std::uint64_t before = 0;
    std::uint64_t whole = 0;
    for (int block = 0; block < kSampleBlocks; ++block) {
        if (block < rank) before += s.block_mass[block];
        whole += s.block_mass[block];
    }
    const std::uint64_t target = share_of_draw(whole, rules.uniform);
    std::uint64_t sum = before + until - own;
    if (own == 0 || target < sum || target >= sum + own) return;
    for (int i = begin; i < begin + p.ids; ++i) {
        sum += mass_at(i);
        if (sum <= target) continue;
        p.tokens[row] = first_id + i;
        p.statuses[row] = static_cast<std::int32_t>(SampleStatus::kDrawn);
        return;
    }
}

__device__ void finish(const SampleParams& p, int row, int token, SampleStatus status) {
    p.tokens[row] = token;
    p.statuses[row] = static_cast<std::int32_t>(status);
}

__device__ void sample_row(const SampleParams& p) {
    const int rank = cluster_rank();
    const int row = static_cast<int>(blockIdx.x) / kSampleBlocks;
    const SampleShared s;
    const int first_id = rank * p.ids * kSampleThreads;
    s.clear_bins();
    cluster_arrive();  // every block is there, and its bins are clear, before anyone writes to it
    let_next_kernel_start();
    wait_for_previous_kernel();
    const SampleRow& rules = p.rows[row];
    load_logits(p, rules, p.logits + row * p.logits_stride, first_id, s.logits);

    Extremes own;
    for (int i = 0; i < p.ids; ++i)
        own.see(s.logits[static_cast<int>(threadIdx.x) * p.ids + i],
                first_id + static_cast<int>(threadIdx.x) * p.ids + i);
    own = block_extremes(own, s);
    cluster_wait();
    if (threadIdx.x < kSampleBlocks) {
        store_in_block(s.best + rank, static_cast<int>(threadIdx.x), own.best);
        store_in_block(s.worst + rank, static_cast<int>(threadIdx.x), own.worst);
    }
    cluster_arrive();
    cluster_wait();
    std::uint64_t best = kNoEntry;
    float worst = INFINITY;
    for (int block = 0; block < kSampleBlocks; ++block) {
        best = min(best, s.best[block]);
        worst = fminf(worst, s.worst[block]);
    }
    const bool answers = rank == 0 && threadIdx.x == 0;
    if (best == kNoEntry) {
        if (answers) finish(p, row, 0, SampleStatus::kNoLogit);
        return;
    }
    if (rules.inverse_temperature == 0.0F) {
        if (answers) finish(p, row, static_cast<int>(best & 0xFFFFFFFFU), SampleStatus::kDrawn);
        return;
    }
    RowState state{.rules = &rules, .best_logit = logit_of(best), .bins_per_logit = 0.0F};
    const bool has_top_k = rules.top_k > 0 && rules.top_k < p.vocabulary;
    const bool has_top_p = rules.top_p < 1.0F;
    if (!has_top_k && !has_top_p) return draw_from_all(s, state, p, row, rank, first_id, kNoBorder);

    const float range = state.best_logit - worst;
    if (range > 0.0F) state.bins_per_logit = static_cast<float>(kSampleThreads) / range;
    for (int i = 0; i < p.ids; ++i) {
        const float logit = s.logits[static_cast<int>(threadIdx.x) * p.ids + i];
        if (!is_logit(logit)) continue;
        const int bin = state.bin(logit);
        atomicAdd(s.bin_counts + bin, 1U);
        if (!has_top_k) add_mass(s.bin_masses + bin, state.mass(logit));
    }
    cluster_arrive();
    cluster_wait();
    const BinSums bins = sum_bins(s, !has_top_k);
    const std::uint64_t need = share_of(bins.whole_mass, rules.top_p);
    const int last = has_top_k ? find_bin(s, bins.counts >= static_cast<std::uint32_t>(rules.top_k))
                               : find_bin(s, bins.masses >= need);
    const BinAt at = bin_at(s, last);
    const bool takes_all = at.counts <= kSampleListMax;
    // With both filters a border inside a bin does not know its mass yet.
    if (!takes_all && ((has_top_k && has_top_p) || at.counts - at.counts_before > kSampleListMax)) {
        if (answers) finish(p, row, 0, SampleStatus::kHost);
        cluster_arrive();  // the others still read this block's bins
        cluster_wait();
        return;
    }
    gather(s, state, p, first_id, takes_all ? 0 : last, last);
    cluster_arrive();
    cluster_wait();
    if (takes_all) {
        if (rank != 0) return;
        const int token =
            draw_from_list(s, state, static_cast<int>(at.counts), has_top_k ? 0 : need);
        if (threadIdx.x == 0) finish(p, row, token, SampleStatus::kDrawn);
        return;
    }
    if (rank == 0) {
        const int count = static_cast<int>(at.counts - at.counts_before);
        sort_list(s.list, count);
        const int kept = has_top_k ? min(count, rules.top_k - static_cast<int>(at.counts_before))
                                   : reach_mass(s, state, count, need - at.masses_before);
        if (threadIdx.x < kSampleBlocks)
            store_in_block(s.border, static_cast<int>(threadIdx.x), s.list[kept - 1]);
    }
    cluster_arrive();
    cluster_wait();
    draw_from_all(s, state, p, row, rank, first_id, *s.border);
}

}  // namespace

extern "C" __global__ void __cluster_dims__(kSampleBlocks, 1, 1)
    __launch_bounds__(kSampleThreads, 1) sample_rows(const __grid_constant__ SampleParams p) {
    sample_row(p);
}

}  // namespace kernels::cuda
