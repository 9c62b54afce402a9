// cos and sin of every rotary angle, made once in double precision: at position 262144 the float
// product of position and frequency is already off by about 1e-2 rad for the fastest pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replica/model/config.h"

namespace replica {

/// Table [positions, n_rot]: cosines of the n_rot/2 pairs, then their sines. Scaling (linear, YaRN)
/// is folded in. `frequency_divisors` [n_rot/2] divides each pair's angle (Llama 3's rope_freqs);
/// empty = none.
std::vector<float> make_rope_table(const ModelConfig& config, std::int32_t positions,
                                   std::span<const float> frequency_divisors);

}  // namespace replica
