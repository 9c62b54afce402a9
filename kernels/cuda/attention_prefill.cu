// attention_prefill: attention of sequences with more than 16 rows.
//
// Math      as attention.cu; scores and outputs by tensor cores from binary16 operands, sums in f32
// Shapes    AttentionPrefillParams; head_dim 64, 128, 256; pages of 16, 32 or 64 tokens (any power
//           of two from 16 on) that hold this step's rows already; any kv_len, any number of query
//           heads a KV head
// Moves     kv_len * 2 D * 2 bytes per block of 128 columns (query heads x rows), from the L2 as a
//           rule
// Floor     arithmetic: 4 D flops per (row, query head, token); 27B, 4096 tokens from nothing: 206
//           GFLOP a layer, 0.26 ms at 790 TFLOP/s
// Achieved  kernels/README.md
// Plan      a block of three warpgroups takes 128 columns of one KV head: two attend for 64 columns
//           each, the third fetches K and V, 64 tokens at a time, through a ring. Per 64 tokens:
//           scores = Q K^T; softmax in registers; outputs += P V, P from registers; the scores of
//           the next tokens are issued behind that, so that tensor cores have work while this
//           warpgroup's or the other's softmax runs. Outputs are scaled down only when a maximum
//           moved. The longest blocks start first.
// Laws      a row's bits depend on its sequence alone: tokens go in steps of 64 from position 0
// Source    FlashAttention-3 (Shah et al. 2024) for roles and overlap; layouts: PTX ISA; checked by
//           kernel-gate
#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace kernels::cuda {
namespace {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupWarps = kGroupThreads / kWarpLanes;
constexpr int kAttendGroups = 2;
constexpr int kAttendThreads = kAttendGroups * kGroupThreads;
constexpr int kAttendWarps = kAttendThreads / kWarpLanes;
constexpr int kThreads = kAttendThreads + kGroupThreads;
constexpr int kAttendRegisters = 232, kFetchRegisters = 40;  // 2 x 232 + 40 < 3 x 168 a thread
constexpr int kBlockDims = 64;                               // 128 bytes: a row of a block
constexpr int kBlockRowBytes = 128;
static_assert(kPrefillColumns == 64 * kAttendGroups && kPrefillTokens == 64);

/// Shared memory, in bytes from an address that is a multiple of 1024. A matrix of D values a row
/// lies as D / 64 blocks of all its rows (wgmma.cuh).
template <int kDim>
struct Layout {
    static constexpr int kBlocks = kDim / kBlockDims;
    static constexpr int kQueryBlockBytes = kPrefillColumns * kBlockRowBytes;
    static constexpr int kTokenBlockBytes = kPrefillTokens * kBlockRowBytes;
    static constexpr int kSlotBytes = kBlocks * kTokenBlockBytes;
    static constexpr int kRing = kBlocks * kQueryBlockBytes;
    static constexpr int kHeads = kRing + kPrefillRing * kSlotBytes;
    static constexpr int kFull = kHeads + kAttendWarps * kDim * 4;
    static constexpr int kEmpty = kFull + 8 * kPrefillRing;
    static_assert(kEmpty + 8 * kPrefillRing + 1024 == attention_prefill_shared_bytes(kDim));

    /// Chunk `chunk` (16 bytes) of row `row`, in blocks of `block_bytes`.
    static __device__ std::uint32_t at(int row, int chunk, int block_bytes) {
        return static_cast<std::uint32_t>(chunk / 8 * block_bytes + row * kBlockRowBytes +
                                          ((chunk % 8 ^ (row & 7)) << 4));
    }
};

/// A block's columns: those of one sequence and KV head, query heads of a row side by side.
struct Columns {
    int seq = -1;  // -1 = none
    int first_row = 0, rows = 0, kv_before = 0;
    int begin = 0;  // of the sequence's columns

    __device__ int last_row(int heads_of_group) const {
        return min(rows - 1, (begin + kPrefillColumns - 1) / heads_of_group);
    }
};

/// Every warp finds the same. Late columns see most tokens: they come first.
__device__ Columns find_columns(const AttentionPrefillParams& p) {
    const StepView& step = p.attention.step;
    const int seqs = *step.seqs;
    int nth = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    Columns columns;
    for (int first = 0; first < seqs; first += kWarpLanes) {
        const int s = first + lane_index();
        const int rows = s < seqs ? step.row_begin[s + 1] - step.row_begin[s] : 0;
        const int tiles = attention_prefill_tiles(rows, p.heads_of_group);
        const int tiles_to = inclusive_sum(tiles);
        const unsigned past = __ballot_sync(~0U, tiles_to > nth);
        if (past != 0) {
            const int lane = __ffs(static_cast<int>(past)) - 1;
            columns.seq = first + lane;
            columns.first_row = step.row_begin[columns.seq];
            columns.rows = step.row_begin[columns.seq + 1] - columns.first_row;
            columns.kv_before = step.kv_len_before[columns.seq];
            columns.begin = (nth - __shfl_sync(~0U, tiles_to - tiles, lane)) * kPrefillColumns;
            return columns;
        }
        nth -= __shfl_sync(~0U, tiles_to, kWarpLanes - 1);
    }
    return columns;
}

/// 16 bytes, or zeros.
__device__ void copy_or_zero(std::uint32_t to, const void* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}
__device__ std::uint32_t pack_pair(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
/// To a few units in the last place.
__device__ float quick_sigmoid(float x) {
    return __fdividef(1.0F, 1.0F + exp2_of(-1.44269504F * x));
}
__device__ void barrier_of_attenders() {
    asm volatile("bar.sync 1, %0;" ::"n"(kAttendThreads) : "memory");
}

template <int kDim>
class Prefill {
public:
    using L = Layout<kDim>;

    __device__ explicit Prefill(const AttentionPrefillParams& params)
        : p_(params),
          base_((shared_address(dynamic_shared()) + 1023) & ~1023U),
          columns_(find_columns(params)) {}

    __device__ void run() {
        if (columns_.seq < 0) return;
        const int last_token = columns_.kv_before + columns_.last_row(p_.heads_of_group);
        tiles_ = last_token / kPrefillTokens + 1;
        if (threadIdx.x == 0) {
            for (int i = 0; i < kPrefillRing; ++i) {
                barrier_init(base_ + L::kFull + 8 * i, kGroupThreads);
                barrier_init(base_ + L::kEmpty + 8 * i, kAttendWarps);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();  // the barriers are there
        if (threadIdx.x >= kAttendThreads) {
            shrink_registers<kFetchRegisters>();
            fetch_all();
        } else {
            grow_registers<kAttendRegisters>();
            prepare_queries();
            attend();
        }
    }

private:
    // ---- the third warpgroup

    /// K and V of a tile in turn. An item is announced when the next one is on its way.
    __device__ void fetch_all() {
        const int items = 2 * tiles_;
        for (int item = 0; item < items; ++item) {
            const int slot = item % kPrefillRing;
            if (item >= kPrefillRing)
                barrier_wait(base_ + L::kEmpty + 8 * slot, (item / kPrefillRing - 1) & 1);
            fetch(item / 2, item % 2 != 0, base_ + L::kRing + slot * L::kSlotBytes);
            commit_copies();
            if (item == 0) continue;
            wait_copies<1>();
            announce(item - 1);
        }
        wait_copies<0>();
        announce(items - 1);
    }
    __device__ void announce(int item) {
        publish_to_tensor_cores();
        barrier_arrive(base_ + L::kFull + 8 * (item % kPrefillRing));
    }
    /// Zeros behind the last token, since a value that is no number would survive a weight of zero.
    __device__ void fetch(int tile, bool is_value, std::uint32_t to) {
        const AttentionParams& a = p_.attention;
        constexpr int kChunks = kDim / 8;
        constexpr int kGranules = kPrefillTokens / 16;  // no page is smaller
        constexpr int kCopies = kPrefillTokens * kChunks / kGroupThreads;
        constexpr int kStep = kGroupThreads / kChunks;  // rows between a thread's copies
        const int kv_len = columns_.kv_before + columns_.rows;
        const int first = tile * kPrefillTokens;
        const std::int32_t* table =
            a.step.block_table + static_cast<std::int64_t>(columns_.seq) * *a.step.table_stride;
        const int granule = first + 16 * (lane_index() % kGranules);
        const int page = granule < kv_len ? table[granule >> p_.token_shift] : 0;
        const auto* pages = static_cast<const std::uint16_t*>(is_value ? a.v_pages : a.k_pages);
        const int thread = static_cast<int>(threadIdx.x) - kAttendThreads;
        const int chunk = thread % kChunks;
        const int mask = (1 << p_.token_shift) - 1;
#pragma unroll 4
        for (int i = 0; i < kCopies; ++i) {
            const int row = thread / kChunks + i * kStep;
            const int token = first + row;
            const std::int64_t block = __shfl_sync(~0U, page, row / 16);
            const std::int64_t offset =
                block * a.page_stride +
                ((static_cast<std::int64_t>(blockIdx.y) << p_.token_shift) + (token & mask)) * kDim;
            copy_or_zero(to + L::at(row, chunk, L::kTokenBlockBytes), pages + offset + 8 * chunk,
                         token < kv_len);
        }
    }

    // ---- queries

    __device__ int row_of(int column) const {
        return (columns_.begin + column) / p_.heads_of_group;
    }
    __device__ int head_of(int column) const {
        return static_cast<int>(blockIdx.y) * p_.heads_of_group +
               (columns_.begin + column) % p_.heads_of_group;
    }
    __device__ const float* query_of(int column) const {
        const AttentionParams& a = p_.attention;
        return a.q + (columns_.first_row + row_of(column)) * a.q_stride +
               static_cast<std::int64_t>(head_of(column)) * kDim * (a.has_gate ? 2 : 1);
    }

    static constexpr int kValues = kDim / kWarpLanes;  // of a head per lane
    static constexpr int kPairs = kValues / 2;         // of rotated values, at most
    static constexpr int kHeadsOfWarp = kPrefillColumns / kAttendWarps;
    static constexpr int kBatch = 4;  // of them on their way together
    struct Head {
        float v[kValues], cosine[kPairs], sine[kPairs];
    };
    __device__ void load(Head& head, int column, int position) const {
        const AttentionParams& a = p_.attention;
        const int lane = lane_index();
        const bool is_there = row_of(column) < columns_.rows;
        const float* in = query_of(is_there ? column : 0);
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            head.v[i] = is_there ? in[lane + kWarpLanes * i] : 0.0F;
        const float* rope = a.rope + position * a.rope_stride;
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
            const int pair = lane + kWarpLanes * i;
            const bool turns = pair < a.n_rot / 2;
            head.cosine[i] = turns ? rope[pair] : 1.0F;
            head.sine[i] = turns ? rope[a.n_rot / 2 + pair] : 0.0F;
        }
    }
    __device__ void load_batch(Head (&heads)[kBatch], int batch, int positions) const {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int nth = batch * kBatch + i;
            load(heads[i], warp_index() + kAttendWarps * nth, __shfl_sync(~0U, positions, nth));
        }
    }

    /// Norm and rotation as prepare_head has them, a batch of heads ahead of its use: what a head
    /// costs is latency. Rows past the last are zeros.
    __device__ void prepare_queries() {
        const AttentionParams& a = p_.attention;
        const int lane = lane_index();
        float* shared =
            reinterpret_cast<float*>(dynamic_shared() + (base_ - shared_address(dynamic_shared())) +
                                     L::kHeads) +
            warp_index() * kDim;
        float norm[kValues];
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            norm[i] = a.q_norm != nullptr ? a.q_norm[lane + kWarpLanes * i] : 1.0F;
        static_assert(kHeadsOfWarp <= kWarpLanes && kHeadsOfWarp % kBatch == 0);
        const int own_row = row_of(warp_index() + kAttendWarps * (lane % kHeadsOfWarp));
        const int positions = a.step.position[columns_.first_row + min(own_row, columns_.rows - 1)];
        Head heads[kBatch], next[kBatch];
        load_batch(heads, 0, positions);
#pragma unroll 1
        for (int batch = 0; batch < kHeadsOfWarp / kBatch; ++batch) {
            load_batch(next, min(batch + 1, kHeadsOfWarp / kBatch - 1), positions);
            float factors[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                float squares = 0.0F;
#pragma unroll
                for (int j = 0; j < kValues; ++j)
                    squares = fmaf(heads[i].v[j], heads[i].v[j], squares);
                factors[i] =
                    a.q_norm == nullptr
                        ? 1.0F
                        : 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + a.norm_eps);
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                put(heads[i], factors[i], norm, shared,
                    warp_index() + kAttendWarps * (batch * kBatch + i));
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                heads[i] = next[i];
        }
        publish_to_tensor_cores();
        barrier_of_attenders();  // all queries are there
    }

    /// A head through `shared` [kDim], the warp's, to the queries.
    __device__ void put(const Head& head, float factor, const float (&norm)[kValues], float* shared,
                        int column) const {
        const AttentionParams& a = p_.attention;
        const int lane = lane_index();
        const int pairs = a.n_rot / 2;
        __syncwarp();  // the head before is read
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            shared[lane + kWarpLanes * i] = head.v[i] * (factor * norm[i]);
        __syncwarp();  // all of it is there before pairs are read across lanes
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {  // a pair belongs to one lane
            const int pair = lane + kWarpLanes * i;
            if (pair >= pairs) continue;
            const int first = a.is_adjacent ? 2 * pair : pair;
            const int second = a.is_adjacent ? 2 * pair + 1 : pair + pairs;
            const float x = shared[first];
            const float y = shared[second];
            shared[first] = x * head.cosine[i] - y * head.sine[i];
            shared[second] = x * head.sine[i] + y * head.cosine[i];
        }
        __syncwarp();  // rotated before anyone reads
        if (lane >= kDim / 8) return;
        std::uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            w[i] = pack_pair(shared[8 * lane + 2 * i], shared[8 * lane + 2 * i + 1]);
        store_words(base_ + L::at(column, lane, L::kQueryBlockBytes), w[0], w[1], w[2], w[3]);
    }

    // ---- attention

    __device__ void wait_full(int item) const {
        barrier_wait(base_ + L::kFull + 8 * (item % kPrefillRing), (item / kPrefillRing) & 1);
    }
    __device__ void release(int item) const {
        if (lane_index() == 0) barrier_arrive(base_ + L::kEmpty + 8 * (item % kPrefillRing));
    }
    __device__ std::uint32_t slot_of(int item) const {
        return base_ + L::kRing + item % kPrefillRing * L::kSlotBytes;
    }

    __device__ void issue_scores(WarpgroupSums& scores, int tile) const {
        const std::uint32_t queries =
            base_ + static_cast<std::uint32_t>(warp_index() / kGroupWarps) * 64 * kBlockRowBytes;
        const std::uint32_t keys = slot_of(2 * tile);
        warpgroup_fence();
#pragma unroll
        for (int b = 0; b < L::kBlocks; ++b)
#pragma unroll
            for (int step = 0; step < kBlockDims / 16; ++step)
                multiply_transposed(
                    scores, matrix_descriptor(queries + b * L::kQueryBlockBytes + 32 * step),
                    matrix_descriptor(keys + b * L::kTokenBlockBytes + 32 * step),
                    b + step > 0 ? 1 : 0);
        warpgroup_commit();
    }
    __device__ void issue_values(WarpgroupSums (&out)[L::kBlocks],
                                 const std::uint32_t (&weights)[kPrefillTokens / 16][4],
                                 int tile) const {
        const std::uint32_t values = slot_of(2 * tile + 1);
        warpgroup_fence();
#pragma unroll
        for (int step = 0; step < kPrefillTokens / 16; ++step)
#pragma unroll
            for (int b = 0; b < L::kBlocks; ++b)
                multiply_registers(out[b], weights[step],
                                   matrix_descriptor(values + b * L::kTokenBlockBytes +
                                                     step * 16 * kBlockRowBytes));
        warpgroup_commit();
    }

    __device__ void attend() {
        const float scale = 1.44269504F / sqrtf(static_cast<float>(kDim));  // of powers of two
        const int column = warp_index() * 16 + lane_index() / 4;            // and the eighth after
        // The last token that each of the two rows sees; what is past the sequence is not kept.
        const int last[2] = {columns_.kv_before + row_of(column),
                             columns_.kv_before + row_of(column + 8)};
        const int unmasked = columns_.kv_before + columns_.begin / p_.heads_of_group;
        WarpgroupSums scores;
        WarpgroupSums out[L::kBlocks];
        std::uint32_t weights[kPrefillTokens / 16][4];
        float largest[2] = {-INFINITY, -INFINITY};
        float sum[2] = {0.0F, 0.0F};  // of this lane's columns
#pragma unroll
        for (int b = 0; b < L::kBlocks; ++b)
#pragma unroll
            for (int i = 0; i < 32; ++i)
                out[b][i] = 0.0F;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            scores[i] = 0.0F;
        wait_full(0);
        issue_scores(scores, 0);
#pragma unroll 1
        for (int tile = 0;; ++tile) {
            warpgroup_wait<0>();
            pin(scores);
#pragma unroll
            for (int b = 0; b < L::kBlocks; ++b)
                pin(out[b]);
            release(2 * tile);
            if (tile > 0) release(2 * tile - 1);
            const int first = tile * kPrefillTokens;
            if (first + kPrefillTokens - 1 > unmasked) mask(scores, first, last);
            weigh(scores, scale, largest, sum, weights, out);
            wait_full(2 * tile + 1);
            issue_values(out, weights, tile);
            if (tile + 1 == tiles_) break;
            wait_full(2 * tile + 2);
            issue_scores(scores, tile + 1);
        }
        warpgroup_wait<0>();
#pragma unroll
        for (int b = 0; b < L::kBlocks; ++b)
            pin(out[b]);
        store(column, out, sum);
    }

    static __device__ void mask(WarpgroupSums& scores, int first, const int (&last)[2]) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const int token = first + i / 4 * 8 + 2 * (lane_index() % 4) + i % 2;
            if (token > last[i / 2 % 2]) scores[i] = -INFINITY;
        }
    }

    /// Scores to weights in binary16; maxima and sums go along, and outputs when a maximum moves.
    /// A row sees token 0, so that its maximum is a number from the first tile on.
    static __device__ void weigh(const WarpgroupSums& scores, float scale, float (&largest)[2],
                                 float (&sum)[2], std::uint32_t (&weights)[kPrefillTokens / 16][4],
                                 WarpgroupSums (&out)[L::kBlocks]) {
        float keep[2], offset[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float most = largest[j];
#pragma unroll
            for (int i = 0; i < 32; i += 4)
                most = fmaxf(most, fmaxf(scores[i + 2 * j], scores[i + 2 * j + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
            keep[j] = exp2_of((largest[j] - most) * scale);
            offset[j] = -most * scale;
            largest[j] = most;
        }
        float added[2] = {0.0F, 0.0F};
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            const int j = i / 2 % 2;
            const float a = exp2_of(fmaf(scores[i], scale, offset[j]));
            const float b = exp2_of(fmaf(scores[i + 1], scale, offset[j]));
            added[j] += a + b;
            weights[i / 8][i / 2 % 4] = pack_pair(a, b);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j)
            sum[j] = fmaf(sum[j], keep[j], added[j]);
        if (!__any_sync(~0U, keep[0] != 1.0F || keep[1] != 1.0F)) return;
#pragma unroll
        for (int b = 0; b < L::kBlocks; ++b)
#pragma unroll
            for (int i = 0; i < 32; ++i)
                out[b][i] *= keep[i / 2 % 2];
    }

    __device__ void store(int column, const WarpgroupSums (&out)[L::kBlocks],
                          const float (&sum)[2]) const {
        const AttentionParams& a = p_.attention;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float total = sum[j];
            total += __shfl_xor_sync(~0U, total, 1);
            total += __shfl_xor_sync(~0U, total, 2);
            const int row = row_of(column + 8 * j);
            if (row >= columns_.rows) continue;
            const float* gates = query_of(column + 8 * j) + kDim;
            float* y = a.y + (columns_.first_row + row) * a.y_stride +
                       static_cast<std::int64_t>(head_of(column + 8 * j)) * kDim;
            const float factor = 1.0F / total;
            // All gates are on their way before the first store, which may be to the same place
            // for all the compiler knows.
            float2 gate[L::kBlocks * 8];
#pragma unroll
            for (int i = 0; i < L::kBlocks * 8; ++i) {
                const int d = 8 * i + 2 * (lane_index() % 4);
                gate[i] = !a.has_gate  ? float2{0.0F, 0.0F}
                          : p_.is_wide ? *reinterpret_cast<const float2*>(gates + d)
                                       : float2{gates[d], gates[d + 1]};
            }
#pragma unroll
            for (int i = 0; i < L::kBlocks * 8; ++i) {
                const int d = 8 * i + 2 * (lane_index() % 4);
                float2 value = {out[i / 8][i % 8 * 4 + 2 * j] * factor,
                                out[i / 8][i % 8 * 4 + 2 * j + 1] * factor};
                if (a.has_gate) {
                    value.x *= quick_sigmoid(gate[i].x);
                    value.y *= quick_sigmoid(gate[i].y);
                }
                if (p_.is_wide) {
                    *reinterpret_cast<float2*>(y + d) = value;
                } else {
                    y[d] = value.x;
                    y[d + 1] = value.y;
                }
            }
        }
    }

    const AttentionPrefillParams& p_;
    std::uint32_t base_;
    Columns columns_;
    int tiles_ = 0;
};

}  // namespace

// Block: 12 warps. Grid: attention_prefill_tiles of all sequences x KV heads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_prefill_64(const __grid_constant__ AttentionPrefillParams p) {
    Prefill<64>(p).run();
}
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_prefill_128(const __grid_constant__ AttentionPrefillParams p) {
    Prefill<128>(p).run();
}
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_prefill_256(const __grid_constant__ AttentionPrefillParams p) {
    Prefill<256>(p).run();
}

}  // namespace kernels::cuda
