// embed_rows: x[m] = the embedding of row m's token, decoded from the table's file blocks or
// records.
//
// Shapes    table [V, k] in up to four segments of any type; x [rows, k] f32
// Moves     rows * (row_bytes + 4 k) bytes
// Floor     a launch: even 64 rows of 5120 are 1.6 MB
// Plan      one block per row, eight values per thread and turn; rows without a token become 0
// Source    bit-equal to kernels/quant/decode.cpp, checked by kernel-gate
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/decode_packed.cuh"
#include "kernels/cuda/params.h"
#include "kernels/tensor.h"

namespace kernels::cuda {
namespace {

__device__ void decode_any(const SegmentView& segment, const std::uint8_t* row, int k, int k_end,
                           float* out) {
    switch (static_cast<DType>(segment.dtype)) {
        case DType::kF32:
            return FormatF32::decode(row, k, k_end, out);
        case DType::kF16:
            return FormatF16::decode(row, k, k_end, out);
        case DType::kBF16:
            return FormatBF16::decode(row, k, k_end, out);
        case DType::kQ8_0:
            return FormatQ8_0::decode(row, k, k_end, out);
        case DType::kQ4_0:
            return FormatQ4_0::decode(row, k, k_end, out);
        case DType::kQ4_1:
            return FormatQ4_1::decode(row, k, k_end, out);
        case DType::kQ5_0:
            return FormatQ5_0::decode(row, k, k_end, out);
        case DType::kQ5_1:
            return FormatQ5_1::decode(row, k, k_end, out);
        case DType::kIQ4_NL:
            return FormatIQ4_NL::decode(row, k, k_end, out);
        case DType::kQ2_K:
            return FormatQ2_K::decode(row, k, k_end, out);
        case DType::kQ3_K:
            return FormatQ3_K::decode(row, k, k_end, out);
        case DType::kQ4_K:
            return FormatQ4_K::decode(row, k, k_end, out);
        case DType::kQ5_K:
            return FormatQ5_K::decode(row, k, k_end, out);
        case DType::kQ6_K:
            return FormatQ6_K::decode(row, k, k_end, out);
        case DType::kIQ4_XS:
            return FormatIQ4_XS::decode(row, k, k_end, out);
        case DType::kI32:
            return;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    embed_rows(const __grid_constant__ EmbedParams p) {
    const int m = static_cast<int>(blockIdx.x);
    if (m >= *p.step.rows) return;
    const int token = p.step.token[m];
    float* x = p.x + m * p.x_stride;
    int s = 0;
    while (s + 1 < p.segment_count && token >= p.segments[s + 1].first)
        ++s;
    const SegmentView& segment = p.segments[s];
    const int index = token - segment.first;
    const std::uint8_t* row = segment.blocks + index * segment.row_bytes;
    for (int k = static_cast<int>(threadIdx.x) * kGroup; k < p.k;
         k += static_cast<int>(blockDim.x) * kGroup) {
        float out[kGroup] = {};
        if (token >= 0 && segment.is_packed)
            decode_packed(segment, index, k, p.k, out);
        else if (token >= 0)
            decode_any(segment, row, k, p.k, out);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            if (k + j < p.k) x[k + j] = out[j];
    }
}

}  // namespace kernels::cuda
