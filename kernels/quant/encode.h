// From floats to blocks: the encoders behind `quadriga-gguf quantize`.
//
// Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 follow from the extremes of a block. IQ4_NL, IQ4_XS, Q4_K, Q5_K
// and Q6_K search: they try a few dozen scales and keep the one with the least weighted square
// error. All are deterministic and give the bytes of llama.cpp's scalar build (hashes in
// tests/kernel/quant_encode_test.cpp), so this folder is compiled without fused multiply-adds.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kernels {

/// True for F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL IQ4_XS Q4_K Q5_K Q6_K.
bool can_encode(DType dtype);

/// Encodes `values` values (whole blocks) of one row into `blocks` (row_bytes(dtype, values)).
/// `importance` [values], or nullptr: mean square of the activations that meet each column; used by
/// the searching encoders, ignored by the others. Inputs are finite; a block that holds a
/// non-finite value gets unspecified codes and nothing worse.
void encode_row(DType dtype, const float* in, void* blocks, std::int64_t values,
                const float* importance);

}  // namespace kernels
