// Device memory that operations work in, reserved once by `prepare`. How much of what is a pure
// plan, so that a memory plan can ask for the sum before anything is taken.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"

namespace kernels::cuda {

/// In bytes, unless it says otherwise.
struct ScratchPlan {
    std::int64_t row_floats = 0;  // of a row of `rows`
    std::int64_t k_records = 0;   // of the largest K

    std::int64_t rows = 0;       // rows of x for a linear
    std::int64_t x = 0;          // x as matmul_wide reads it
    std::int64_t x_factors = 0;  // a power of two each
    std::int64_t partials = 0;   // parts of tiles that blocks share
    std::int64_t wide_parts = 0;  // the same, of matmul_wide
    std::int64_t matmul_arrivals = 0;
    std::int64_t lane_x = 0;  // x for the products of sm_70, and what lies beside it
    std::int64_t lane_sides = 0;
    std::int64_t lane_partials = 0;
    std::int64_t attention_parts = 0;
    std::int64_t attention_arrivals = 0;

    std::int64_t sampling = 0;  // rules and drawn tokens; the sampler takes it

    std::int64_t delta_chunk = 0;  // chunks between its two kernels

    std::int64_t prefill_rows = 0;  // a count; 0 = the path takes no part
    std::int64_t prefill_exponents = 0;
    std::int64_t prefill_weights = 0;  // a slice of a matrix in binary16
    std::int64_t prefill_sums = 0;     // and its results
    std::int64_t prefill_workspace = 0;

    /// Of device memory, whole pages of the driver.
    std::uint64_t device_bytes() const;
};

struct ScratchQuery {
    StepLimits limits;
    std::int32_t multiprocessors = 0;
    std::span<const Matrix> matrices;  // empty = not yet packed: no less than any would need
    bool with_prefill = false;
    bool with_lanes = false;  // the code is sm_70's, which has products of its own
};
ScratchPlan scratch_plan(const ScratchQuery& query);

/// Takes all but the prefill's share, and tells operations where. Throws CudaError.
void reserve_scratch(const ScratchPlan& plan, const DeviceFacts& facts, const Driver& driver,
                     Arena& arena, OpContext& op);

}  // namespace kernels::cuda
