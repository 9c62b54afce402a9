// The plan of a product of many tokens: de-quantise a slice of rows, multiply it by cuBLASLt, next.
// Pure host code, without CUDA.
//
// From how many tokens on this beats matmul_mma is read from a table measured on a card
// (prefill_table.h). An algorithm serves a bucket of token counts, the powers of two: within one, a
// row has the same bits whatever the count; `numerics_id` names bucket and matrix.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kernels::cuda {

struct PrefillQuery {
    DType dtype = DType::kIQ4_XS;  // of the largest segment
    std::int64_t n = 0, k = 0;     // of the matrix
    std::int32_t multiprocessors = 0;
};

/// Tokens from which on the path pays for this matrix.
std::int64_t prefill_rows_min(const PrefillQuery& query);

/// The token counts that share an algorithm: up to the returned power of two.
std::int64_t prefill_bucket(std::int64_t rows);

/// Inputs of a row of binary16 as cuBLASLt reads it: zeros behind k.
constexpr std::int64_t prefill_inputs(std::int64_t k) {
    return (k + 63) / 64 * 64;
}

/// What slices may take.
struct PrefillLimits {
    std::int64_t weight_bytes = std::int64_t{192} << 20;  // of a slice in binary16
    std::int64_t sum_bytes = std::int64_t{320} << 20;     // of its f32 results
    std::int64_t rows = 0;                                // tokens of the largest step
};
/// Matrix rows of a slice, a multiple of 16, at most `outputs` rounded up.
std::int64_t prefill_slice_rows(const PrefillLimits& limits, std::int64_t outputs, std::int64_t k);

/// The power of two that binary16 weights are multiplied by: puts the largest into [2^12, 2^13).
/// 0 when the largest is zero, infinite or no number; the path then leaves the matrix alone.
float prefill_weight_scale(float largest);

std::uint64_t prefill_numerics_id(const PrefillQuery& query, std::int64_t rows);

}  // namespace kernels::cuda
