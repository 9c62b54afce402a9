// From blocks to floats, bit-exact: products are taken in f32 in the order the formats define, and
// nothing is fused. This is what every faster kernel is compared with.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kernels {

/// Decodes `values` values (whole blocks) from `blocks` into `out`.
/// Every supported type but I32. Non-finite scales give non-finite values and nothing worse.
void decode_row(DType dtype, const void* blocks, float* out, std::int64_t values);

}  // namespace kernels
