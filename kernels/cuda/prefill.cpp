// Products of many tokens: x to binary16 once, then slice by slice of the matrix: de-quantise,
// multiply, finish. One slice of scratch serves all, in the order of the stream.
#include <algorithm>
#include <cassert>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/cuda/prefill_plan.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kDequantiseWarps = 16;  // dequantise.cuh
constexpr int kTableBytes = 256 * 256;
constexpr int kStageBytes = kDequantiseWarps * kTileRows * (2 * kRecordInputs + 16);
constexpr std::int64_t kDirectOutputs = 4;  // cuBLASLt writes f32 by 16 bytes

/// Rows [first, last) of a segment, whole tiles in front.
struct Slice {
    const SegmentView* segment;
    std::int64_t first, last;
    std::int64_t rows() const { return last - first; }
};

PrefillLimits limits_of(const PrefillScratch& scratch) {
    PrefillLimits limits;
    limits.weight_bytes = scratch.weight_bytes;
    limits.rows = scratch.rows;
    return limits;
}

DequantiseParams params_of(const Slice& slice, std::int64_t k) {
    const SegmentView& segment = *slice.segment;
    DequantiseParams p{};
    p.k = static_cast<std::int32_t>(k);
    p.ld = prefill_inputs(k);
    p.row_bytes = segment.row_bytes;
    if (segment.is_packed) {
        const auto dtype = static_cast<DType>(segment.dtype);
        p.k_records = static_cast<std::int32_t>(record_count(k));
        p.from = segment.blocks + slice.first / kTileRows * p.k_records * record_bytes(dtype);
        p.tiles = static_cast<std::int32_t>(tile_count(slice.rows()));
    } else {
        p.from = segment.blocks + slice.first * segment.row_bytes;
        p.tiles = static_cast<std::int32_t>(slice.rows());
    }
    return p;
}

/// `which` is 0 for all weights, 1 for the largest, of the file's rows only.
void launch_dequantise(const OpContext& context, const Slice& slice, const DequantiseParams& p,
                       std::size_t which) {
    const SegmentView& segment = *slice.segment;
    const auto dtype = static_cast<DType>(segment.dtype);
    const int type = dequantise_type_index(dtype, segment.is_packed);
    assert(type >= 0 && "uses_prefill has asked");
    const auto index = static_cast<std::size_t>(type);
    const KernelId id = segment.is_packed
                            ? kernel_after(KernelId::kDequantiseFirst, index)
                            : kernel_after(KernelId::kDequantiseFileFirst, 2 * index + which);
    const std::int64_t multiprocessors = context.matmul.multiprocessors;
    const std::int64_t groups = p.ld / 8;
    const std::int64_t blocks =
        segment.is_packed
            ? std::min(
                  multiprocessors,
                  (std::int64_t{p.tiles} * p.k_records + kDequantiseWarps - 1) / kDequantiseWarps)
            : std::min(4 * multiprocessors, (p.tiles * groups + kThreads - 1) / kThreads);
    const int table = dtype == DType::kQ8_0 ? 0 : kTableBytes;
    context.kernels->launch(id,
                            {.x = blocks,
                             .threads = kThreads,
                             .shared_bytes = segment.is_packed ? table + kStageBytes : 0,
                             .overlaps_previous = true},
                            context.stream, p);
}

LtProduct product_of(const OpContext& context, const Slice& slice, std::int64_t k,
                     std::int64_t rows) {
    LtProduct product;
    product.n = slice.rows();
    product.rows = rows;
    product.algorithm_rows = prefill_bucket(rows);
    product.k = prefill_inputs(k);
    product.w = context.prefill->weights;
    product.w_stride = prefill_inputs(k);
    product.x = context.prefill->x;
    product.x_stride = prefill_inputs(k);
    product.alpha = 1.0F / slice.segment->half_scale;
    return product;
}

void run_product(const OpContext& context, const LtProduct& product) {
    context.prefill->products->run(product, context.stream);
    context.kernels->trace("cublaslt", context.stream);
}

bool is_aligned16(const float* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

/// May cuBLASLt write every segment's outputs itself? Then their columns begin at 16 bytes.
bool is_direct(const LinearJob& job, const OutputRange& range) {
    if (range.epilogue != LinearEpilogue::kStore && range.epilogue != LinearEpilogue::kAdd)
        return false;
    return is_aligned16(range.y) && job.y_stride % kDirectOutputs == 0 &&
           std::ranges::all_of(job.matrix->used(), [&](const SegmentView& s) {
               return (s.first - range.begin) % kDirectOutputs == 0;
           });
}

void cast_rows(const OpContext& context, const LinearJob& job, float* added) {
    CastRowsParams p{};
    p.rows = job.live_rows;
    p.input.x = job.x;
    p.input.x_stride = job.x_stride;
    p.input.row_map = job.row_map;
    p.input.weight = job.norm_weight;
    p.input.eps = job.norm_eps;
    p.input.k = static_cast<std::int32_t>(job.matrix->k);
    p.is_wide = is_aligned16(job.x) && job.x_stride % 4 == 0;
    p.x16 = context.prefill->x;
    p.ld = prefill_inputs(job.matrix->k);
    p.exponents = context.prefill->exponents;
    p.added = added;
    p.added_stride = job.y_stride;
    p.added_columns = static_cast<std::int32_t>(job.matrix->n);
    const bool is_short = p.ld <= kCastShortInputs;
    context.kernels->launch(is_short ? KernelId::kCastRowsShort : KernelId::kCastRows,
                            {.x = job.rows,
                             .threads = is_short ? kCastShortThreads : kCastThreads,
                             .overlaps_previous = true},
                            context.stream, p);
}

void finish(const OpContext& context, const LinearJob& job, const Slice& slice,
            const OutputRange& range) {
    FinishParams p{};
    const bool is_pair = range.epilogue == LinearEpilogue::kSwiGlu;
    const std::int64_t column =
        slice.segment->first + (is_pair ? slice.first / 2 : slice.first) - range.begin;
    p.rows = job.live_rows;
    p.exponents = context.prefill->exponents;
    p.sums = context.prefill->sums;
    p.sums_stride = (slice.rows() + 3) / 4 * 4;
    p.bias = job.bias != nullptr ? job.bias + range.begin + column : nullptr;
    p.half = static_cast<std::int32_t>(job.matrix->n / 2);
    p.y = range.y + column;
    p.y_stride = job.y_stride;
    p.columns = static_cast<std::int32_t>(is_pair ? slice.rows() / 2 : slice.rows());
    p.epilogue = range.epilogue;
    p.is_wide = is_aligned16(p.y) && p.y_stride % kFinishColumns == 0;
    constexpr std::int64_t kBlockColumns = std::int64_t{kThreads} * kFinishColumns;
    context.kernels->launch(KernelId::kFinishSums,
                            {.x = (p.columns + kBlockColumns - 1) / kBlockColumns,
                             .y = job.rows,
                             .threads = kThreads,
                             .overlaps_previous = true},
                            context.stream, p);
}

void finish_rows(const OpContext& context, const LinearJob& job, const OutputRange& range) {
    FinishParams p{};
    p.rows = job.live_rows;
    p.exponents = context.prefill->exponents;
    p.bias = job.bias != nullptr ? job.bias + range.begin : nullptr;
    p.y = range.y;
    p.y_stride = job.y_stride;
    p.columns = static_cast<std::int32_t>(range.end - range.begin);
    context.kernels->launch(KernelId::kFinishRows,
                            {.x = job.rows, .threads = kThreads, .overlaps_previous = true},
                            context.stream, p);
}

void launch_range(const OpContext& context, const LinearJob& job, const OutputRange& range) {
    const std::int64_t k = job.matrix->k;
    const bool direct = is_direct(job, range);
    for (const SegmentView& segment : job.matrix->used()) {
        const std::int64_t begin = std::max<std::int64_t>(range.begin - segment.first, 0);
        const std::int64_t end = std::min<std::int64_t>(range.end - segment.first, segment.outputs);
        const std::int64_t step =
            prefill_slice_rows(limits_of(*context.prefill), segment.outputs, k);
        // Slices begin where they would without a range: a whole tile.
        for (std::int64_t at = 0; at < segment.outputs; at += step) {
            const Slice whole{&segment, at, std::min<std::int64_t>(at + step, segment.outputs)};
            Slice slice{&segment, std::max(begin, whole.first), std::min(end, whole.last)};
            if (slice.first >= slice.last) continue;
            const std::int64_t skipped = segment.is_packed ? slice.first % kTileRows : 0;
            Slice tiles = slice;
            tiles.first -= skipped;
            DequantiseParams p = params_of(tiles, k);
            p.scale = segment.half_scale;
            p.y = context.prefill->weights;
            launch_dequantise(context, tiles, p, 0);
            LtProduct product = product_of(context, slice, k, job.rows);
            product.w = context.prefill->weights + skipped * product.w_stride;
            if (direct) {
                product.y = range.y + segment.first + slice.first - range.begin;
                product.y_stride = job.y_stride;
                product.adds = range.epilogue == LinearEpilogue::kAdd;
            } else {
                product.y = context.prefill->sums;
                product.y_stride = (slice.rows() + 3) / 4 * 4;
            }
            run_product(context, product);
            if (!direct) finish(context, job, slice, range);
        }
    }
    if (direct) finish_rows(context, job, range);
}

bool has_kernels(const Matrix& matrix) {
    // A matrix of nothing but f32 keeps f32 products.
    const bool is_all_f32 = std::ranges::all_of(matrix.used(), [](const SegmentView& s) {
        return static_cast<DType>(s.dtype) == DType::kF32;
    });
    return !is_all_f32 && std::ranges::all_of(matrix.used(), [](const SegmentView& s) {
        return dequantise_type_index(static_cast<DType>(s.dtype), s.is_packed) >= 0;
    });
}

PrefillQuery query_of(const OpContext& context, const Matrix& matrix) {
    const auto largest =
        std::ranges::max_element(matrix.used(), {}, [](const SegmentView& s) { return s.outputs; });
    return {.dtype = static_cast<DType>(largest->dtype),
            .n = matrix.n,
            .k = matrix.k,
            .multiprocessors = context.matmul.multiprocessors};
}

}  // namespace

bool wants_prefill(const OpContext& context, const LinearJob& job) {
    const PrefillScratch& scratch = *context.prefill;
    const std::int64_t least =
        scratch.rows_min > 0 ? scratch.rows_min : prefill_rows_min(query_of(context, *job.matrix));
    // Interleaved rows come out in the order that SwiGLU alone wants.
    const bool keeps_order =
        !job.matrix->used().front().is_interleaved || job.epilogue == Epilogue::kSwiGlu;
    return !context.kernels->is_recording() && job.rows >= least && keeps_order &&
           has_kernels(*job.matrix);
}

bool has_prefill(const OpContext& context, const LinearJob& job) {
    const PrefillScratch& scratch = *context.prefill;
    return scratch.products != nullptr && job.rows <= scratch.rows &&
           std::ranges::all_of(job.matrix->used(),
                               [](const SegmentView& s) { return s.half_scale != 0.0F; });
}

std::uint64_t prefill_id(const OpContext& context, const Matrix& matrix, std::int64_t rows) {
    return prefill_numerics_id(query_of(context, matrix), rows);
}

void launch_prefill(const OpContext& context, const LinearJob& job) {
    const std::int64_t n = job.matrix->n;
    const bool is_pair =
        job.epilogue == Epilogue::kSwiGlu && job.matrix->used().front().is_interleaved;
    const OutputRange whole{0, n, job.y,
                            is_pair                                  ? LinearEpilogue::kSwiGlu
                            : job.epilogue == Epilogue::kAddResidual ? LinearEpilogue::kAdd
                                                                     : LinearEpilogue::kStore};
    const bool adds = job.epilogue == Epilogue::kAddResidual && is_direct(job, whole);
    cast_rows(context, job, adds ? job.y : nullptr);
    if (job.epilogue != Epilogue::kSwiGlu || is_pair) return launch_range(context, job, whole);
    // The first half is stored, the second finishes it; both through sums, which have the bias.
    launch_range(context, job, {0, n / 2, job.y, LinearEpilogue::kStore});
    launch_range(context, job, {n / 2, n, job.y, LinearEpilogue::kSiluTimes});
}

PrefillNeed prefill_need(std::span<const Matrix> matrices, std::int64_t rows) {
    PrefillNeed need;
    PrefillLimits limits;
    limits.rows = rows;
    for (const Matrix& matrix : matrices) {
        if (!has_kernels(matrix)) continue;
        for (const SegmentView& segment : matrix.used()) {
            const std::int64_t slice = prefill_slice_rows(limits, segment.outputs, matrix.k);
            need.weights =
                std::max(need.weights, (slice + kTileRows) * prefill_inputs(matrix.k) * 2);
            need.sums = std::max(need.sums, (slice + 4) * rows * 4);
        }
    }
    return need;
}

std::string prepare_prefill(const OpContext& context, std::span<const Matrix> matrices) {
    const PrefillScratch& scratch = *context.prefill;
    for (const Matrix& matrix : matrices) {
        if (!has_kernels(matrix)) continue;
        const std::int64_t least = prefill_rows_min(query_of(context, matrix));
        for (std::int64_t rows = prefill_bucket(least); rows < 2 * scratch.rows; rows *= 2)
            for (const SegmentView& segment : matrix.used()) {
                const std::int64_t step =
                    prefill_slice_rows(limits_of(scratch), segment.outputs, matrix.k);
                for (const std::int64_t first :
                     {std::int64_t{0}, (segment.outputs - 1) / step * step}) {
                    const Slice slice{&segment, first,
                                      std::min<std::int64_t>(first + step, segment.outputs)};
                    LtProduct product = product_of(context, slice, matrix.k, rows);
                    product.y_stride = (matrix.n + 3) / 4 * 4;
                    for (const bool adds : {false, true}) {
                        product.adds = adds;
                        if (!scratch.products->prepare(product))
                            return "no algorithm for " + std::to_string(product.n) + " x " +
                                   std::to_string(product.k) + " times " + std::to_string(rows) +
                                   " rows";
                    }
                }
            }
    }
    return "";
}

std::int64_t dequantise_slice(const OpContext& context, const Matrix& matrix) {
    const SegmentView& segment = matrix.segments[0];
    const std::int64_t step =
        prefill_slice_rows(limits_of(*context.prefill), segment.outputs, matrix.k);
    const Slice slice{&segment, 0, std::min<std::int64_t>(step, segment.outputs)};
    DequantiseParams p = params_of(slice, matrix.k);
    p.scale = segment.half_scale;
    p.y = context.prefill->weights;
    launch_dequantise(context, slice, p, 0);
    const std::int64_t read =
        segment.is_packed ? packed_bytes(static_cast<DType>(segment.dtype), slice.rows(), matrix.k)
                          : slice.rows() * segment.row_bytes;
    return read + slice.rows() * p.ld * 2;
}

void multiply_scratch(const OpContext& context, std::int64_t n, std::int64_t k, std::int64_t rows) {
    SegmentView any{};
    any.half_scale = 1.0F;
    LtProduct product = product_of(context, {&any, 0, n}, k, rows);
    product.y = context.prefill->sums;
    product.y_stride = (n + 3) / 4 * 4;
    run_product(context, product);
}

bool allow_prefill(KernelSet& kernels) {
    for (std::size_t i = 0; i < kMatmulTypes.size(); ++i) {
        const int table = kMatmulTypes[i] == DType::kQ8_0 ? 0 : kTableBytes;
        if (kernels.allow_shared_bytes(kernel_after(KernelId::kDequantiseFirst, i),
                                       table + kStageBytes) != kSuccess)
            return false;
    }
    return true;
}

void launch_largest(const OpContext& context, std::span<const Matrix> matrices,
                    std::uint32_t* words) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        if (!has_kernels(matrices[i])) continue;
        const auto segments = matrices[i].used();
        for (std::size_t s = 0; s < segments.size(); ++s) {
            if (segments[s].is_packed) continue;  // `unit` says it
            const Slice slice{&segments[s], 0, segments[s].outputs};
            DequantiseParams p = params_of(slice, matrices[i].k);
            p.scale = 1.0F;
            p.largest = words + i * kSegmentsMax + s;
            launch_dequantise(context, slice, p, 1);
        }
    }
}

}  // namespace kernels::cuda
