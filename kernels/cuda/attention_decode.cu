// attention_decode: attention of sequences with up to 16 rows, keys and values read once.
//
// Math      as attention.cu; scores and outputs by tensor cores from binary16 operands, sums in f32
// Shapes    AttentionDecodeParams; head_dim 64, 128, 256; up to 16 query heads a KV head; pages of
//           16, 32 or 64 tokens (any power of two from 16 to 128); any kv_len
// Moves     kv_len * 2 D * 2 bytes per (sequence, KV head) for every 32 columns (query heads x
// rows) Floor     bandwidth: 27B, 16K tokens, one sequence: 67 MB, 16 us Achieved kernels/README.md
// Plan      one block of 8 warps a multiprocessor walks over a run of units of 128 tokens
//           (attention_cut.h) that it computes from the step, so one launch serves every step. Keys
//           and values stream through a ring of shared memory by cp.async, several halves of a unit
//           (its keys, its values) ahead. Scores: tokens are the mma rows, a warp takes 16 of them;
//           outputs: dimensions are the rows, a warp takes its share of them for all tokens.
//           Maximum and sum of a unit go over the warps once. What blocks share is put together by
//           the last warp of its kind to arrive, in order.
// New rows  the block that has their unit norms, rotates and writes their keys and values, and uses
//           its own copies
// Overlap   pages written in earlier steps are fetched before the wait for the kernel in front: a
//           copy to the device lies between steps, which no kernel overtakes
// Source    FlashDecoding (Dao et al. 2023) for the split; layouts: PTX ISA; checked by kernel-gate
#include "kernels/cuda/attention_head.cuh"
#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/attention_walk.cuh"

namespace kernels::cuda {
namespace {

constexpr int kTilesMax = 4;  // of 8 columns

/// Shared memory, in bytes: ring of halves, queries, probabilities, maxima, sums, a head a warp.
template <int kDim>
struct Layout {
    static constexpr int kRowBytes = 2 * kDim;
    static constexpr int kChunks = kRowBytes / 16;  // of 16 bytes
    static constexpr int kHalfBytes = kAttentionUnitTokens * kRowBytes;
    static constexpr int kRing = attention_ring_halves(kDim);
    static constexpr int kQueries = kRing * kHalfBytes;
    static constexpr int kProbabilities = kQueries + 8 * kTilesMax * kRowBytes;
    static constexpr int kMaxima = kProbabilities + kTilesMax * kAttentionUnitTokens * 16;
    static constexpr int kSums = kMaxima + kAttentionWarps * 8 * kTilesMax * 4;
    static constexpr int kHeads = kSums + kAttentionWarps * 8 * kTilesMax * 4;
    static_assert(kHeads + kAttentionWarps * kDim * 4 == attention_shared_bytes(kDim));
    static constexpr int kRowTiles = kDim == 256 ? 2 : 1;
    static constexpr int kOutputWarps = kDim / (16 * kRowTiles);  // warps that own dimensions

    /// Chunk c of row r: eight rows of a column of chunks lie in different banks.
    static __device__ std::uint32_t at(int row, int chunk) {
        return static_cast<std::uint32_t>(row * kRowBytes + ((chunk ^ (row & 7)) << 4));
    }
};

template <int kDim>
class Decode {
public:
    using L = Layout<kDim>;
    using Tile = AttentionTile<L::kRowTiles>;

    __device__ explicit Decode(const AttentionDecodeParams& params)
        : p_(params),
          base_(shared_address(dynamic_shared())),
          run_(find_run(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x))),
          ahead_(run_.start) {}

    __device__ void run() {
        for (int i = 0; i < L::kRing - 1; ++i)
            fetch_next();
        wait_for_previous_kernel();
        AttentionPlace at = run_.start;
        bool is_new = true;  // sequence, head or chunk
        Tile group[kTilesMax];
        while (run_.holds(at)) {
            const int columns = min(kAttentionColumnsMax,
                                    at.rows * p_.heads_of_group - kAttentionColumnsMax * at.chunk);
            const int tiles = attention_column_tiles(columns);
            wait_copies<L::kRing - 2>();
            prepare(at, is_new, columns, 8 * tiles);
            if (tiles == 1) {
                unit<1>(at, columns, group);
            } else if (tiles == 2) {
                unit<2>(at, columns, group);
            } else {
                unit<4>(at, columns, group);
            }
            const int before = at.first_unit;
            at.advance(p_, run_.seqs);
            is_new = at.first_unit != before;
        }
        wait_copies<0>();
    }

private:
    // ---- keys and values on their way

    /// Fetches the next half of the run, if there is one, into the ring.
    __device__ void fetch_next() {
        if (run_.holds(ahead_)) fetch(ahead_, fetches_values_, base_ + fetch_slot_ * L::kHalfBytes);
        commit_copies();
        fetch_slot_ = fetch_slot_ + 1 == L::kRing ? 0 : fetch_slot_ + 1;
        if (fetches_values_ && run_.holds(ahead_)) ahead_.advance(p_, run_.seqs);
        fetches_values_ = !fetches_values_;
    }

    /// Tokens of earlier steps from their pages; zeros behind the last token, since a value that is
    /// no number would survive a weight of zero. The step's own rows are left to `prepare`.
    __device__ void fetch(const AttentionPlace& at, bool is_value, std::uint32_t to) {
        const AttentionParams& a = p_.attention;
        constexpr int kGranules = kAttentionUnitTokens / 16;  // no page is smaller
        constexpr int kCopies = kAttentionUnitTokens * L::kChunks / kAttentionThreads;
        constexpr int kStep = kAttentionThreads / L::kChunks;  // rows between a thread's copies
        const int first = at.first_token();
        const std::int32_t* table =
            a.step.block_table + static_cast<std::int64_t>(at.seq) * *a.step.table_stride;
        const int granule = first + 16 * (lane_index() % kGranules);
        const int page = granule < at.kv_before ? table[granule >> p_.token_shift] : 0;
        const auto* pages = static_cast<const std::uint16_t*>(is_value ? a.v_pages : a.k_pages);
        const int tid = static_cast<int>(threadIdx.x);
        const int chunk = tid % L::kChunks;
        const int mask = (1 << p_.token_shift) - 1;
#pragma unroll 4  // more would hold more addresses than there are registers
        for (int i = 0; i < kCopies; ++i) {
            const int row = tid / L::kChunks + i * kStep;
            const int token = first + row;
            const std::int64_t block = __shfl_sync(~0U, page, row / 16);
            const std::int64_t offset =
                block * a.page_stride +
                ((static_cast<std::int64_t>(at.head) << p_.token_shift) + (token & mask)) * kDim;
            if (token < at.kv_before)
                copy_async(to + L::at(row, chunk), pages + offset + 8 * chunk);
            else if (token >= at.kv_before + at.rows)
                store_words(to + L::at(row, chunk), 0, 0, 0, 0);
        }
    }

    // ---- queries and new tokens

    /// A head in f32 to a row of binary16 in shared memory and, when there is one, of a page.
    __device__ void put(const float* head, std::uint32_t to, int row, std::uint16_t* page) {
        for (int c = lane_index(); c < L::kChunks; c += kWarpLanes) {
            std::uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                w[i] =
                    head == nullptr ? 0 : pack_halves(head[8 * c + 2 * i], head[8 * c + 2 * i + 1]);
            store_words(to + L::at(row, c), w[0], w[1], w[2], w[3]);
            if (page != nullptr)
                *reinterpret_cast<uint4*>(page + 8 * c) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }

    /// The rows of the step that lie in this unit, and the queries when they are others than
    /// before. A warp takes every eighth row.
    __device__ void prepare(const AttentionPlace& at, bool is_new, int columns,
                            int columns_padded) {
        const AttentionParams& a = p_.attention;
        float* head = reinterpret_cast<float*>(dynamic_shared() + L::kHeads) + warp_index() * kDim;
        const int first_token = at.first_token();
        const int first = max(0, first_token - at.kv_before);
        const int last = min(at.rows, first_token + kAttentionUnitTokens - at.kv_before);
        const int fresh = max(0, last - first);
        const int queries = is_new ? columns_padded : 0;
        for (int task = warp_index(); task < queries + 2 * fresh; task += kAttentionWarps) {
            __syncwarp();  // the head before is read
            if (task < queries) {
                if (task < columns) {
                    const int m = at.first_row + row_of(at, task);
                    prepare_head(a, query_of(at, task), a.q_norm, m, head);
                }
                put(task < columns ? head : nullptr, base_ + L::kQueries, task, nullptr);
                continue;
            }
            const int nth = task - queries;
            const bool is_value = nth >= fresh;
            const int r = first + (is_value ? nth - fresh : nth);
            const int m = at.first_row + r;
            const int token = at.kv_before + r;
            const std::int64_t column = static_cast<std::int64_t>(at.head) * kDim;
            if (is_value) {
                for (int i = lane_index(); i < kDim; i += kWarpLanes)
                    head[i] = a.v[m * a.v_stride + column + i];
                __syncwarp();
            } else {
                prepare_head(a, a.k + m * a.k_stride + column, a.k_norm, m, head);
            }
            std::uint16_t* page = nullptr;
            if (at.chunk == 0) {  // the other chunks have the same
                const std::int64_t block =
                    a.step.block_table[static_cast<std::int64_t>(at.seq) * *a.step.table_stride +
                                       (token >> p_.token_shift)];
                page = static_cast<std::uint16_t*>(is_value ? a.v_pages : a.k_pages) +
                       block * a.page_stride +
                       ((static_cast<std::int64_t>(at.head) << p_.token_shift) +
                        (token & ((1 << p_.token_shift) - 1))) *
                           kDim;
            }
            const int slot = is_value ? next_slot(slot_) : slot_;
            put(head, base_ + slot * L::kHalfBytes, token - first_token, page);
        }
    }
    static __device__ int next_slot(int slot) {
        return slot + 1 == L::kRing ? 0 : slot + 1;
    }

    /// Columns: query heads of a row side by side.
    __device__ int row_of(const AttentionPlace& at, int column) const {
        return (kAttentionColumnsMax * at.chunk + column) / p_.heads_of_group;
    }
    __device__ int head_of(const AttentionPlace& at, int column) const {
        return at.head * p_.heads_of_group +
               (kAttentionColumnsMax * at.chunk + column) % p_.heads_of_group;
    }
    __device__ const float* query_of(const AttentionPlace& at, int column) const {
        const AttentionParams& a = p_.attention;
        return a.q + (at.first_row + row_of(at, column)) * a.q_stride +
               static_cast<std::int64_t>(head_of(at, column)) * kDim * (a.has_gate ? 2 : 1);
    }

    // ---- a unit

    template <int kTiles>
    __device__ void unit(const AttentionPlace& at, int columns, Tile* group) {
        Tile own[kTiles];
        __syncthreads();  // keys, new rows and queries lie there; the values before are read
        fetch_next();
        float scores[kTiles][4];
        multiply_keys(at, scores);
        mask(at, scores);
        const std::uint32_t maxima = base_ + L::kMaxima + 8 * (lane_index() % 4);
        const std::uint32_t sums = base_ + L::kSums + 8 * (lane_index() % 4);
        const std::uint32_t mine = warp_index() * 32 * kTilesMax;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
            const float m0 = max_over_rows(fmaxf(scores[n][0], scores[n][2]));
            const float m1 = max_over_rows(fmaxf(scores[n][1], scores[n][3]));
            if (lane_index() < 4) store_float_pair(maxima + mine + 32 * n, m0, m1);
        }
        __syncthreads();  // maxima of all warps
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
            float2 m = load_float_pair(maxima + 32 * n);
#pragma unroll
            for (int w = 1; w < kAttentionWarps; ++w) {
                const float2 other = load_float_pair(maxima + 32 * kTilesMax * w + 32 * n);
                m.x = fmaxf(m.x, other.x);
                m.y = fmaxf(m.y, other.y);
            }
            own[n].largest[0] = m.x;
            own[n].largest[1] = m.y;
            const float base0 = m.x == -INFINITY ? 0.0F : m.x;  // a row before this unit's tokens
            const float base1 = m.y == -INFINITY ? 0.0F : m.y;
            const float p0 = exp2_of(scores[n][0] - base0);
            const float p1 = exp2_of(scores[n][1] - base1);
            const float p2 = exp2_of(scores[n][2] - base0);
            const float p3 = exp2_of(scores[n][3] - base1);
            // [tile][token] of 8 columns
            const std::uint32_t to = base_ + L::kProbabilities + n * kAttentionUnitTokens * 16 +
                                     (16 * warp_index() + lane_index() / 4) * 16 +
                                     4 * (lane_index() % 4);
            store_word(to, pack_halves(p0, p1));
            store_word(to + 8 * 16, pack_halves(p2, p3));
            const float s0 = sum_over_rows(p0 + p2);
            const float s1 = sum_over_rows(p1 + p3);
            if (lane_index() < 4) store_float_pair(sums + mine + 32 * n, s0, s1);
        }
        wait_copies<L::kRing - 2>();
        __syncthreads();  // probabilities and sums of all warps, values; the keys are read
        fetch_next();
        slot_ = next_slot(slot_);
        if (warp_index() < L::kOutputWarps) {
            multiply_values(own);
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                float2 s = load_float_pair(sums + 32 * n);
#pragma unroll
                for (int w = 1; w < kAttentionWarps; ++w) {
                    const float2 other = load_float_pair(sums + 32 * kTilesMax * w + 32 * n);
                    s.x += other.x;
                    s.y += other.y;
                }
                own[n].sum[0] = s.x;
                own[n].sum[1] = s.y;
            }
            finish<kTiles>(at, columns, own, group);
        }
        slot_ = next_slot(slot_);
    }

    /// Two chains of sums, even and odd steps, so that one hides the other's latency.
    template <int kTiles>
    __device__ void multiply_keys(const AttentionPlace&, float (&scores)[kTiles][4]) {
        const int lane = lane_index();
        const std::uint32_t keys = base_ + slot_ * L::kHalfBytes;
        const int key_row = 16 * warp_index() + lane % 16;
        float odd[kTiles][4];
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                scores[n][i] = 0.0F;
                odd[n][i] = 0.0F;
            }
#pragma unroll 4
        for (int c = 0; c < L::kChunks; c += 4) {
            std::uint32_t a[4], b[4];
            load_matrices(a, keys + L::at(key_row, c + lane / 16));
            load_matrices(b, keys + L::at(key_row, c + 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                std::uint32_t q[4];
                load_matrices(q, base_ + L::kQueries + L::at(8 * n + lane % 8, c + lane / 8));
                mma(scores[n], a, q[0], q[1]);
                mma(odd[n], b, q[2], q[3]);
            }
        }
        // exp(s / sqrt(D)) as a power of two
        const float scale = 1.44269504F / sqrtf(static_cast<float>(kDim));
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores[n][i] = (scores[n][i] + odd[n][i]) * scale;
    }

    /// A row sees the tokens up to its own.
    template <int kTiles>
    __device__ void mask(const AttentionPlace& at, float (&scores)[kTiles][4]) {
        const int first = at.first_token();
        if (first + kAttentionUnitTokens <= at.kv_before + 1) return;
        const int token = first + 16 * warp_index() + lane_index() / 4;
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = 8 * n + 2 * (lane_index() % 4) + i % 2;
                // Padded columns see the last row's tokens; nothing of them is kept.
                const int last = at.kv_before + min(row_of(at, column), at.rows - 1);
                if (token + 8 * (i / 2) > last) scores[n][i] = -INFINITY;
            }
    }

    template <int kTiles>
    __device__ void multiply_values(Tile (&own)[kTiles]) {
        const int lane = lane_index();
        const std::uint32_t values = base_ + slot_ * L::kHalfBytes;
        const std::uint32_t weights = base_ + L::kProbabilities + 16 * lane;
#pragma unroll
        for (int i = 0; i < L::kRowTiles; ++i)
#pragma unroll
            for (int n = 0; n < kTiles; ++n)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    own[n].o[i][j] = 0.0F;
#pragma unroll 2
        for (int step = 0; step < kAttentionUnitTokens / 32; ++step) {  // of 32 tokens
            std::uint32_t w[kTiles][4];
#pragma unroll
            for (int n = 0; n < kTiles; ++n)
                load_transposed(w[n], weights + n * kAttentionUnitTokens * 16 + step * 32 * 16);
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < L::kRowTiles; ++i) {
                    std::uint32_t a[4];
                    const int row = 32 * step + 16 * half + lane % 8 + 8 * (lane / 16);
                    const int chunk = 2 * (warp_index() * L::kRowTiles + i) + lane / 8 % 2;
                    load_transposed(a, values + L::at(row, chunk));
#pragma unroll
                    for (int n = 0; n < kTiles; ++n)
                        mma(own[n].o[i], a, w[n][2 * half], w[n][2 * half + 1]);
                }
        }
    }

    // ---- what becomes of a unit

    __device__ float* unit_slot(int block, int slot) const {
        return p_.unit_parts + (std::int64_t{block} * kAttentionUnitSlots + slot) * p_.slot_floats;
    }
    __device__ std::uint32_t* arrivals_of(bool is_sequence, int index) const {
        return p_.arrivals +
               ((is_sequence ? std::int64_t{p_.group_slots} : 0) + index) * kAttentionWarps +
               warp_index();
    }
    /// True for the last of `count` arrivals, which finds the counter as it was before all.
    __device__ bool is_last_of(int count, std::uint32_t* arrivals) const {
        if (arrive(arrivals) != static_cast<unsigned>(count - 1)) return false;
        if (lane_index() == 0) *arrivals = 0;  // for the next launch
        return true;
    }

    template <int kTiles>
    static __device__ void store(float* slot, const Tile* state) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
            state[n].store(slot, n, kTiles);
    }

    /// `kept` is the fold of the group's units so far, where this block has had them all.
    template <int kTiles>
    __device__ void finish(const AttentionPlace& at, int columns, const Tile (&own)[kTiles],
                           Tile* kept) {
        const int block = static_cast<int>(blockIdx.x);
        const int group = at.local_unit() / kAttentionGroupUnits;
        const int group_begin = at.first_unit + group * kAttentionGroupUnits;
        const int group_end = min(group_begin + kAttentionGroupUnits, at.first_unit + at.units);
        const bool ends_group = at.unit + 1 == group_end;
        const bool ends_run = !run_.has_whole && at.unit + 1 == run_.end;
        bool has_all = false;
        if (group_begin >= run_.begin) {
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                if (at.unit == group_begin) kept[n].clear();
                kept[n].fold(own[n]);
            }
            has_all = ends_group;
            if (!has_all) {
                if (!ends_run) return;
                store<kTiles>(unit_slot(block, kAttentionUnitSlots - 1), kept);
            }
        } else {
            store<kTiles>(unit_slot(block, at.unit - run_.begin), own);
            if (!ends_group && !ends_run) return;
        }
        if (!has_all) {
            const int first = run_.cut.block_of(group_begin);
            const int last = run_.cut.block_of(group_end - 1);
            if (!is_last_of(last - first + 1, arrivals_of(false, at.first_group + group))) return;
            const int rest = run_.cut.begin(first + 1);  // units that stand alone, behind a fold
            fold_slots<kTiles>(kept, 1 + group_end - rest, [&](int i) {
                if (i == 0) return unit_slot(first, kAttentionUnitSlots - 1);
                const int owner = run_.cut.block_of(rest + i - 1);
                return unit_slot(owner, rest + i - 1 - run_.cut.begin(owner));
            });
        }
        if (finish_group<kTiles>(at, group, kept)) store_rows<kTiles>(at, columns, kept);
    }

    /// True when `state` has become the result of the whole sequence.
    template <int kTiles>
    __device__ bool finish_group(const AttentionPlace& at, int group, Tile* state) {
        const int groups = at.groups();
        if (groups == 1) return true;
        if (run_.has_whole) {  // nobody else has a part of it
            float* slot = unit_slot(static_cast<int>(blockIdx.x), 0);
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                Tile all;
                all.clear();
                if (group > 0) all.load(slot, n, kTiles);
                all.fold(state[n]);
                state[n] = all;
            }
            __syncwarp();  // statistics are read before a neighbour writes them
            store<kTiles>(slot, state);
            __syncwarp();  // and written before a neighbour reads them
            return group + 1 == groups;
        }
        const auto slot_of = [&](int g) {
            return p_.group_parts + std::int64_t{at.first_group + g} * p_.slot_floats;
        };
        store<kTiles>(slot_of(group), state);
        if (!is_last_of(groups, arrivals_of(true, at.first_group))) return false;
        fold_slots<kTiles>(state, groups, slot_of);
        return true;
    }

    template <int kTiles>
    __device__ void store_rows(const AttentionPlace& at, int columns, const Tile* state) {
        const AttentionParams& a = p_.attention;
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int column = 8 * n + 2 * (lane_index() % 4) + j;
                if (column >= columns) continue;
                const float share = 1.0F / state[n].sum[j];
                const float* gate = query_of(at, column) + kDim;
                float* y = a.y + (at.first_row + row_of(at, column)) * a.y_stride +
                           static_cast<std::int64_t>(head_of(at, column)) * kDim;
#pragma unroll
                for (int i = 0; i < L::kRowTiles; ++i)
#pragma unroll
                    for (int k = 0; k < 2; ++k) {
                        const int d =
                            16 * (warp_index() * L::kRowTiles + i) + 8 * k + lane_index() / 4;
                        const float value = state[n].o[i][j + 2 * k] * share;
                        y[d] = a.has_gate ? value * sigmoid(gate[d]) : value;
                    }
            }
    }

    const AttentionDecodeParams& p_;
    const std::uint32_t base_;
    const AttentionRun run_;
    AttentionPlace ahead_;
    int fetch_slot_ = 0;
    bool fetches_values_ = false;
    int slot_ = 0;  // of the half in use
};

}  // namespace

// Block: 8 warps. Grid: multiprocessors.
extern "C" __global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_decode_64(const __grid_constant__ AttentionDecodeParams p) {
    let_next_kernel_start();
    Decode<64>(p).run();
}
extern "C" __global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_decode_128(const __grid_constant__ AttentionDecodeParams p) {
    let_next_kernel_start();
    Decode<128>(p).run();
}
extern "C" __global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_decode_256(const __grid_constant__ AttentionDecodeParams p) {
    let_next_kernel_start();
    Decode<256>(p).run();
}

}  // namespace kernels::cuda
