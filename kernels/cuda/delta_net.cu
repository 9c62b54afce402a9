// delta_net: the plain form of the gated delta net over a step: accepted rows of the last verify
// step are replayed, then the step's own rows run; and behind it the convolution's ring and the
// keys to replay.
//
// Math      per value head, S [value, key], g = exp(a softplus(alpha + dt)), b = sigmoid(beta):
//           d = b (v - g S k);  S <- g S + d k^T;  o = S q;  y = RMSNorm(o) w silu(z)
//           q, k, v come from a causal convolution and SiLU, q and k as unit vectors
// Shapes    DeltaNetParams; state_size up to 128, any convolution length up to 8
// Moves     8 * state_size^2 bytes of state per head and sequence, whatever its rows are
// Floor     bandwidth: 48 heads of 128 are 6.3 MB a sequence and layer, 1.5 us at 4.3 TB/s
// Achieved  kernels/README.md
// Plan      one block per (sequence, value head), rows in order. A warp owns 8 value columns, its
//           lanes span the keys (key = lane + 32 i); S stays in registers from the first row to
//           the last, and is read and written once: after the rows, or before them when they may
//           be taken back. Such rows leave k, d, g behind; replaying them is the same fmaf on the
//           same values. step_inputs_store runs after it: heads share the convolution's inputs and
//           the keys, and read the old ones.
// Source    Yang et al. 2024, "Gated Delta Networks"; kernels/cpu/reference_delta_net.cpp
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {
namespace {

constexpr int kColumnsPerWarp = 8;
constexpr int kStateSizeMax = 128;

__device__ float softplus(float x) {
    return x > 20.0F ? x : log1pf(expf(x));
}

/// silu(convolution) of channel `channel` at row `t` of sequence `s`.
__device__ float convolved(const DeltaNetParams& p, int s, int t, int channel) {
    const std::int64_t conv_dim = (2 * p.n_k + p.n_v) * p.state_size;
    const int before = p.step.kv_len_before[s];
    const float* w = p.conv_w + static_cast<std::int64_t>(channel) * p.conv_kernel;
    float sum = 0.0F;
    for (int j = 0; j < p.conv_kernel; ++j) {
        const int position = before + t - (p.conv_kernel - 1) + j;
        if (position >= before) {
            const std::int64_t m = p.step.row_begin[s] + position - before;
            sum = fmaf(w[j], p.u[m * p.u_stride + channel], sum);
        } else if (position >= 0) {
            const float* slot = p.conv_ring + p.step.state_slot[s] * p.conv_ring_stride;
            sum = fmaf(w[j], slot[position % p.ring * conv_dim + channel], sum);
        }
    }
    return sum * sigmoid(sum);
}

/// Scales a vector that lies across the warp to `length`.
template <int kKeys>
__device__ void scale_to(float (&x)[kKeys], float length) {
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
        squares = fmaf(x[i], x[i], squares);
    const float factor = length / sqrtf(warp_sum(squares) + 1e-6F);
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
        x[i] *= factor;
}

/// Row `index` of the replay buffer of sequence `s`: keys, deltas, decays.
__device__ float* replay_row(const DeltaNetParams& p, int s, int index) {
    return p.replay + p.step.state_slot[s] * p.replay_stride + index * p.replay_row;
}

/// S <- decay S + delta k^T for one value column; the only expression of it.
template <int kKeys>
__device__ void decay_column(float (&memory)[kKeys], float decay) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
        memory[i] *= decay;
}
template <int kKeys>
__device__ void add_update(float (&memory)[kKeys], const float (&k)[kKeys], float delta) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
        memory[i] = fmaf(k[i], delta, memory[i]);
}

template <int kKeys>
__device__ void store_state(float* state, const float (&memory)[kColumnsPerWarp][kKeys], int size) {
    const int column0 = warp_index() * kColumnsPerWarp;
#pragma unroll
    for (int c = 0; c < kColumnsPerWarp; ++c)
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
            const int key = lane_index() + kWarpLanes * i;
            if (column0 + c < size && key < size) state[(column0 + c) * size + key] = memory[c][i];
        }
}

template <int kKeys>
__device__ void delta_net(const DeltaNetParams& p) {
    __shared__ float mixed[3 * kStateSizeMax];  // q, k, v of one row after the convolution
    __shared__ float out[kStateSizeMax];
    const int s = static_cast<int>(blockIdx.x);
    const int head = static_cast<int>(blockIdx.y);
    if (s >= *p.step.seqs) return;
    const int size = p.state_size;
    const int key_head = p.is_grouped ? head / (p.n_v / p.n_k) : head % p.n_k;
    const int lane = lane_index();
    const int column0 = warp_index() * kColumnsPerWarp;
    const int begin = p.step.row_begin[s];
    const int rows = p.step.row_begin[s + 1] - begin;
    const int replays = p.step.replay_rows[s];
    const bool commits = p.step.commit[s] != 0;
    if (rows <= p.rows_above || (rows == 0 && replays == 0)) return;
    const bool is_fresh = p.step.kv_len_before[s] == 0;
    const int keys = p.n_k * size;           // where deltas begin in a replay row
    const int decays = keys + p.n_v * size;  // and decays
    const bool speaks_for_key_head = p.is_grouped ? head % (p.n_v / p.n_k) == 0 : head < p.n_k;
    float* state = p.state + p.step.state_slot[s] * p.state_stride +
                   static_cast<std::int64_t>(head) * size * size;

    float memory[kColumnsPerWarp][kKeys];  // S [column0 + c, lane + 32 i]
#pragma unroll
    for (int c = 0; c < kColumnsPerWarp; ++c)
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
            const int key = lane + kWarpLanes * i;
            const bool is_inside = column0 + c < size && key < size;
            memory[c][i] = is_inside && !is_fresh ? state[(column0 + c) * size + key] : 0.0F;
        }

    for (int r = 0; r < replays; ++r) {
        const float* row = replay_row(p, s, r);
        float k[kKeys];
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
            const int key = lane + kWarpLanes * i;
            k[i] = key < size ? row[key_head * size + key] : 0.0F;
        }
#pragma unroll
        for (int c = 0; c < kColumnsPerWarp; ++c) {
            if (column0 + c >= size) continue;
            decay_column(memory[c], row[decays + head]);
            add_update(memory[c], k, row[keys + head * size + column0 + c]);
        }
    }
    if (!commits) {
        if (replays > 0 || is_fresh) store_state(state, memory, size);
        __syncthreads();  // all warps have read the old decays before a row writes its own
    }

    for (int t = 0; t < rows; ++t) {
        const std::int64_t m = begin + t;
        for (int i = static_cast<int>(threadIdx.x); i < 3 * size;
             i += static_cast<int>(blockDim.x)) {
            const int part = i / size;  // q, k or v
            const int first = part == 0   ? key_head * size
                              : part == 1 ? (p.n_k + key_head) * size
                                          : (2 * p.n_k + head) * size;
            mixed[i] = convolved(p, s, t, first + i % size);
        }
        __syncthreads();  // mixed is written before it is read

        float q[kKeys];
        float k[kKeys];
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
            const int key = lane + kWarpLanes * i;
            q[i] = key < size ? mixed[key] : 0.0F;
            k[i] = key < size ? mixed[size + key] : 0.0F;
        }
        scale_to(q, 1.0F / sqrtf(static_cast<float>(size)));
        scale_to(k, 1.0F);
        const float alpha = p.alpha[m * p.alpha_stride + head] + p.dt_bias[head];
        const float decay = expf(p.a[head] * softplus(alpha));
        const float beta = sigmoid(p.beta[m * p.beta_stride + head]);
        float* kept = commits ? nullptr : replay_row(p, s, t);
        if (kept != nullptr && warp_index() == 0) {
            if (lane == 0) kept[decays + head] = decay;
#pragma unroll
            for (int i = 0; i < kKeys; ++i) {
                const int key = lane + kWarpLanes * i;
                if (speaks_for_key_head && key < size)
                    p.keys[m * p.keys_stride + key_head * size + key] = k[i];
            }
        }
#pragma unroll
        for (int c = 0; c < kColumnsPerWarp; ++c) {
            if (column0 + c >= size) continue;  // the same for the whole warp
            decay_column(memory[c], decay);
            float recalled = 0.0F;
#pragma unroll
            for (int i = 0; i < kKeys; ++i)
                recalled = fmaf(memory[c][i], k[i], recalled);
            const float delta = beta * (mixed[2 * size + column0 + c] - warp_sum(recalled));
            add_update(memory[c], k, delta);
            float answer = 0.0F;
#pragma unroll
            for (int i = 0; i < kKeys; ++i)
                answer = fmaf(memory[c][i], q[i], answer);
            answer = warp_sum(answer);
            if (lane == 0) {
                out[column0 + c] = answer;
                if (kept != nullptr) kept[keys + head * size + column0 + c] = delta;
            }
        }
        __syncthreads();  // out is complete; mixed may be written for the next row

        float squares = 0.0F;
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
            const int value = lane + kWarpLanes * i;
            if (value < size) squares = fmaf(out[value], out[value], squares);
        }
        const float factor =
            1.0F / sqrtf(warp_sum(squares) / static_cast<float>(size) + p.norm_eps);
        const int value = static_cast<int>(threadIdx.x);
        if (value < size) {
            const std::int64_t column = static_cast<std::int64_t>(head) * size + value;
            const float z = p.z[m * p.z_stride + column];
            p.y[m * p.y_stride + column] =
                out[value] * factor * p.norm_weight[value] * (z * sigmoid(z));
        }
        // The next row writes out behind its first barrier, which all reads above come before.
    }
    if (commits) store_state(state, memory, size);
}

}  // namespace

// Blocks have ceil(state_size / 8) warps: a row's outputs fit the threads.
extern "C" __global__ void __launch_bounds__(512, 1)
    delta_net_1(const __grid_constant__ DeltaNetParams p) {
    delta_net<1>(p);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    delta_net_2(const __grid_constant__ DeltaNetParams p) {
    delta_net<2>(p);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    delta_net_4(const __grid_constant__ DeltaNetParams p) {
    delta_net<4>(p);
}

/// Puts the step's last inputs into the convolution rings, and the unit keys of rows that may be
/// taken back into the replay buffer. A thread per channel.
extern "C" __global__ void __launch_bounds__(256)
    step_inputs_store(const __grid_constant__ DeltaNetParams p) {
    const int s = static_cast<int>(blockIdx.y);
    const int conv_dim = (2 * p.n_k + p.n_v) * p.state_size;
    const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (s >= *p.step.seqs || channel >= conv_dim) return;
    const int begin = p.step.row_begin[s];
    const int rows = p.step.row_begin[s + 1] - begin;
    if (rows <= p.rows_above) return;
    const int before = p.step.kv_len_before[s];
    float* slot = p.conv_ring + p.step.state_slot[s] * p.conv_ring_stride + channel;
    for (int t = rows > p.ring ? rows - p.ring : 0; t < rows; ++t)
        slot[static_cast<std::int64_t>((before + t) % p.ring) * conv_dim] =
            p.u[(begin + t) * p.u_stride + channel];
    if (p.step.commit[s] != 0 || channel >= p.n_k * p.state_size) return;
    for (int t = 0; t < rows; ++t)
        replay_row(p, s, t)[channel] = p.keys[(begin + t) * p.keys_stride + channel];
}

}  // namespace kernels::cuda
