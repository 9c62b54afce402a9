// One record of x, 256 inputs of a row, as the products read it: made by a warp. matmul_mma has a
// power of two for every record, matmul_wide one for the row.
//
// Math      v = x * weight; y = binary16(v / scale), scale the power of two that puts the record's
//           largest |v| into [2^13, 2^14): products and their sums then keep f32's accuracy, and
//           dividing is exact but for values below 2^-28 of the largest
// Order     16 bytes of a lane are inputs 2t, 2t+1, 2t+8, 2t+9 of two steps of 16 (t = lane mod 4):
//           what a lane of that t feeds to two mma as B operands
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/power_of_two.cuh"

namespace kernels::cuda {

inline constexpr int kChunkInputs = 8;  // of a lane

/// A row of x and where it ends.
struct XRow {
    const float* x;
    const float* weight;  // null = no norm
    int k;                // a multiple of 32
    bool is_paired;       // x and weight may be read by 8 bytes
};

struct XRecord {
    uint4 halves;   // this lane's chunk
    float scale;    // the same in every lane
    float sum;      // of y over 32 inputs, the same in each four lanes; only when asked for
    float squares;  // of x, the same in every lane
};

/// Input j of a lane's chunk within its record.
__device__ inline int chunk_input(int lane, int j) {
    return lane / 4 * 32 + 2 * (lane % 4) + j % 2 + 8 * (j / 2 % 2) + 16 * (j / 4);
}

__device__ inline void load_chunk(const float* from, bool is_paired, float (&v)[kChunkInputs]) {
#pragma unroll
    for (int j = 0; j < kChunkInputs; j += 2) {
        const float* at = from + chunk_input(0, j);
        if (is_paired) {
            const float2 two = *reinterpret_cast<const float2*>(at);
            v[j] = two.x;
            v[j + 1] = two.y;
        } else {
            v[j] = at[0];
            v[j + 1] = at[1];
        }
    }
}

/// This lane's part of record `record`; zeros past k.
__device__ inline void load_x(const XRow& row, int record, float (&v)[kChunkInputs]) {
    const int first = record * kRecordInputs + chunk_input(lane_index(), 0);
    if (first < row.k) {
        load_chunk(row.x + first, row.is_paired, v);
    } else {
#pragma unroll
        for (int j = 0; j < kChunkInputs; ++j)
            v[j] = 0.0F;
    }
}

/// Multiplies a chunk by the norm's weights; the record's sum of squares before that, the same in
/// every lane.
__device__ inline float weigh_chunk(const XRow& row, int record, float (&v)[kChunkInputs]) {
    const int first = record * kRecordInputs + chunk_input(lane_index(), 0);
    float weight[kChunkInputs] = {};
    if (first < row.k) load_chunk(row.weight + first, row.is_paired, weight);
    float squares = 0.0F;
#pragma unroll
    for (int j = 0; j < kChunkInputs; ++j) {
        squares = fmaf(v[j], v[j], squares);
        v[j] *= weight[j];
    }
    return warp_sum(squares);
}

__device__ inline uint4 round_chunk(const float (&v)[kChunkInputs], float inverse) {
    std::uint32_t pairs[kChunkInputs / 2];
#pragma unroll
    for (int j = 0; j < kChunkInputs; j += 2)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;"
            : "=r"(pairs[j / 2])
            : "f"(v[j + 1] * inverse), "f"(v[j] * inverse));
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

template <bool kHasSums>
__device__ inline XRecord make_x_record(const XRow& row, int record, float (&v)[kChunkInputs]) {
    XRecord result{};
    if (row.weight != nullptr) result.squares = weigh_chunk(row, record, v);
    float largest = 0.0F;
#pragma unroll
    for (int j = 0; j < kChunkInputs; ++j)
        largest = fmaxf(largest, fabsf(v[j]));
    // Positive floats are ordered as integers are.
    const PowerOfTwo unit = unit_of(__reduce_max_sync(~0U, __float_as_uint(largest)));
    result.scale = unit.value;
    result.halves = round_chunk(v, unit.inverse);
    if constexpr (kHasSums) {
        const std::uint32_t pairs[] = {result.halves.x, result.halves.y, result.halves.z,
                                       result.halves.w};
#pragma unroll
        for (const std::uint32_t pair : pairs)
            result.sum += half_to_float(static_cast<std::uint16_t>(pair & 0xFFFFU)) +
                          half_to_float(static_cast<std::uint16_t>(pair >> 16));
        result.sum += __shfl_xor_sync(~0U, result.sum, 1);
        result.sum += __shfl_xor_sync(~0U, result.sum, 2);
    }
    return result;
}

/// 1 / rms from the squares of all records, added in order of k.
template <class SquaresOf>
__device__ float norm_factor(int records, int k, float eps, const SquaresOf& squares_of) {
    float sum = 0.0F;
    for (int record = 0; record < records; ++record)
        sum += squares_of(record);
    return 1.0F / sqrtf(sum / static_cast<float>(k) + eps);
}

}  // namespace kernels::cuda
