// The plan of a product of a packed matrix with up to 64 tokens: pure host code, without CUDA.
//
// Which kernel, how much of x shared memory holds, how the work is cut (matmul_cut.h). A refusal is
// text. `numerics_id` names what a row's bits depend on: equal ids, equal bits, whatever the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "kernels/cuda/matmul_cut.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

struct MatmulQuery {
    DType dtype = DType::kIQ4_XS;
    std::int64_t step_rows = 1;  // tokens of the whole step: they share one numerics id
    std::int64_t rows = 1;       // tokens, 1..kMatmulColumnsMax
    std::int64_t tiles = 0;      // of 16 outputs
    std::int64_t k = 0;
    std::int32_t multiprocessors = 0;
    std::int32_t shared_bytes_max = 0;  // of a block
    std::int32_t pairs_max = 0;         // of blocks with kPair; 0 = as many as the device holds

    bool operator==(const MatmulQuery&) const = default;
};

/// Which kernel: how work is cut over blocks.
enum class MatmulWay : std::uint8_t {
    kJoined,  // matmul_mma: equal runs, tiles are joined through global memory
    kWhole,   // matmul_whole: blocks own whole tiles
    kPair,    // matmul_pair: two blocks share whole tiles, a half of K each
    kWide     // matmul_wide: the cut of kJoined for more than eight columns
};

struct MatmulPlan {
    MatmulWay way = MatmulWay::kJoined;
    std::int32_t columns = 8;  // above 8 with kWide alone: 16, 32, 64
    std::int32_t threads = 0;
    MatmulCut cut{};  // of units over blocks; kWhole and kPair cut tiles, k_records and blocks stay
    std::int32_t window_slots = 0;    // records of x that shared memory holds
    std::int32_t window_columns = 0;  // rows of x that are staged
    std::int32_t pair_slots = 0;      // kPair: parts of a block
    std::int32_t shared_bytes = 0;
    std::int64_t partial_floats = 0;
    std::int64_t weight_bytes = 0;  // read once
    std::uint64_t numerics_id = 0;  // equal ids: a row has equal bits
};

/// The plan, or why there is none.
tl::expected<MatmulPlan, std::string> matmul_plan(const MatmulQuery& query);

/// Two segments of a matrix as one launch of pairs: the plan of each, with its share of the pairs.
struct MatmulMixPlan {
    MatmulPlan first, second;
};
/// None: not both go by pairs.
std::optional<MatmulMixPlan> matmul_mix_plan(MatmulQuery first, MatmulQuery second);

/// The power of two that puts a matrix's largest weight into [2^14, 2^15); 1 when it has none.
float weight_unit(float peak);

/// What all plans for one matrix need at most: scratch is reserved once. Up to eight rows, and
/// above.
std::int64_t matmul_partial_floats(std::int32_t multiprocessors);
std::int64_t matmul_wide_part_floats(std::int32_t multiprocessors);

}  // namespace kernels::cuda
