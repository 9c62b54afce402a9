// A head of q or k on its way into attention: RMSNorm, rotation. One text for all kernels, so that
// pages have the same bits whoever writes them.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

/// Norms and rotates a head: `in` [head_dim] to `head` [head_dim], shared memory of one warp.
__device__ inline void prepare_head(const AttentionParams& p, const float* in, const float* norm,
                                    int m, float* head) {
    const int lane = lane_index();
    float factor = 1.0F;
    if (norm != nullptr) {
        float squares = 0.0F;
        for (int i = lane; i < p.head_dim; i += kWarpLanes)
            squares = fmaf(in[i], in[i], squares);
        factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(p.head_dim) + p.norm_eps);
    }
    for (int i = lane; i < p.head_dim; i += kWarpLanes)
        head[i] = norm != nullptr ? in[i] * (factor * norm[i]) : in[i];
    __syncwarp();  // all of head is written before pairs are read across lanes
    const int pairs = p.n_rot / 2;
    const float* rope = p.rope + p.step.position[m] * p.rope_stride;
    for (int i = lane; i < pairs; i += kWarpLanes) {  // a pair belongs to one lane
        const int first = p.is_adjacent ? 2 * i : i;
        const int second = p.is_adjacent ? 2 * i + 1 : i + pairs;
        const float a = head[first];
        const float b = head[second];
        head[first] = a * rope[i] - b * rope[pairs + i];
        head[second] = a * rope[pairs + i] + b * rope[i];
    }
    __syncwarp();  // rotated before anyone reads
}

/// A head on its way: everything is asked for before anything is used, weights and angles before
/// the values, which may come later. The bits are those of prepare_head.
template <int kDim>
struct HeadLoad {
    static constexpr int kValues = kDim / kWarpLanes;
    static constexpr int kPairs = kDim / 2 / kWarpLanes;  // at most, of a lane
    float value[kValues], weight[kValues], cosine[kPairs], sine[kPairs];

    __device__ void load_tables(const AttentionParams& p, const float* norm, int m) {
        const int lane = lane_index();
        const int pairs = p.n_rot / 2;
        const float* rope = p.rope + p.step.position[m] * p.rope_stride;
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            weight[i] = norm != nullptr ? norm[lane + kWarpLanes * i] : 0.0F;
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
            const int pair = lane + kWarpLanes * i;
            cosine[i] = pair < pairs ? rope[pair] : 0.0F;
            sine[i] = pair < pairs ? rope[pairs + pair] : 0.0F;
        }
    }
    __device__ void load_values(const float* in) {
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            value[i] = in[lane_index() + kWarpLanes * i];
    }

    /// To `head` [kDim], shared memory of this warp.
    __device__ void finish(const AttentionParams& p, bool has_norm, float* head) const {
        const int lane = lane_index();
        float factor = 1.0F;
        if (has_norm) {
            float squares = 0.0F;
#pragma unroll
            for (int i = 0; i < kValues; ++i)
                squares = fmaf(value[i], value[i], squares);
            factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + p.norm_eps);
        }
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            head[lane + kWarpLanes * i] = has_norm ? value[i] * (factor * weight[i]) : value[i];
        __syncwarp();  // all of head is written before pairs are read across lanes
        const int pairs = p.n_rot / 2;
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {  // a pair belongs to one lane
            const int pair = lane + kWarpLanes * i;
            if (pair >= pairs) break;
            const int first = p.is_adjacent ? 2 * pair : pair;
            const int second = p.is_adjacent ? 2 * pair + 1 : pair + pairs;
            const float a = head[first];
            const float b = head[second];
            head[first] = a * cosine[i] - b * sine[i];
            head[second] = a * sine[i] + b * cosine[i];
        }
        __syncwarp();  // rotated before anyone reads
    }
    __device__ void finish_plain(float* head) const {
#pragma unroll
        for (int i = 0; i < kValues; ++i)
            head[lane_index() + kWarpLanes * i] = value[i];
        __syncwarp();  // written before anyone reads
    }
};

}  // namespace kernels::cuda
