// Which kernels serve an operation on compute capability 7.0: a pure answer, made of the functions
// that the launchers choose with, so that a test can ask for all a model may want and find no hole.
//
//     operation            kernels
//     embed                embed_rows
//     norm (head, MTP)     norm_rows
//     linear, packed type  quantise_lanes, matmul_dp4a; or halve_lanes, matmul_hmma (,
//     finish_lanes) linear, other type   norm_rows where x must be made readable, linear delta_net
//     delta_net, step_inputs_store attention            attention_append, attention sample none:
//     the host draws from downloaded logits (kernels/sampling) slots                none: the
//     driver copies
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/kernel_names.h"

namespace kernels::cuda {

enum class ServedOp : std::uint8_t {
    kEmbed,
    kNorm,
    kLinear,
    kDeltaNet,
    kAttention,
    kSample,
    kSlots
};

struct ServingQuery {
    ServedOp op = ServedOp::kLinear;
    DType dtype = DType::kF32;  // of weights
    std::int64_t n = 1;
    std::int64_t k = 1;
    std::int64_t rows = 1;
    std::int32_t head_dim = 64;
    std::int32_t state_size = 128;
};

struct Serving {
    std::vector<KernelId> kernels;  // in the order of their launches, of one pass of rows
    bool is_by_host = false;
};
Serving serving_on_sm_70(const ServingQuery& query);

}  // namespace kernels::cuda
