// Encoders that follow from the extremes of a block, without a search. One block per call.
#pragma once

#include "kernels/quant/blocks.h"

namespace kernels {

void encode_block(const float* x, BlockQ8_0& block);
void encode_block(const float* x, BlockQ4_0& block);
void encode_block(const float* x, BlockQ4_1& block);
void encode_block(const float* x, BlockQ5_0& block);
void encode_block(const float* x, BlockQ5_1& block);

}  // namespace kernels
