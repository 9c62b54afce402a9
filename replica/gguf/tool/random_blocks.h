// Random weights, written straight as blocks: as fast as memory and the same for every number of
// threads, since block b of a tensor depends on the seed, the tensor and b alone.
//
// Codes are random bits and scales are chosen such that the decoded values have mean 0 and the
// wished standard deviation. The search encoders would need hours for a 27B model; this needs
// seconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace replica {

/// What a random tensor is like: mean + deviation * (random with mean 0, deviation 1, bounded).
struct Distribution {
    float mean = 0.0F;  // only for F32
    float deviation = 1.0F;
};

/// Writes blocks [block_begin, block_end) of a tensor. `stream` names the tensor under the seed.
/// F32 F16 BF16 Q8_0 Q4_0 IQ4_NL IQ4_XS Q4_K Q5_K Q6_K.
void fill_random_blocks(kernels::DType dtype, Distribution distribution, std::uint64_t stream,
                        std::int64_t block_begin, std::int64_t block_end, std::byte* blocks);

/// True for the types fill_random_blocks writes.
bool can_fill_random(kernels::DType dtype);

/// A well mixed stream number for tensor `index` of the model with `seed`.
std::uint64_t random_stream(std::uint64_t seed, std::uint64_t index);

}  // namespace replica
