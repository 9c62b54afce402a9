// attention_decode: attention of sequences with up to 16 rows, keys and values read once.
//
// Math      as attention.cu; scores and outputs by tensor cores from binary16 operands, sums in f32
// Shapes    AttentionDecodeParams; head_dim 64, 128, 256; up to 16 query heads a KV head; pages of
//           16, 32 or 64 tokens (any power of two from 16 to 128); any kv_len
// Moves     kv_len * 2 D * 2 bytes per (sequence, KV head), once for 32 columns (query heads x
// rows) Floor     bandwidth: 27B, 16K tokens, one sequence: 67 MB, 16 us. Achieved:
// kernels/README.md Plan      one block of 8 warps a multiprocessor walks over a run of units of
// 128 tokens
//           (attention_cut.h) that it computes from the step, so one launch serves every step. Keys
//           and values stream through a ring of shared memory, a bulk copy a token. Scores: tokens
//           are the mma rows, 16 a warp; outputs: dimensions are the rows, a share a warp. What
//           blocks share is put together by the last warp of its kind to arrive, in order.
// New rows  the block that has their unit norms, rotates and writes their keys and values, and uses
//           its own copies
// Overlap   pages written in earlier steps are fetched before the wait for the kernel in front: the
//           descriptor lies between steps, which no kernel overtakes
// Source    FlashDecoding (Dao et al. 2023) for the split; layouts: PTX ISA; checked by kernel-gate
#include "kernels/cuda/attention_head.cuh"
#include "kernels/cuda/attention_layout.cuh"
#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/barrier.cuh"

namespace kernels::cuda {
namespace {

/// kTiles: column tiles of the step's widest sequence. Narrower ones run with columns of zeros: a
/// column's bits do not depend on the others.
template <int kDim, int kTiles>
class Decode {
public:
    using L = Layout<kDim>;
    using Tile = AttentionTile<L::kRowTiles>;
    static constexpr int kColumns = 8 * kTiles;
    static constexpr bool kKeepsPart = kTiles < 4;  // else a quad's fold lies in its slot meanwhile

    __device__ explicit Decode(const AttentionDecodeParams& params)
        : p_(params),
          base_(shared_address(dynamic_shared())),
          shared_(*reinterpret_cast<SharedRun*>(dynamic_shared() + L::kRun)),
          run_(shared_.run) {}

    __device__ void run() {
        const AttentionRun found =
            find_run<kTiles>(p_, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
        if (threadIdx.x == 0) {
            for (int i = 0; i < L::kRing; ++i)
                barrier_init(full(i), kAttentionWarps);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            shared_.run = found;
        }
        __syncthreads();  // barriers and the run are there
        Ahead ahead{.at = found.start};
        for (int i = 0; i < L::kRing; ++i)
            fetch_and_advance(ahead);
        if (threadIdx.x == 0) shared_.ahead[0] = ahead;
        AttentionPlace at = found.start;
        prepare_first(at);
        Tile kept[kKeepsPart ? kTiles : 1];
        for (bool is_first = true; run_.holds(at); is_first = false) {
            unit(at, is_first, columns_of(at), kept);
            const int before = at.first_item;
            at.advance(p_, run_.seqs, run_.grain);
            prepare_next(at, at.first_item != before);
        }
    }

private:
    __device__ std::uint32_t full(int slot) const { return base_ + L::kFull + 8 * slot; }

    // ---- keys and values on their way

    /// Fetches the next half of the run, if there is one, into the ring.
    __device__ void fetch_next() {
        Ahead ahead = shared_.ahead[fetches_ % 2];
        fetch_and_advance(ahead);
        ++fetches_;
        if (threadIdx.x == 0) shared_.ahead[fetches_ % 2] = ahead;
    }
    __device__ void fetch_and_advance(Ahead& ahead) {
        if (!run_.holds(ahead.at)) return;
        fetch(ahead.at, ahead.is_value, ahead.slot);
        ahead.advance(p_, run_, L::kRing);
    }

    /// Tokens of earlier steps from their pages, 16 a warp; zeros behind the last token, since a
    /// value that is no number would survive a weight of zero. The step's own rows are left to
    /// `prepare`.
    __device__ void fetch(const AttentionPlace& at, bool is_value, int slot) {
        const AttentionParams& a = p_.attention;
        constexpr int kRows = kAttentionUnitTokens / kAttentionWarps;
        static_assert(kRows == 16, "no page is smaller");
        const int row = kRows * warp_index();
        const int first = at.first_token() + row;
        const int known = min(max(at.kv_before - first, 0), kRows);
        const std::uint32_t to = base_ + slot * L::kHalfBytes + L::at(row, 0);
        if (lane_index() == 0) barrier_expect(full(slot), known * L::kDataBytes);
        __syncwarp();  // expected before it arrives
        if (lane_index() < known) {
            const std::int64_t block =
                a.step.block_table[static_cast<std::int64_t>(at.seq) * *a.step.table_stride +
                                   (first >> p_.token_shift)];
            const int token = (first & ((1 << p_.token_shift) - 1)) + lane_index();
            const std::int64_t offset =
                block * a.page_stride +
                ((static_cast<std::int64_t>(at.head) << p_.token_shift) + token) * kDim;
            const auto* pages = static_cast<const std::uint16_t*>(is_value ? a.v_pages : a.k_pages);
            bulk_copy(to + L::at(lane_index(), 0), pages + offset, L::kDataBytes, full(slot));
        }
        const int end = min(max(at.kv_before + at.rows - first, 0), kRows);
        if (end == kRows) return;
        for (int i = end * L::kChunks + lane_index(); i < kRows * L::kChunks; i += kWarpLanes)
            store_words(to + L::at(i / L::kChunks, i % L::kChunks), 0, 0, 0, 0);
        fence_before_copies();
    }
    /// What this thread has stored lies before copies that come to the same place later.
    static __device__ void fence_before_copies() {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    static __device__ int next_slot(int slot) { return slot + 1 == L::kRing ? 0 : slot + 1; }
    /// Waits for the half in use.
    __device__ void wait_for_half() { barrier_wait(full(slot_), parity_); }
    __device__ void to_next_half() {
        slot_ = next_slot(slot_);
        if (slot_ == 0) parity_ ^= 1;
    }

    // ---- queries and new tokens

    __device__ int columns_of(const AttentionPlace& at) const {
        return min(kAttentionColumnsMax,
                   at.rows * p_.heads_of_group - kAttentionColumnsMax * at.chunk);
    }
    __device__ HeadTasks tasks_of(const AttentionPlace& at, bool is_new) const {
        HeadTasks tasks;
        const int columns = columns_of(at);
        tasks.first_row = max(0, at.first_token() - at.kv_before);
        const int last = min(at.rows, at.first_token() + kAttentionUnitTokens - at.kv_before);
        const int fresh = max(0, last - tasks.first_row);
        tasks.queries = is_new ? columns : 0;
        tasks.keys = tasks.queries + fresh;
        tasks.values = tasks.keys + fresh;
        tasks.all = tasks.values + (is_new ? kColumns - columns : 0);
        return tasks;
    }
    /// Row of the step that a key or value of the tasks belongs to.
    static __device__ int new_row(const AttentionPlace& at, const HeadTasks& tasks, int task) {
        return tasks.first_row + task - (task < tasks.keys ? tasks.queries : tasks.keys);
    }

    __device__ void load_tables(const AttentionPlace& at, const HeadTasks& tasks, int task,
                                HeadLoad<kDim>& head) const {
        const AttentionParams& a = p_.attention;
        if (task < tasks.queries)
            head.load_tables(a, a.q_norm, at.first_row + row_of(at, task));
        else if (task < tasks.keys)
            head.load_tables(a, a.k_norm, at.first_row + new_row(at, tasks, task));
    }
    __device__ void load_values(const AttentionPlace& at, const HeadTasks& tasks, int task,
                                HeadLoad<kDim>& head) const {
        const AttentionParams& a = p_.attention;
        if (task >= tasks.values) return;
        if (task < tasks.queries) {
            head.load_values(query_of(at, task));
            return;
        }
        const std::int64_t m = at.first_row + new_row(at, tasks, task);
        const std::int64_t column = static_cast<std::int64_t>(at.head) * kDim;
        head.load_values((task < tasks.keys ? a.k + m * a.k_stride : a.v + m * a.v_stride) +
                         column);
    }

    /// A head in f32 to a row of binary16 in shared memory and, when there is one, of a page.
    __device__ void put(const float* head, std::uint32_t to, std::uint16_t* page) {
        for (int c = lane_index(); c < L::kChunks; c += kWarpLanes) {
            std::uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                w[i] =
                    head == nullptr ? 0 : pack_halves(head[8 * c + 2 * i], head[8 * c + 2 * i + 1]);
            store_words(to + 16 * c, w[0], w[1], w[2], w[3]);
            if (page != nullptr)
                *reinterpret_cast<uint4*>(page + 8 * c) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }

    /// What does not come from the kernel in front is asked for before the wait for it.
    __device__ void prepare_first(const AttentionPlace& at) {
        const HeadTasks tasks = tasks_of(at, true);
        HeadLoad<kDim> head;
        if (run_.holds(at)) load_tables(at, tasks, warp_index(), head);
        wait_for_previous_kernel();
        if (!run_.holds(at)) return;
        load_values(at, tasks, warp_index(), head);
        prepare(at, tasks, head);
    }
    /// `is_new`: another sequence, head or chunk than before.
    __device__ void prepare_next(const AttentionPlace& at, bool is_new) {
        if (!run_.holds(at)) return;
        const HeadTasks tasks = tasks_of(at, is_new);
        if (tasks.all == 0) return;
        HeadLoad<kDim> head;
        load_tables(at, tasks, warp_index(), head);
        load_values(at, tasks, warp_index(), head);
        prepare(at, tasks, head);
    }

    /// Carries the tasks out; `next` is this warp's first, loaded.
    __device__ void prepare(const AttentionPlace& at, const HeadTasks& tasks,
                            HeadLoad<kDim>& next) {
        const AttentionParams& a = p_.attention;
        float* head = reinterpret_cast<float*>(dynamic_shared() + L::kHeads) + warp_index() * kDim;
        __syncthreads();  // the probabilities before are read, which lie where heads will
        for (int task = warp_index(); task < tasks.all; task += kAttentionWarps) {
            const HeadLoad<kDim> current = next;
            load_tables(at, tasks, task + kAttentionWarps, next);  // while this one is rotated
            load_values(at, tasks, task + kAttentionWarps, next);
            __syncwarp();  // the head before is read
            if (task < tasks.queries) {
                current.finish(a, a.q_norm != nullptr, head);
                put(head, base_ + L::kQueries + L::at(task, 0), nullptr);
                continue;
            }
            if (task >= tasks.values) {
                const int column = columns_of(at) + task - tasks.values;
                put(nullptr, base_ + L::kQueries + L::at(column, 0), nullptr);
                continue;
            }
            const bool is_value = task >= tasks.keys;
            if (is_value)
                current.finish_plain(head);
            else
                current.finish(a, a.k_norm != nullptr, head);
            const int token = at.kv_before + new_row(at, tasks, task);
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
            put(head, base_ + slot * L::kHalfBytes + L::at(token - at.first_token(), 0), page);
        }
        fence_before_copies();
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

    __device__ void unit(const AttentionPlace& at, bool is_first, int columns, Tile* kept) {
        Tile own[kTiles];
        wait_for_half();
        __syncthreads();  // keys, new rows and queries lie there; the values before are read
        if (!is_first) fetch_next();
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
        __syncthreads();  // maxima of all warps; the keys are read
        fetch_next();
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
        to_next_half();
        wait_for_half();
        __syncthreads();  // probabilities and sums of all warps, values
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
            finish(at, columns, own, kept);
        }
        to_next_half();
    }

    /// Two chains of sums, even and odd steps, so that one hides the other's latency.
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

    __device__ float* slot(std::int64_t index) const {
        return p_.parts + index * attention_slot_floats(kDim, kTiles);
    }
    static __device__ std::int64_t block_slots() {
        return attention_block_slots(kTiles);
    }
    __device__ float* part_slot(int item, AttentionItems group, int block, int run_begin) const {
        const AttentionPartPlace place =
            attention_part_place(item, block, run_begin, group, attention_region_slots(kTiles));
        return slot(place.block * block_slots() + place.slot);
    }
    __device__ float* group_slot(int group) const {
        return slot(gridDim.x * block_slots() + group);
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

    static __device__ void store(float* slot, const Tile* state) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
            state[n].store(slot, n, kTiles);
    }

    static __device__ int first_output() {
        return 16 * L::kRowTiles * warp_index() + lane_index() / 4;
    }

    /// `kept` is the fold of the quad's units so far; `own` becomes that with this unit.
    __device__ void finish(const AttentionPlace& at, int columns, Tile (&own)[kTiles], Tile* kept) {
        const int block = static_cast<int>(blockIdx.x);
        const AttentionItems group = run_.group_of(at);
        float* here = part_slot(at.item, group, block, run_.begin);
        if (run_.grain > 1 && at.unit % kAttentionQuadUnits != 0) {
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                Tile before;
                if constexpr (kKeepsPart)
                    before = kept[n];
                else
                    before.load(here, n, kTiles);
                before.fold(own[n]);
                own[n] = before;
            }
        }
        if (at.unit + 1 < at.units && (at.unit + 1) % run_.grain != 0) {
            if constexpr (kKeepsPart) {
#pragma unroll
                for (int n = 0; n < kTiles; ++n)
                    kept[n] = own[n];
            } else {
                __syncwarp();  // statistics are read before a neighbour writes them
                store(here, own);
                __syncwarp();  // and written before a neighbour reads them
            }
            return;
        }
        if (at.items > 1) {
            if constexpr (!kKeepsPart) __syncwarp();  // as above
            store(here, own);
            if (!ends_sequence(at, group, own)) return;
        }
        store_rows(at, columns, own);
    }

    /// Behind a part in its slot. True when `state` has become the result of the whole sequence.
    __device__ bool ends_sequence(const AttentionPlace& at, AttentionItems group, Tile* state) {
        const int block = static_cast<int>(blockIdx.x);
        const bool ends_group = at.item + 1 == group.end;
        if (!ends_group && (run_.has_whole || at.item + 1 != run_.end)) return false;
        if (run_.has_whole || (ends_group && group.begin >= run_.begin)) {
            __syncwarp();  // statistics are written before a neighbour reads them
        } else {
            const int blocks =
                run_.cut.block_of(group.end - 1) - run_.cut.block_of(group.begin) + 1;
            const int index =
                at.first_group + (group.begin - at.first_item) * run_.grain / kAttentionGroupUnits;
            if (!is_last_of(blocks, arrivals_of(false, index))) return false;
        }
        fold_parts<kTiles>(state, group.end - group.begin, kAttentionQuadUnits / run_.grain,
                           [&](int i) {
                               const int item = group.begin + i;
                               if (run_.has_whole) return part_slot(item, group, block, run_.begin);
                               const int owner = run_.cut.block_of(item);
                               return part_slot(item, group, owner, run_.cut.begin(owner));
                           });
        return finish_group(at, group, state);
    }

    /// True when `state` has become the result of the whole sequence.
    __device__ bool finish_group(const AttentionPlace& at, AttentionItems group, Tile* state) {
        const int groups = at.groups();
        if (group.end - group.begin == at.items) return true;
        const int nth = at.unit / kAttentionGroupUnits;
        if (run_.has_whole) {  // nobody else has a part of it
            float* sum = slot(blockIdx.x * block_slots());
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                if (nth == 0) continue;
                Tile all;
                all.load(sum, n, kTiles);
                all.fold(state[n]);
                state[n] = all;
            }
            __syncwarp();  // statistics are read before a neighbour writes them
            store(sum, state);
            __syncwarp();  // and written before a neighbour reads them
            return nth + 1 == groups;
        }
        const auto slot_of = [&](int g) { return group_slot(at.first_group + g); };
        store(slot_of(nth), state);
        if (!is_last_of(groups, arrivals_of(true, at.first_group))) return false;
        fold_groups<kTiles>(state, groups, slot_of);
        return true;
    }

    /// A tile's gates are on their way before the first is used.
    __device__ void store_rows(const AttentionPlace& at, int columns, const Tile* state) {
        const AttentionParams& a = p_.attention;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
            float gate[2][2 * L::kRowTiles];
            float* to[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int column = min(8 * n + 2 * (lane_index() % 4) + j, columns - 1);
                const float* from = query_of(at, column) + kDim + first_output();
                to[j] = a.y + (at.first_row + row_of(at, column)) * a.y_stride +
                        static_cast<std::int64_t>(head_of(at, column)) * kDim + first_output();
#pragma unroll
                for (int k = 0; k < 2 * L::kRowTiles; ++k)
                    gate[j][k] = a.has_gate ? from[8 * k] : 0.0F;
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (8 * n + 2 * (lane_index() % 4) + j >= columns) continue;
                const float share = 1.0F / state[n].sum[j];
#pragma unroll
                for (int k = 0; k < 2 * L::kRowTiles; ++k) {
                    const float value = state[n].o[k / 2][j + 2 * (k % 2)] * share;
                    to[j][8 * k] = a.has_gate ? value * sigmoid(gate[j][k]) : value;
                }
            }
        }
    }

    const AttentionDecodeParams& p_;
    const std::uint32_t base_;
    SharedRun& shared_;
    const AttentionRun& run_;
    int fetches_ = 0;  // behind the first, which fill the ring
    int slot_ = 0;     // of the half in use
    int parity_ = 0;
};

}  // namespace

// Block: 8 warps. Grid: multiprocessors. Named by head size and columns.
#define QUADRIGA_ATTENTION_DECODE(DIM, COLUMNS)                                               \
    extern "C" __global__ void __launch_bounds__(kAttentionThreads, 1)                        \
        attention_decode_##DIM##_##COLUMNS(const __grid_constant__ AttentionDecodeParams p) { \
        let_next_kernel_start();                                                              \
        Decode<DIM, COLUMNS / 8>(p).run();                                                    \
    }
#define QUADRIGA_ATTENTION_DECODES(DIM) \
    QUADRIGA_ATTENTION_DECODE(DIM, 8)   \
    QUADRIGA_ATTENTION_DECODE(DIM, 16)  \
    QUADRIGA_ATTENTION_DECODE(DIM, 32)
QUADRIGA_ATTENTION_DECODES(64)
QUADRIGA_ATTENTION_DECODES(128)
QUADRIGA_ATTENTION_DECODES(256)

}  // namespace kernels::cuda
