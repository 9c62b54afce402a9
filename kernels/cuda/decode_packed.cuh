// Eight consecutive weights of a row from packed records, to the bit what decode.cuh makes of the
// file's blocks. For embeddings, which read rows of a matrix that the head multiplies.
#pragma once

#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/lane_order.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

__device__ inline float float_of_half_bits(int bits) {
    return half_to_float(static_cast<std::uint16_t>(bits));
}

template <DType kType, class Row>
__device__ float packed_weight(const Row& row, int input) {
    const int code = row.code(input);
    if constexpr (kType == DType::kIQ4_XS) {
        const float scale =
            float_of_half_bits(row.d(0)) * static_cast<float>(row.signed_scale(input / 32));
        return scale * iq4_level(code);
    } else if constexpr (kType == DType::kQ6_K) {
        const float scale =
            float_of_half_bits(row.d(0)) * static_cast<float>(row.signed_scale(input / 16));
        return scale * static_cast<float>(code - 32);
    } else if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
        const float scale =
            float_of_half_bits(row.d(0)) * static_cast<float>(row.scale(input / 32));
        const float min =
            float_of_half_bits(row.d(1)) * static_cast<float>(row.scale(8 + input / 32));
        return scale * static_cast<float>(code) - min;
    } else {
        const int i = input / 32 * 2;
        const float d = float_of_half_bits(row.scale(i) | row.scale(i + 1) << 8);
        if constexpr (kType == DType::kQ8_0)
            return d * static_cast<float>(static_cast<std::int8_t>(code));
        if constexpr (kType == DType::kQ4_0) return static_cast<float>(code - 8) * d;
        return d * iq4_level(code);
    }
}

template <DType kType>
__device__ void decode_records(const SegmentView& segment, int index, int k, int k_end,
                               float* out) {
    using F = PackedFormat<kType>;
    const std::int64_t records = (k_end + kRecordInputs - 1) / kRecordInputs;
    if (segment.has_lanes) {
        using Layout = LaneLayout<F>;
        const PackedRow<F, Layout> packed{
            segment.blocks + (index / kLaneRows * records + k / kRecordInputs) * Layout::kBytes,
            index % kLaneRows};
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = packed_weight<kType>(packed, k % kRecordInputs + j);
        return;
    }
    int tile = index / kTileRows;
    int row = index % kTileRows;
    if (segment.is_interleaved) {
        const int half = segment.outputs / 2;
        const int own = index < half ? index : index - half;
        tile = own / (kTileRows / 2);
        row = own % (kTileRows / 2) + (index < half ? 0 : kTileRows / 2);
    }
    const PackedRow<F> packed{
        segment.blocks + (tile * records + k / kRecordInputs) * RecordLayout<F>::kBytes, row};
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
        out[j] = packed_weight<kType>(packed, k % kRecordInputs + j);
}

/// Row `index` of the segment, inputs k .. k + 7 of k_end.
__device__ inline void decode_packed(const SegmentView& segment, int index, int k, int k_end,
                                     float* out) {
    switch (static_cast<DType>(segment.dtype)) {
        case DType::kIQ4_XS:
            return decode_records<DType::kIQ4_XS>(segment, index, k, k_end, out);
        case DType::kQ6_K:
            return decode_records<DType::kQ6_K>(segment, index, k, k_end, out);
        case DType::kQ5_K:
            return decode_records<DType::kQ5_K>(segment, index, k, k_end, out);
        case DType::kQ4_K:
            return decode_records<DType::kQ4_K>(segment, index, k, k_end, out);
        case DType::kQ8_0:
            return decode_records<DType::kQ8_0>(segment, index, k, k_end, out);
        case DType::kQ4_0:
            return decode_records<DType::kQ4_0>(segment, index, k, k_end, out);
        case DType::kIQ4_NL:
            return decode_records<DType::kIQ4_NL>(segment, index, k, k_end, out);
        default:
            return;
    }
}

}  // namespace kernels::cuda
