// y = epilogue( W . prologue(x) ) on the tile kernels.
//
//   prologue   each row once: RMSNorm, int8 record (and/or f32 row), shared by all outputs
//   tiles      16 outputs x up to 64 rows; threads claim contiguous ranges of outputs, and a range
//              of W is streamed once per 64 rows
//   epilogue   bias, then store, add, or SwiGLU of a tile of gates and its tile of ups
#include <algorithm>
#include <cassert>

#include "kernels/cpu/ops.h"

namespace kernels::cpu {
namespace {

/// Rows after the prologue. A pointer is null where no segment reads that form.
struct Columns {
    const std::uint8_t* records = nullptr;
    std::int64_t record_bytes = 0;
    const float* floats = nullptr;  // null with reads_floats: the rows of x themselves
};

Columns prologue(const Context& context, const LinearJob& job) {
    const Matrix& matrix = *job.matrix;
    Scratch& scratch = *context.scratch;
    Columns columns;
    const bool has_norm = job.norm_weight != nullptr;
    columns.record_bytes =
        matrix.reads_records
            ? static_cast<std::int64_t>(ActivationLayout::of(matrix.k).record_bytes)
            : 0;
    if (matrix.reads_records) columns.records = scratch.records;
    if (has_norm) columns.floats = scratch.floats;
    if (!has_norm && !matrix.reads_records) return columns;

    const auto body = [&](const LoopPart& part) {
        for (std::int64_t m = part.begin; m < part.end; ++m) {
            const float* row = job.x_row(m);
            if (has_norm) {
                float* normed = scratch.floats + m * matrix.k;
                context.rows.rms_norm(row, job.norm_weight, job.norm_eps, matrix.k, normed);
                row = normed;
            }
            if (matrix.reads_records)
                context.rows.quantise(row, matrix.k, scratch.records + m * columns.record_bytes);
        }
    };
    // A value costs about as much here as eight multiply-adds.
    if (job.rows * matrix.k * 8 < kWorkPerWakeUp) {
        context.pool->run_here(job.rows, body);
    } else {
        context.pool->run(job.rows, body);
    }
    return columns;
}

/// The columns m0 .. m0 + count - 1 in both forms.
struct ColumnBlock {
    std::int64_t first = 0;
    int count = 0;
    const std::uint8_t* records[kColumnBlock];
    const std::uint8_t* floats[kColumnBlock];

    ColumnBlock(const LinearJob& job, const Columns& columns, std::int64_t m0)
        : first(m0), count(static_cast<int>(std::min<std::int64_t>(kColumnBlock, job.rows - m0))) {
        for (int c = 0; c < count; ++c) {
            const std::int64_t m = m0 + c;
            records[c] = columns.records + m * columns.record_bytes;
            const void* row =
                columns.floats != nullptr ? columns.floats + m * job.matrix->k : job.x_row(m);
            floats[c] = static_cast<const std::uint8_t*>(row);
        }
    }
};

/// Outputs n0 .. n0 + rows - 1, possibly of several segments, into `out` [count, kTileStride].
void compute_tile(const Matrix& matrix, std::int64_t n0, int rows, const ColumnBlock& block,
                  std::uint8_t* panel, float* out) {
    for (int done = 0; done < rows;) {  // ascending: a piece may write lanes behind its end
        const Segment& segment = matrix.segment_of(n0 + done);
        const std::int64_t inside = n0 + done - segment.first;
        const int piece = static_cast<int>(std::min<std::int64_t>(rows - done, segment.n - inside));
        segment.tile.kernel(
            {.blocks = segment.blocks + inside * segment.row_bytes,
             .row_bytes = segment.row_bytes,
             .k = matrix.k,
             .rows = piece,
             .columns = block.count,
             .column = segment.tile.quantised_columns ? block.records : block.floats,
             .panel = panel,
             .out = out + done});
        done += piece;
    }
}

void add_bias(const float* bias, int rows, int columns, float* tile) {
    for (int c = 0; c < columns; ++c)
        for (int r = 0; r < rows; ++r)
            tile[static_cast<std::size_t>(c) * kTileStride + static_cast<std::size_t>(r)] +=
                bias[r];
}

/// Outputs n0 .. of the result (of N, or N/2 with SwiGLU) for one block of columns.
void finish_outputs(const Context& context, const LinearJob& job, const ColumnBlock& block,
                    std::int64_t n0, int rows, ThreadScratch& scratch) {
    const Matrix& matrix = *job.matrix;
    float* tile = scratch.tile[0];
    compute_tile(matrix, n0, rows, block, scratch.panel, tile);
    if (job.bias != nullptr) add_bias(job.bias + n0, rows, block.count, tile);
    if (job.epilogue == Epilogue::kSwiGlu) {
        const std::int64_t up_n0 = matrix.n / 2 + n0;
        compute_tile(matrix, up_n0, rows, block, scratch.panel, scratch.tile[1]);
        if (job.bias != nullptr) add_bias(job.bias + up_n0, rows, block.count, scratch.tile[1]);
    }
    for (int c = 0; c < block.count; ++c) {
        const std::size_t at = static_cast<std::size_t>(c) * kTileStride;
        const float* from = tile + at;
        float* y = job.y_row(block.first + c) + n0;
        switch (job.epilogue) {
            case Epilogue::kStore:
                std::copy(from, from + rows, y);
                break;
            case Epilogue::kAddResidual:
                for (int r = 0; r < rows; ++r)
                    y[r] += from[r];
                break;
            case Epilogue::kSwiGlu:
                context.rows.swiglu(from, scratch.tile[1] + at, rows, y);
                break;
        }
    }
}

}  // namespace

void linear(const Context& context, const LinearJob& job) {
    const Matrix& matrix = *job.matrix;
    if (job.rows == 0) return;
    assert(matrix.k <= context.scratch->inputs_max && "prepare was told the largest K");
    assert(job.rows <= context.scratch->rows && "prepare was told the most rows");
    const Columns columns = prologue(context, job);
    const std::int64_t outputs = job.epilogue == Epilogue::kSwiGlu ? matrix.n / 2 : matrix.n;
    const std::int64_t tiles = (outputs + kTileRows - 1) / kTileRows;
    const auto body = [&](const LoopPart& part) {
        ThreadScratch& scratch = context.thread(part);
        for (std::int64_t m0 = 0; m0 < job.rows; m0 += kColumnBlock) {
            const ColumnBlock block(job, columns, m0);
            for (std::int64_t t = part.begin; t < part.end; ++t) {
                const std::int64_t n0 = t * kTileRows;
                const int rows = static_cast<int>(std::min<std::int64_t>(kTileRows, outputs - n0));
                finish_outputs(context, job, block, n0, rows, scratch);
            }
        }
    };
    if (job.rows * matrix.n * matrix.k < kWorkPerWakeUp) {
        context.pool->run_here(tiles, body);
    } else {
        context.pool->run(tiles, body);
    }
}

}  // namespace kernels::cpu
