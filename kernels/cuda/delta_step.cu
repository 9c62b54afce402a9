// delta_step: the gated delta net for sequences of at most 16 rows (decode, verify, replay), from
// the projections to the gated norm, rings and replay buffers included, in one launch.
//
// Math      per value head, S [value, key], g = exp(a softplus(alpha + dt)), b = sigmoid(beta):
//           u = S k, w = S q;  d = b (v - g u);  o = g w + (k.q) d;  S <- g S + d k^T
//           y = RMSNorm(o) w silu(z); q, k, v come from a causal convolution and SiLU, q and k as
//           unit vectors, q times size^-1/2. Replaying is S <- g S + d k^T, the same expression.
// Shapes    DeltaStepParams; state_size 32, 64, 128; 4 taps; up to 4 value heads a key head
// Moves     8 * state_size^2 bytes of state per head and sequence, whatever its rows are
// Floor     bandwidth: 48 heads of 128 are 6.3 MB a sequence and layer, 1.5 us at 4.3 TB/s
// Achieved  kernels/README.md
// Plan      A cluster of 8 blocks owns a key head of a sequence, with all value heads that read it:
//           the convolution's inputs and the keys belong to nobody else, so rings and replay rows
//           are written behind the cluster's barrier, which all reads of old values come before.
//           A block owns size/8 columns of each of these value heads; a warp eight columns, eight
//           lanes a column, 16-byte loads; S stays in registers from the first row to the last.
//           A head's columns lie across the cluster: sums of squares for the norm go to all eight
//           blocks by stores that announce themselves at a barrier of each, and are added there in
//           one order. (Through the cluster's barrier they would wait for a fence of all memory.)
// Overlap   Before griddepcontrol.wait it reads the step descriptor and what this operation itself
//           left in earlier steps (states, rings, replay rows): a step begins behind its upload,
//           which waits for all kernels before it. Outputs of the kernel in front come after.
// Source    Yang et al. 2024, "Gated Delta Networks"; kernels/cpu/reference_delta_net.cpp
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/cluster_copies.cuh"
#include "kernels/cuda/delta_input.cuh"
#include "kernels/cuda/delta_step.h"

namespace kernels::cuda {
namespace {

constexpr int kSize = kDeltaStepSize;
constexpr int kWarpColumns = kDeltaStepColumns;
constexpr int kColumnLanes = 8;                            // lanes that share a column
constexpr int kSetColumns = kWarpLanes / kColumnLanes;     // of a warp at a time
constexpr int kSets = kWarpColumns / kSetColumns;          // columns of a lane
constexpr int kKeys = kSize / kColumnLanes;                // of a lane
constexpr int kHeadColumns = kSize / kDeltaStepBlocks;     // of a value head in a block
constexpr int kHeadWarps = kHeadColumns / kWarpColumns;    // of a value head in a block
constexpr int kHeadParts = kDeltaStepBlocks * kHeadWarps;  // of a head's sum of squares
constexpr int kVectorValues = kSize / kWarpLanes;          // of a q or k vector in a lane

/// Sum over the lanes of a column, the same bits in each.
__device__ float column_sum(float value) {
#pragma unroll
    for (int distance = 1; distance < kColumnLanes; distance *= 2)
        value += __shfl_xor_sync(~0U, value, distance);
    return value;
}

/// The block's shared memory; `rows` and `replays` as in the parameters.
struct StepShared {
    float* keys_queries;   // [rows, 2, size] unit keys, then scaled unit queries
    float* replay_keys;    // [replays, size]
    float* values;         // [rows, columns] v, then o
    float* squares;        // [rows, heads, blocks, head_warps] sums over a warp's columns
    float* replay_deltas;  // [replays, columns]
    float* gates;          // [rows, 2, heads] decay, strength
    float* replay_decays;  // [replays, heads]
};

/// The barrier in front: all sums of squares are here.
__device__ std::uint32_t sums_here() {
    return shared_address(shared_memory());
}

template <int kHeads>
__device__ StepShared carve(const DeltaStepParams& p) {
    StepShared shared;
    shared.keys_queries = shared_memory() + kDeltaStepBarrierWords;
    shared.replay_keys = shared.keys_queries + p.rows_max * 2 * kSize;
    shared.values = shared.replay_keys + p.replays_max * kSize;
    shared.squares = shared.values + p.rows_max * kHeads * kHeadColumns;
    shared.replay_deltas = shared.squares + p.rows_max * kHeads * kHeadParts;
    shared.gates = shared.replay_deltas + p.replays_max * kHeads * kHeadColumns;
    shared.replay_decays = shared.gates + p.rows_max * 2 * kHeads;
    return shared;
}

/// The columns of S that a lane sees: keys lane_in_column * 4 + kColumnLanes * 4 * i + 0..3.
struct Memory {
    float value[kKeys];

    __device__ void load(const float* from) {
#pragma unroll
        for (int i = 0; i < kKeys; i += 4) {
            const float4 four = load_once(from + i * kColumnLanes);
            value[i] = four.x;
            value[i + 1] = four.y;
            value[i + 2] = four.z;
            value[i + 3] = four.w;
        }
    }
    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kKeys; ++i)
            value[i] = 0.0F;
    }
    __device__ void store(float* to) const {
#pragma unroll
        for (int i = 0; i < kKeys; i += 4)
            store_once(to + i * kColumnLanes, {value[i], value[i + 1], value[i + 2], value[i + 3]});
    }
    /// S <- g S + d k^T; the only expression of it.
    __device__ void advance(float decay, float delta, const float (&key)[kKeys]) {
#pragma unroll
        for (int i = 0; i < kKeys; ++i)
            value[i] = fmaf(key[i], delta, value[i] * decay);
    }
};

__device__ void read_keys(float (&to)[kKeys], const float* from) {
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i * kColumnLanes);
        to[i] = four.x;
        to[i + 1] = four.y;
        to[i + 2] = four.z;
        to[i + 3] = four.w;
    }
}

constexpr int kSetStride = kSetColumns * kSize;  // floats between a lane's columns

__device__ void store_all(const Memory (&memory)[kSets], float* state) {
#pragma unroll
    for (int set = 0; set < kSets; ++set)
        memory[set].store(state + set * kSetStride);
}

/// Which columns of S a lane works on: the first, and every kSetColumns-th behind it.
struct LanePlace {
    int head_index, head_column;  // the value head, and the first column among those of the block
    int lane_in_column;
    __device__ int block_column() const { return head_index * kHeadColumns + head_column; }
};
__device__ LanePlace lane_place(int thread) {
    const int warp = thread / kWarpLanes;
    const int lane = thread % kWarpLanes;
    return {.head_index = warp / kHeadWarps,
            .head_column = warp % kHeadWarps * kWarpColumns + lane / kColumnLanes,
            .lane_in_column = lane % kColumnLanes};
}

/// One q or k vector of a row, across a warp: value i of a lane is element lane + 32 i.
struct VectorJob {
    int first;  // channel of element 0
    float sum[kVectorValues];

    /// Half 0 is the key, 1 the query.
    __device__ void begin(const DeltaNetParams& p, const DeltaSequence& s, int t, int half,
                          int key_head) {
        first = ((half == 0 ? p.n_k : 0) + key_head) * kSize + lane_index();
#pragma unroll
        for (int i = 0; i < kVectorValues; ++i) {
            const int channel = first + i * kWarpLanes;
            sum[i] = ring_part(p, s, t, channel, taps_of(p, channel));
        }
    }
    __device__ void finish(const DeltaNetParams& p, const DeltaSequence& s, int t, int half,
                           float* to) {
        float squares = 0.0F;
#pragma unroll
        for (int i = 0; i < kVectorValues; ++i) {
            const int channel = first + i * kWarpLanes;  // its taps are in the L1 by now
            sum[i] = row_part(p, s, t, channel, taps_of(p, channel), sum[i]);
        }
#pragma unroll
        for (int i = 0; i < kVectorValues; ++i) {
            sum[i] = silu(sum[i]);
            squares = fmaf(sum[i], sum[i], squares);
        }
        const float length = half == 0 ? 1.0F : 1.0F / sqrtf(static_cast<float>(kSize));
        const float factor = length / sqrtf(warp_sum(squares) + kUnitEps);
#pragma unroll
        for (int i = 0; i < kVectorValues; ++i)
            to[lane_index() + i * kWarpLanes] = sum[i] * factor;
    }
};

/// Padded rows of y, the block's columns of them: zeros.
template <int kHeads>
__device__ void clear_padding(const DeltaStepParams& p, int key_head, int rank) {
    const DeltaNetParams& net = p.net;
    const int live = *net.step.rows;
    constexpr int kColumns = kHeads * kHeadColumns;
#pragma unroll 1
    for (int m = live + static_cast<int>(blockIdx.y); m < p.y_rows;
         m += static_cast<int>(gridDim.y))
        for (int i = static_cast<int>(threadIdx.x); i < kColumns;
             i += static_cast<int>(blockDim.x)) {
            const int head = value_head(net, key_head, i / kHeadColumns);
            const int column = rank * kHeadColumns + i % kHeadColumns;
            net.y[m * net.y_stride + head * kSize + column] = 0.0F;
        }
}

template <int kHeads>
__device__ void delta_step(const DeltaStepParams& p) {
    const DeltaNetParams& net = p.net;
    let_next_kernel_start();
    const int rank = cluster_rank();
    const int key_head = static_cast<int>(blockIdx.x) / kDeltaStepBlocks;
    const int seq = static_cast<int>(blockIdx.y);
    constexpr int kColumns = kHeads * kHeadColumns;  // of the block
    constexpr int kThreads = kHeads * kHeadWarps * kWarpLanes;
    const int thread = static_cast<int>(threadIdx.x);

    // Past the live sequences the fields hold whatever an earlier step left: no rows then.
    DeltaSequence s = delta_sequence(net.step, seq);
    const bool is_live = seq < *net.step.seqs;
    if (!is_live) s.replays = 0;
    const int rows = is_live && s.rows <= kDeltaStepRows ? s.rows : 0;  // more are not ours
    if (rows != s.rows && !p.replays_long) s.replays = 0;
    if (rows == 0 && s.replays == 0) {  // the same for the whole cluster
        wait_for_previous_kernel();
        clear_padding<kHeads>(p, key_head, rank);
        return;
    }
    if (thread == 0) {
        barrier_init(sums_here(), 1);
        publish_barriers();
        barrier_expect(sums_here(), rows * kHeads * kHeadParts * static_cast<int>(sizeof(float)));
    }
    cluster_arrive_bare();  // waited for before the first store into another block: it must have
                            // begun, and its barrier be there
    const StepShared shared = carve<kHeads>(p);

    // A lane's columns of S. Its place is worked out twice, which costs less than keeping it.
    const auto state_at = [&](const LanePlace& at) {
        return net.state + s.slot * net.state_stride +
               (static_cast<std::int64_t>(value_head(net, key_head, at.head_index)) * kSize +
                rank * kHeadColumns + at.head_column) *
                   kSize +
               at.lane_in_column * 4;
    };
    Memory memory[kSets];
    if (s.before == 0) {
        for (Memory& column : memory)
            column.clear();
    } else {
        const float* from = state_at(lane_place(thread));
#pragma unroll
        for (int set = 0; set < kSets; ++set)
            memory[set].load(from + set * kSetStride);
    }

    // What earlier steps left, on its way while the kernel in front ends.
    VectorJob vector;
    const int warp = warp_index();
    int job = warp;  // 2 t + half
    const int jobs = 2 * rows;
    if (job < jobs) vector.begin(net, s, job / 2, job % 2, key_head);
    const int keys = net.n_k * kSize;           // where deltas begin in a replay row
    const int decays = keys + net.n_v * kSize;  // and decays
#pragma unroll 1
    for (int i = thread; i < s.replays * kSize; i += kThreads)
        shared.replay_keys[i] = replay_row(net, s, i / kSize)[key_head * kSize + i % kSize];
#pragma unroll 1
    for (int i = thread; i < s.replays * kColumns; i += kThreads) {
        const int of = value_head(net, key_head, i % kColumns / kHeadColumns);
        shared.replay_deltas[i] = replay_row(
            net, s, i / kColumns)[keys + of * kSize + rank * kHeadColumns + i % kHeadColumns];
    }
#pragma unroll 1
    for (int i = thread; i < s.replays * kHeads; i += kThreads)
        shared.replay_decays[i] =
            replay_row(net, s, i / kHeads)[decays + value_head(net, key_head, i % kHeads)];

    wait_for_previous_kernel();

    // The rows' vectors and gates. At one row the warps do different things side by side.
#pragma unroll 1
    for (; job < jobs; job += kThreads / kWarpLanes) {
        if (job != warp) vector.begin(net, s, job / 2, job % 2, key_head);
        vector.finish(net, s, job / 2, job % 2, shared.keys_queries + job * kSize);
    }
#pragma unroll 1
    for (int i = (thread + kThreads / 2) % kThreads; i < rows * kColumns; i += kThreads) {
        const int of = value_head(net, key_head, i % kColumns / kHeadColumns);
        const int channel = (2 * net.n_k + of) * kSize + rank * kHeadColumns + i % kHeadColumns;
        const float4 w = taps_of(net, channel);
        const int t = i / kColumns;
        shared.values[i] = silu(row_part(net, s, t, channel, w, ring_part(net, s, t, channel, w)));
    }
#pragma unroll 1
    for (int i = kThreads - 1 - thread; i < rows * kHeads; i += kThreads) {
        const std::int64_t m = s.begin + i / kHeads;
        const int of = value_head(net, key_head, i % kHeads);
        float* gates = shared.gates + i / kHeads * 2 * kHeads + i % kHeads;
        gates[0] = expf(log_decay(net, m, of));
        gates[kHeads] = write_strength(net, m, of);
    }
    // What the end needs, on its way already: at one row every thread has one output at most.
    const auto column_of = [&](int i) {
        return value_head(net, key_head, i % kColumns / kHeadColumns) * kSize +
               rank * kHeadColumns + i % kHeadColumns;
    };
    float first_z = 0.0F;
    float first_weight = 0.0F;
    if (const int i = anew(thread); i < rows * kColumns) {
        first_z = net.z[(s.begin + i / kColumns) * net.z_stride + column_of(i)];
        first_weight = net.norm_weight[column_of(i) % kSize];
    }
    cluster_wait();
    __syncthreads();  // vectors, gates and what is replayed are written before they are read

    const LanePlace place = lane_place(anew(thread));
    float* const state = state_at(place);
#pragma unroll 1
    for (int r = 0; r < s.replays; ++r) {
        float key[kKeys];
        read_keys(key, shared.replay_keys + r * kSize + place.lane_in_column * 4);
        const float decay = shared.replay_decays[r * kHeads + place.head_index];
        const float* deltas = shared.replay_deltas + r * kColumns + place.block_column();
#pragma unroll
        for (int set = 0; set < kSets; ++set)
            memory[set].advance(decay, deltas[set * kSetColumns], key);
    }
    if (!s.commits || rows == 0)
        if (s.replays > 0 || s.before == 0) store_all(memory, state);

#pragma unroll 1
    for (int t = 0; t < rows; ++t) {
        const float* vectors = shared.keys_queries + t * 2 * kSize + place.lane_in_column * 4;
        float key[kKeys];
        float query[kKeys];
        read_keys(key, vectors);
        read_keys(query, vectors + kSize);
        float met = 0.0F;  // k.q
#pragma unroll
        for (int i = 0; i < kKeys; ++i)
            met = fmaf(key[i], query[i], met);
        met = column_sum(met);
        const float decay = shared.gates[t * 2 * kHeads + place.head_index];
        const float strength = shared.gates[(t * 2 + 1) * kHeads + place.head_index];
        float* slots = shared.values + t * kColumns + place.block_column();
        float squares = 0.0F;  // over the lane's columns, then the warp's
        float delta[kSets];
        float out[kSets];
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
            float recalled = 0.0F;  // u
            float answered = 0.0F;  // w
#pragma unroll
            for (int i = 0; i < kKeys; ++i) {
                recalled = fmaf(memory[set].value[i], key[i], recalled);
                answered = fmaf(memory[set].value[i], query[i], answered);
            }
            recalled = column_sum(recalled);
            answered = column_sum(answered);
            delta[set] = strength * (slots[set * kSetColumns] - decay * recalled);
            out[set] = fmaf(met, delta[set], decay * answered);
            memory[set].advance(decay, delta[set], key);
            squares = fmaf(out[set], out[set], squares);
        }
#pragma unroll
        for (int distance = kColumnLanes; distance < kWarpLanes; distance *= 2)
            squares += __shfl_xor_sync(~0U, squares, distance);
        if (lane_index() < kDeltaStepBlocks)
            send_to_block(
                shared.squares +
                    ((t * kHeads + place.head_index) * kDeltaStepBlocks + rank) * kHeadWarps +
                    place.head_column / kWarpColumns,
                lane_index(), squares, sums_here());
        __syncwarp();  // all lanes of a column have read v before o takes its place
        if (place.lane_in_column == 0) {
            const int column = keys + value_head(net, key_head, place.head_index) * kSize +
                               rank * kHeadColumns + place.head_column;
#pragma unroll
            for (int set = 0; set < kSets; ++set) {
                slots[set * kSetColumns] = out[set];
                if (!s.commits) replay_row(net, s, t)[column + set * kSetColumns] = delta[set];
            }
        }
    }

    // Bare: what it orders are reads of old inputs and replay rows, whose values have been used.
    cluster_arrive_bare();
    if (s.commits && rows > 0) store_all(memory, state);
    // The last inputs of the step; reading them again is cheaper than keeping them.
    constexpr int kVectorChannels = 2 * kSize / kDeltaStepBlocks;  // of q and k, of this block
    constexpr int kChannels = kVectorChannels + kColumns;
    const auto channel_of = [&](int i) {
        if (i < kVectorChannels) {
            const int element = rank * kVectorChannels + i;  // of q, then k
            return (element / kSize * net.n_k + key_head) * kSize + element % kSize;
        }
        const int column = i - kVectorChannels;
        const int of = value_head(net, key_head, column / kHeadColumns);
        return (2 * net.n_k + of) * kSize + rank * kHeadColumns + column % kHeadColumns;
    };
    const int kept = rows < net.ring ? rows : net.ring;
    float first_input = 0.0F;
    if (const int i = anew(thread); i < kept * kChannels)
        first_input = net.u[(s.begin + rows - kept + i / kChannels) * net.u_stride +
                            channel_of(i % kChannels)];
    barrier_wait(sums_here(), 0);
    __syncthreads();  // outputs are in place of v

    const int first = anew(thread);
#pragma unroll 1
    for (int i = first; i < rows * kColumns; i += kThreads) {
        const int t = i / kColumns;
        const int of_index = i % kColumns / kHeadColumns;
        const float* parts =
            shared.squares + (t * kHeads + of_index) * kDeltaStepBlocks * kHeadWarps;
        float squares = 0.0F;
#pragma unroll
        for (int part = 0; part < kHeadParts; part += 4) {
            const float4 four = *reinterpret_cast<const float4*>(parts + part);
            squares += four.x + four.y + (four.z + four.w);
        }
        const float factor = 1.0F / sqrtf(squares / static_cast<float>(kSize) + net.norm_eps);
        const std::int64_t m = s.begin + t;
        const int column = column_of(i);
        const float weight = i == first ? first_weight : net.norm_weight[column % kSize];
        const float z = i == first ? first_z : net.z[m * net.z_stride + column];
        net.y[m * net.y_stride + column] = shared.values[i] * factor * weight * silu(z);
    }
    cluster_wait();  // every block of the key head has read old inputs and replay rows
#pragma unroll 1
    for (int i = first; i < kept * kChannels; i += kThreads) {
        const int t = rows - kept + i / kChannels;
        const int channel = channel_of(i % kChannels);
        ring_row(net, s, s.before + t)[channel] =
            i == first ? first_input : net.u[(s.begin + t) * net.u_stride + channel];
    }
    if (!s.commits) {
#pragma unroll 1
        for (int i = first; i < rows * kHeadColumns; i += kThreads) {
            const int element = rank * kHeadColumns + i % kHeadColumns;
            replay_row(net, s, i / kHeadColumns)[key_head * kSize + element] =
                shared.keys_queries[i / kHeadColumns * 2 * kSize + element];
        }
#pragma unroll 1
        for (int i = first; rank == 0 && i < rows * kHeads; i += kThreads)
            replay_row(net, s, i / kHeads)[decays + value_head(net, key_head, i % kHeads)] =
                shared.gates[i / kHeads * 2 * kHeads + i % kHeads];
    }
    clear_padding<kHeads>(p, key_head, rank);
}

}  // namespace

// Named by the value heads of a key head. Two blocks or more fit a multiprocessor, so that one
// loads while the other computes.
extern "C" __global__ void __cluster_dims__(kDeltaStepBlocks, 1, 1) __launch_bounds__(64, 12)
    delta_step_1(const __grid_constant__ DeltaStepParams p) {
    delta_step<1>(p);
}
extern "C" __global__ void __cluster_dims__(kDeltaStepBlocks, 1, 1) __launch_bounds__(128, 6)
    delta_step_2(const __grid_constant__ DeltaStepParams p) {
    delta_step<2>(p);
}
extern "C" __global__ void __cluster_dims__(kDeltaStepBlocks, 1, 1) __launch_bounds__(192, 4)
    delta_step_3(const __grid_constant__ DeltaStepParams p) {
    delta_step<3>(p);
}
extern "C" __global__ void __cluster_dims__(kDeltaStepBlocks, 1, 1) __launch_bounds__(256, 3)
    delta_step_4(const __grid_constant__ DeltaStepParams p) {
    delta_step<4>(p);
}

}  // namespace kernels::cuda
