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

}  // namespace kernels::cuda
