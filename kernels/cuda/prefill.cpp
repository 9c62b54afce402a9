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
struct Part {
    const SegmentView* segment;
    std::int64_t first, last;
    std::int64_t rows() const { return last - first; }
};

/// Segments that lie behind each other in a slice and are multiplied at once. Rows count from the
/// first of them.
struct Run {
    std::span<const SegmentView> segments;
    std::int64_t begin() const { return segments.front().first; }  // of the matrix
    std::int64_t rows() const { return segments.back().first + segments.back().outputs - begin(); }
    float scale() const { return segments.front().half_scale; }
};

PrefillLimits limits_of(const PrefillScratch& scratch) {
    PrefillLimits limits;
    limits.weight_bytes = scratch.weight_bytes;
    limits.rows = scratch.rows;
    return limits;
}

DequantiseParams params_of(const Part& part, std::int64_t k) {
    const SegmentView& segment = *part.segment;
    DequantiseParams p{};
    p.k = static_cast<std::int32_t>(k);
    p.ld = prefill_inputs(k);
    p.row_bytes = segment.row_bytes;
    if (segment.is_packed) {
        const auto dtype = static_cast<DType>(segment.dtype);
        p.k_records = static_cast<std::int32_t>(record_count(k));
        p.from = segment.blocks + part.first / kTileRows * p.k_records * record_bytes(dtype);
        p.tiles = static_cast<std::int32_t>(tile_count(part.rows()));
    } else {
        p.from = segment.blocks + part.first * segment.row_bytes;
        p.tiles = static_cast<std::int32_t>(part.rows());
    }
    return p;
}

/// `which` is 0 for all weights, 1 for the largest, of the file's rows only.
void launch_dequantise(const OpContext& context, const Part& part, const DequantiseParams& p,
                       std::size_t which) {
    const SegmentView& segment = *part.segment;
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

/// How the segments of a matrix are put together: all, where one scale serves them and slices begin
/// at whole tiles, else each alone.
std::size_t run_count(const Matrix& matrix, const PrefillLimits& limits) {
    const auto segments = matrix.used();
    const bool is_one_slice = prefill_slice_rows(limits, matrix.n, matrix.k) >= matrix.n;
    const bool is_together = std::ranges::all_of(segments, [&](const SegmentView& s) {
        return s.half_scale == segments[0].half_scale && !s.is_interleaved &&
               (is_one_slice || !s.is_packed || s.first % kTileRows == 0);
    });
    return is_together ? 1 : segments.size();
}
Run run_of(const Matrix& matrix, std::size_t runs, std::size_t index) {
    const auto segments = matrix.used();
    return {runs == 1 ? segments : segments.subspan(index, 1)};
}

LtProduct product_of(const OpContext& context, std::int64_t n, float scale, std::int64_t k,
                     std::int64_t rows) {
    LtProduct product;
    product.n = n;
    product.rows = rows;
    product.algorithm_rows = prefill_bucket(rows);
    product.k = prefill_inputs(k);
    product.w = context.prefill->weights;
    product.w_stride = prefill_inputs(k);
    product.x = context.prefill->x;
    product.x_stride = prefill_inputs(k);
    product.alpha = 1.0F / scale;
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

/// What the product of `rows` rows of the matrix, from its row `first` on, left in the sums.
void finish(const OpContext& context, const LinearJob& job, std::int64_t first, std::int64_t rows,
            const OutputRange& range) {
    FinishParams p{};
    const bool is_pair = range.epilogue == LinearEpilogue::kSwiGlu;
    const std::int64_t column = (is_pair ? first / 2 : first) - range.begin;
    p.rows = job.live_rows;
    p.exponents = context.prefill->exponents;
    p.sums = context.prefill->sums;
    p.sums_stride = (rows + 3) / 4 * 4;
    p.bias = job.bias != nullptr ? job.bias + range.begin + column : nullptr;
    p.half = static_cast<std::int32_t>(job.matrix->n / 2);
    p.y = range.y + column;
    p.y_stride = job.y_stride;
    p.columns = static_cast<std::int32_t>(is_pair ? rows / 2 : rows);
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

/// Rows [first, last) of a run as binary16, to the scratch; returns how many more lie in front of
/// them: a packed segment decodes by whole tiles.
std::int64_t dequantise_rows(const OpContext& context, const Run& run, std::int64_t first,
                             std::int64_t last, std::int64_t k) {
    const std::int64_t skipped =
        run.segments.front().is_packed && run.segments.size() == 1 ? first % kTileRows : 0;
    for (const SegmentView& segment : run.segments) {
        const std::int64_t begin = segment.first - run.begin();
        const Part part{&segment, std::max<std::int64_t>(first - skipped - begin, 0),
                        std::min<std::int64_t>(last - begin, segment.outputs)};
        if (part.first >= part.last) continue;
        DequantiseParams p = params_of(part, k);
        p.scale = run.scale();
        p.y = context.prefill->weights + (begin + part.first - (first - skipped)) * p.ld;
        launch_dequantise(context, part, p, 0);
    }
    return skipped;
}

void launch_range(const OpContext& context, const LinearJob& job, const OutputRange& range) {
    const std::int64_t k = job.matrix->k;
    const bool direct = is_direct(job, range);
    const PrefillLimits limits = limits_of(*context.prefill);
    const bool is_whole = range.begin == 0 && range.end == job.matrix->n;
    const std::size_t runs = is_whole ? run_count(*job.matrix, limits) : job.matrix->used().size();
    for (std::size_t i = 0; i < runs; ++i) {
        const Run run = run_of(*job.matrix, runs, i);
        const std::int64_t begin = std::max<std::int64_t>(range.begin - run.begin(), 0);
        const std::int64_t end = std::min<std::int64_t>(range.end - run.begin(), run.rows());
        const std::int64_t step = prefill_slice_rows(limits, run.rows(), k);
        // Slices begin where they would without a range: a whole tile.
        for (std::int64_t at = 0; at < run.rows(); at += step) {
            const std::int64_t first = std::max(begin, at);
            const std::int64_t last = std::min({end, at + step, run.rows()});
            if (first >= last) continue;
            const std::int64_t skipped = dequantise_rows(context, run, first, last, k);
            LtProduct product = product_of(context, last - first, run.scale(), k, job.rows);
            product.w = context.prefill->weights + skipped * product.w_stride;
            if (direct) {
                product.y = range.y + run.begin() + first - range.begin;
                product.y_stride = job.y_stride;
                product.adds = range.epilogue == LinearEpilogue::kAdd;
            } else {
                product.y = context.prefill->sums;
                product.y_stride = (last - first + 3) / 4 * 4;
            }
            run_product(context, product);
            if (!direct) finish(context, job, run.begin() + first, last - first, range);
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
    const auto see = [&](std::int64_t outputs, std::int64_t k) {
        const std::int64_t slice = prefill_slice_rows(limits, outputs, k);
        need.weights = std::max(need.weights, (slice + kTileRows) * prefill_inputs(k) * 2);
        need.sums = std::max(need.sums, (slice + 4) * rows * 4);
    };
    for (const Matrix& matrix : matrices) {
        if (!has_kernels(matrix)) continue;
        see(matrix.n, matrix.k);  // together or alone: scales, which decide, come later
        for (const SegmentView& segment : matrix.used())
            see(segment.outputs, matrix.k);
    }
    return need;
}

std::string prepare_prefill(const OpContext& context, std::span<const Matrix> matrices) {
    const PrefillScratch& scratch = *context.prefill;
    for (const Matrix& matrix : matrices) {
        if (!has_kernels(matrix)) continue;
        const std::int64_t least = prefill_rows_min(query_of(context, matrix));
        const PrefillLimits limits = limits_of(scratch);
        const std::size_t runs = run_count(matrix, limits);
        for (std::int64_t rows = prefill_bucket(least); rows < 2 * scratch.rows; rows *= 2)
            for (std::size_t i = 0; i < runs; ++i) {
                const Run run = run_of(matrix, runs, i);
                const std::int64_t step = prefill_slice_rows(limits, run.rows(), matrix.k);
                for (const std::int64_t first : {std::int64_t{0}, (run.rows() - 1) / step * step}) {
                    LtProduct product = product_of(context, std::min(step, run.rows() - first),
                                                   run.scale(), matrix.k, rows);
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
    const Part part{&segment, 0, std::min<std::int64_t>(step, segment.outputs)};
    DequantiseParams p = params_of(part, matrix.k);
    p.scale = segment.half_scale;
    p.y = context.prefill->weights;
    launch_dequantise(context, part, p, 0);
    const std::int64_t read =
        segment.is_packed ? packed_bytes(static_cast<DType>(segment.dtype), part.rows(), matrix.k)
                          : part.rows() * segment.row_bytes;
    return read + part.rows() * p.ld * 2;
}

void multiply_scratch(const OpContext& context, std::int64_t n, std::int64_t k, std::int64_t rows) {
    LtProduct product = product_of(context, n, 1.0F, k, rows);
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
            const Part part{&segments[s], 0, segments[s].outputs};
            DequantiseParams p = params_of(part, matrices[i].k);
            p.scale = 1.0F;
            p.largest = words + i * kSegmentsMax + s;
            launch_dequantise(context, part, p, 1);
        }
    }
}

}  // namespace kernels::cuda
