// Encoders that search for the scales with the least weighted error; one block per call.
// `importance` [values of the block] may be nullptr.
#pragma once

#include "kernels/quant/blocks.h"

namespace kernels {

void encode_block(const float* x, const float* importance, BlockIQ4_NL& block);
void encode_block(const float* x, const float* importance, BlockIQ4_XS& block);
void encode_block(const float* x, const float* importance, BlockQ4_K& block);
void encode_block(const float* x, const float* importance, BlockQ5_K& block);
void encode_block(const float* x, const float* importance, BlockQ6_K& block);

}  // namespace kernels
