// What the delta net's kernels make of a row's inputs: the convolution over the ring and the step's
// rows, SiLU, gates, and where things lie. One text for delta_step and delta_chunk.
#pragma once

#include <cstdint>

#include "kernels/cuda/delta_step.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

inline constexpr int kTaps = kDeltaTaps;
inline constexpr float kUnitEps = 1e-6F;       // of the L2 norms (model-qwen35.md 4.3)
inline constexpr float kSoftplusLine = 20.0F;  // from here on softplus(x) is x

/// A sequence's share of the step, read once.
struct DeltaSequence {
    int begin, rows, before, slot, replays;
    bool commits;
};

__device__ inline DeltaSequence delta_sequence(const StepView& step, int s) {
    const int begin = step.row_begin[s];
    return {.begin = begin,
            .rows = step.row_begin[s + 1] - begin,
            .before = step.kv_len_before[s],
            .slot = step.state_slot[s],
            .replays = step.replay_rows[s],
            .commits = step.commit[s] != 0};
}

__device__ inline int conv_dim(const DeltaNetParams& p) {
    return (2 * p.n_k + p.n_v) * p.state_size;
}
/// Value head `index` of those that read `key_head`.
__device__ inline int value_head(const DeltaNetParams& p, int key_head, int index) {
    return p.is_grouped ? key_head * (p.n_v / p.n_k) + index : index * p.n_k + key_head;
}

__device__ inline float* ring_row(const DeltaNetParams& p, const DeltaSequence& s, int position) {
    return p.conv_ring + s.slot * p.conv_ring_stride +
           static_cast<std::int64_t>(position % p.ring) * conv_dim(p);
}

/// Row `index` of the sequence's replay buffer: keys, deltas, decays.
__device__ inline float* replay_row(const DeltaNetParams& p, const DeltaSequence& s, int index) {
    return p.replay + s.slot * p.replay_stride + index * p.replay_row;
}

__device__ inline float4 taps_of(const DeltaNetParams& p, int channel) {
    return *reinterpret_cast<const float4*>(p.conv_w + static_cast<std::int64_t>(channel) * kTaps);
}
__device__ inline float tap(const float4& w, int j) {
    return j == 0 ? w.x : j == 1 ? w.y : j == 2 ? w.z : w.w;
}

/// The convolution's sum for row `t` of the sequence in two parts that follow each other: over the
/// inputs of earlier steps, which lie in the ring, and over those of this step. What is in neither
/// part counts as zero, so that a sum has the same bits however its inputs are divided. No
/// branches: a branch around each load would wait for them one by one.
__device__ inline float ring_part(const DeltaNetParams& p, const DeltaSequence& s, int t,
                                  int channel, const float4& w) {
    float x[kTaps - 1];
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
        const int back = t - (kTaps - 1) + j;  // row of this step; of an earlier one below 0
        const bool is_there = back < 0 && s.before + back >= 0;
        const float value = ring_row(p, s, is_there ? s.before + back : 0)[channel];
        x[j] = is_there ? value : 0.0F;
    }
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j)
        sum = fmaf(tap(w, j), x[j], sum);
    return sum;
}
__device__ inline float row_part(const DeltaNetParams& p, const DeltaSequence& s, int t,
                                 int channel, const float4& w, float sum) {
    float x[kTaps];
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
        const int back = t - (kTaps - 1) + j;
        const float value = p.u[(s.begin + (back >= 0 ? back : t)) * p.u_stride + channel];
        x[j] = back >= 0 ? value : 0.0F;
    }
#pragma unroll
    for (int j = 0; j < kTaps; ++j)
        sum = fmaf(tap(w, j), x[j], sum);
    return sum;
}

/// Without the slow path of a division, whose branch would part the loads around it.
__device__ inline float silu(float x) {
    return x * __fdividef(1.0F, 1.0F + __expf(-x));
}

/// log of the decay factor of a row and value head; not above 0.
__device__ inline float log_decay(const DeltaNetParams& p, std::int64_t m, int head) {
    const float x = p.alpha[m * p.alpha_stride + head] + p.dt_bias[head];
    return p.a[head] * (x > kSoftplusLine ? x : log1pf(expf(x)));
}
__device__ inline float write_strength(const DeltaNetParams& p, std::int64_t m, int head) {
    return sigmoid(p.beta[m * p.beta_stride + head]);
}

}  // namespace kernels::cuda
