// attention: KV append, then causal attention over the pages with an online softmax.
//
// Math      k, q: RMSNorm, rotation; y = sum_t softmax(q k_t / sqrt(D)) v_t, times sigmoid(gate)
// Shapes    AttentionParams; head_dim up to 256
// Moves     kv_len * 2 D elements per (row, query head): every head and row reads K and V anew
// Floor     bandwidth: see the README; this plain version stays far from it at long contexts
// Achieved  kernels/cuda/README.md
// Plan      attention_append: one warp per (row, KV head). attention_N: one block per (row, query
//           head); a warp takes every eighth token and keeps its own maximum, sum and output; the
//           warps' parts are merged in their order. A lane holds N values: lane + 32 i.
// Source    online softmax, Milakov and Gimelshein 2018; kernels/cpu/reference_attention.cpp
#include "kernels/cuda/attention_head.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {
namespace {

constexpr int kHeadDimMax = 256;
constexpr int kAttentionWarps = 8;

/// First element of token `token`, head `head` in a pool [blocks, n_kv, block_tokens, D].
__device__ std::int64_t page_offset(const AttentionParams& p, const std::int32_t* table, int token,
                                    int head) {
    const std::int64_t block = table[token / p.block_tokens];
    return block * p.page_stride +
           (static_cast<std::int64_t>(head) * p.block_tokens + token % p.block_tokens) * p.head_dim;
}

__device__ float load_page(const AttentionParams& p, const void* pages, std::int64_t at) {
    return p.is_f16 ? half_to_float(static_cast<const std::uint16_t*>(pages)[at])
                    : static_cast<const float*>(pages)[at];
}
__device__ void store_page(const AttentionParams& p, void* pages, std::int64_t at, float value) {
    if (p.is_f16) {
        static_cast<std::uint16_t*>(pages)[at] = float_to_half(value);
    } else {
        static_cast<float*>(pages)[at] = value;
    }
}

/// Other kernels take sequences of other lengths.
__device__ bool is_ours(const AttentionParams& p, int s) {
    const int rows = p.step.row_begin[s + 1] - p.step.row_begin[s];
    return rows >= p.seq_rows_min && rows <= p.seq_rows_max;
}

template <int kValues>
__device__ void attend(const AttentionParams& p) {
    __shared__ float q_shared[kHeadDimMax];
    __shared__ float part_out[kAttentionWarps][kHeadDimMax];
    __shared__ float part_max[kAttentionWarps];
    __shared__ float part_sum[kAttentionWarps];
    const int m = static_cast<int>(blockIdx.x);
    const int head = static_cast<int>(blockIdx.y);
    if (m >= *p.step.rows) return;
    const int lane = lane_index();
    const int warp = warp_index();
    const int s = p.step.seq_of_row[m];
    if (!is_ours(p, s)) return;
    const int tokens = p.step.kv_len_before[s] + m - p.step.row_begin[s] + 1;
    const std::int32_t* table =
        p.step.block_table + static_cast<std::int64_t>(s) * *p.step.table_stride;
    const int kv_head = head / (p.n_h / p.n_kv);
    const float* query =
        p.q + m * p.q_stride + static_cast<std::int64_t>(head) * p.head_dim * (p.has_gate ? 2 : 1);
    if (warp == 0) prepare_head(p, query, p.q_norm, m, q_shared);
    __syncthreads();  // q_shared is written by warp 0, read by all

    const float scale = 1.0F / sqrtf(static_cast<float>(p.head_dim));
    float q[kValues];
    float out[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        const int d = lane + kWarpLanes * i;
        q[i] = d < p.head_dim ? q_shared[d] * scale : 0.0F;
        out[i] = 0.0F;
    }
    float largest = -INFINITY;
    float sum = 0.0F;
    for (int token = warp; token < tokens; token += kAttentionWarps) {
        const std::int64_t at = page_offset(p, table, token, kv_head);
        float score = 0.0F;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
            const int d = lane + kWarpLanes * i;
            if (d < p.head_dim) score = fmaf(q[i], load_page(p, p.k_pages, at + d), score);
        }
        score = warp_sum(score);
        const float now = fmaxf(largest, score);
        const float keep = expf(largest - now);  // 0 at the first token
        const float weight = expf(score - now);
        sum = fmaf(sum, keep, weight);
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
            const int d = lane + kWarpLanes * i;
            if (d < p.head_dim)
                out[i] = fmaf(out[i], keep, weight * load_page(p, p.v_pages, at + d));
        }
        largest = now;
    }
    if (lane == 0) {
        part_max[warp] = largest;
        part_sum[warp] = sum;
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        const int d = lane + kWarpLanes * i;
        if (d < p.head_dim) part_out[warp][d] = out[i];
    }
    __syncthreads();  // the parts of all warps are written

    const int used = min(kAttentionWarps, tokens);  // a warp without tokens has no maximum
    float all_max = part_max[0];
    for (int w = 1; w < used; ++w)
        all_max = fmaxf(all_max, part_max[w]);
    float total = 0.0F;
    for (int w = 0; w < used; ++w)
        total += part_sum[w] * expf(part_max[w] - all_max);
    for (int d = static_cast<int>(threadIdx.x); d < p.head_dim; d += static_cast<int>(blockDim.x)) {
        float value = 0.0F;
        for (int w = 0; w < used; ++w)
            value = fmaf(part_out[w][d], expf(part_max[w] - all_max), value);
        const float gate = p.has_gate ? sigmoid(query[p.head_dim + d]) : 1.0F;
        p.y[m * p.y_stride + static_cast<std::int64_t>(head) * p.head_dim + d] =
            value / total * gate;
    }
}

}  // namespace

/// Block: one warp. Grid: rows x KV heads.
extern "C" __global__ void __launch_bounds__(kWarpLanes)
    attention_append(const __grid_constant__ AttentionParams p) {
    __shared__ float key[kHeadDimMax];
    const int m = static_cast<int>(blockIdx.x);
    const int head = static_cast<int>(blockIdx.y);
    if (m >= *p.step.rows) return;
    const int s = p.step.seq_of_row[m];
    if (!is_ours(p, s)) return;
    const int token = p.step.kv_len_before[s] + m - p.step.row_begin[s];
    const std::int32_t* table =
        p.step.block_table + static_cast<std::int64_t>(s) * *p.step.table_stride;
    const std::int64_t column = static_cast<std::int64_t>(head) * p.head_dim;
    prepare_head(p, p.k + m * p.k_stride + column, p.k_norm, m, key);
    const std::int64_t at = page_offset(p, table, token, head);
    for (int i = lane_index(); i < p.head_dim; i += kWarpLanes) {
        store_page(p, p.k_pages, at + i, key[i]);
        store_page(p, p.v_pages, at + i, p.v[m * p.v_stride + column + i]);
    }
}

// Block: 8 warps. Grid: rows x query heads.
extern "C" __global__ void __launch_bounds__(kAttentionWarps* kWarpLanes, 1)
    attention_2(const __grid_constant__ AttentionParams p) {
    attend<2>(p);
}
extern "C" __global__ void __launch_bounds__(kAttentionWarps* kWarpLanes, 1)
    attention_4(const __grid_constant__ AttentionParams p) {
    attend<4>(p);
}
extern "C" __global__ void __launch_bounds__(kAttentionWarps* kWarpLanes, 1)
    attention_8(const __grid_constant__ AttentionParams p) {
    attend<8>(p);
}

}  // namespace kernels::cuda
