// The launchers behind the backend: each checks its arguments, fills a kernel's parameters and
// enqueues it. None synchronises or allocates.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/attention_registry.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/lane_registry.h"
#include "kernels/cuda/matmul_plans.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

inline constexpr int kStateSizeMax = 128;  // of the delta net; one warp owns 8 of its columns
inline constexpr int kConvKernelMax = 8;
inline constexpr int kHeadDimMax = 256;

/// Reserved by `prepare` for matmul_mma: rows of x as it reads them, parts of shared tiles.
struct MatmulScratch {
    std::int32_t k_records = 0;  // of the largest K
    std::uint8_t* x = nullptr;   // [k_records] stages of kMatmulColumnsMax rows
    float* x_factors = nullptr;  // [kMatmulColumnsMax]
    float* partials = nullptr;
    float* wide_parts = nullptr;        // kNoPart between launches
    std::uint32_t* arrivals = nullptr;  // zero between launches
    std::int32_t multiprocessors = 0;
    std::int32_t shared_bytes_max = 0;
    MatmulPlans* plans = nullptr;
};

/// Reserved by `prepare` for the products of sm_70, on whose code alone it is.
struct LaneScratch {
    std::int32_t slabs = 0;     // of the largest K
    void* x = nullptr;          // [slabs] of kLaneColumnsMax rows, as PrepareLanesParams says
    void* sides = nullptr;      // the same
    float* factors = nullptr;   // [kLaneColumnsMax]
    float* partials = nullptr;  // lane_partial_floats
    const LaneRegistry* registry = nullptr;
};

/// Reserved by `prepare` for attention_decode.
struct AttentionScratch {
    float* parts = nullptr;  // of `floats`: each block's slots, then results of groups
    std::int64_t floats = 0;
    std::uint32_t* arrivals = nullptr;  // zero between launches
    std::int32_t multiprocessors = 0;
    AttentionRegistry* registry = nullptr;
};

/// Reserved by `prepare` for delta_chunk.
struct DeltaChunkScratch {
    std::uint8_t* scratch = nullptr;
    std::int64_t bytes = 0;
};
class DeltaNetRegistry;

class LtProducts;

/// Scratch of the prefill path, in bytes.
struct PrefillNeed {
    std::int64_t weights = 0, sums = 0;
};

/// Reserved by `prepare` for products of many tokens; without `products` the path is off.
struct PrefillScratch {
    LtProducts* products = nullptr;
    std::uint16_t* x = nullptr;  // [rows, K rounded up to 64] binary16; shares OpContext.scratch
    std::int32_t* exponents = nullptr;  // [rows]
    std::uint16_t* weights = nullptr;   // a slice of a matrix in binary16
    float* sums = nullptr;              // its results, where they need an epilogue of ours
    std::int64_t rows = 0;              // tokens of the largest step
    std::int64_t rows_min = 0;          // 0 = by the table; else from so many tokens on
    std::int64_t weight_bytes = 0;      // of a slice
    std::int64_t bytes = 0;             // of all of it
    std::uint64_t skipped = 0;          // operations of many tokens that others had to serve
};

/// What every launcher works with. Owned by the backend.
struct OpContext {
    KernelSet* kernels = nullptr;
    StreamHandle stream = nullptr;
    const StepDescriptor* step = nullptr;  // host's copy: sizes of grids
    StepView view;                         // device's copy: what kernels read
    float* scratch = nullptr;              // [rows, scratch_stride] rows of x for a linear
    std::int64_t scratch_stride = 0;       // a multiple of 8
    MatmulScratch matmul;
    LaneScratch lanes;
    AttentionScratch attention;
    DeltaChunkScratch delta_chunk;
    DeltaNetRegistry* delta_net = nullptr;
    PrefillScratch* prefill = nullptr;
};

/// RMSNorm (or a copy, without weight) of `rows` rows.
struct NormJob {
    std::int64_t rows = 0;
    const std::int32_t* live_rows = nullptr;  // device
    const std::int32_t* row_map = nullptr;    // device; null = in order
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    const float* weight = nullptr;
    float eps = 0.0F;
    std::int64_t k = 0;
    std::int64_t k_padded = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};

/// A linear operation with its rows spelled out: LinearArgs, or the head on chosen rows.
struct LinearJob {
    const Matrix* matrix = nullptr;
    std::int64_t rows = 0;
    const std::int32_t* live_rows = nullptr;  // device
    const std::int32_t* row_map = nullptr;    // device; null = in order
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    const float* norm_weight = nullptr;
    float norm_eps = 0.0F;
    const float* bias = nullptr;
    Epilogue epilogue = Epilogue::kStore;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};

void launch_embed(const OpContext& context, const Matrix& table, const TensorView& x);
void launch_norm(const OpContext& context, const NormJob& job);
void launch_linear(const OpContext& context, const LinearJob& job);

/// Outputs [begin, end) of a job's matrix, to columns from `y` on.
struct OutputRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    float* y = nullptr;
    LinearEpilogue epilogue = LinearEpilogue::kStore;
};
/// The packed segments' share of the range, by matmul_mma.
void launch_matmul(const OpContext& context, const LinearJob& job, const OutputRange& range);
/// The same where lanes own rows, by matmul_dp4a or matmul_hmma.
void launch_lanes(const OpContext& context, const LinearJob& job, const OutputRange& range);

/// Is a job of so many tokens better by cuBLASLt? And can it be had?
bool wants_prefill(const OpContext& context, const LinearJob& job);
bool has_prefill(const OpContext& context, const LinearJob& job);
std::uint64_t prefill_id(const OpContext& context, const Matrix& matrix, std::int64_t rows);
/// The whole job by de-quantising and cuBLASLt.
void launch_prefill(const OpContext& context, const LinearJob& job);
/// Bytes of scratch for matrices and step; and algorithms for all of their shapes, once the scratch
/// is there: the reason when one has none.
PrefillNeed prefill_need(std::span<const Matrix> matrices, std::int64_t rows);
std::string prepare_prefill(const OpContext& context, std::span<const Matrix> matrices);
/// For measuring: the first slice de-quantised, bytes moved; and a product of what lies there.
std::int64_t dequantise_slice(const OpContext& context, const Matrix& matrix);
void multiply_scratch(const OpContext& context, std::int64_t n, std::int64_t k, std::int64_t rows);
/// Lets the kernels have their shared memory.
bool allow_prefill(KernelSet& kernels);
/// Starts `largest` of every unpacked segment's weights into words [matrix * kSegmentsMax +
/// segment].
void launch_largest(const OpContext& context, std::span<const Matrix> matrices,
                    std::uint32_t* words);

/// Packs file rows on the device into `packed`.
void launch_pack(KernelSet& kernels, StreamHandle stream, DType dtype, WeightOrder order,
                 const PackParams& params);
/// The largest weight of packed records, to `params.peak`.
void launch_peak(KernelSet& kernels, StreamHandle stream, DType dtype, const PeakParams& params);
void launch_delta_net(const OpContext& context, const DeltaNetArgs& args);
void launch_attention(const OpContext& context, const AttentionArgs& args);
/// Reads `bytes` from `from` once with `blocks` blocks; `sink` is one word nobody reads.
void launch_read_stream(const OpContext& context, const void* from, std::int64_t bytes,
                        std::int64_t blocks, unsigned* sink);

}  // namespace kernels::cuda
