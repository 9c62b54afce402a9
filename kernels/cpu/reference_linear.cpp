// The linear operation in double: weights decoded exactly, activations as they are. Slow on
// purpose where speed would cost clearness; what the fast form and other devices are held against.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/quant/decode.h"

namespace kernels::cpu {
namespace {

void prologue(const Context& context, const LinearJob& job) {
    const std::int64_t k = job.matrix->k;
    const auto body = [&](const LoopPart& part) {
        for (std::int64_t m = part.begin; m < part.end; ++m) {
            const float* x = job.x_row(m);
            double* out = context.scratch->doubles + m * k;
            std::copy(x, x + k, out);
            if (job.norm_weight == nullptr) continue;
            double squares = 0.0;
            for (std::int64_t i = 0; i < k; ++i)
                squares += out[i] * out[i];
            const double factor =
                1.0 / std::sqrt(squares / static_cast<double>(k) + double{job.norm_eps});
            for (std::int64_t i = 0; i < k; ++i)
                out[i] *= factor * job.norm_weight[i];
        }
    };
    context.pool->run(job.rows, body);
}

/// Eight partial sums: an order the compiler may vectorise, and one that depends on k alone.
double dot(const float* w, const double* x, std::int64_t k) {
    double sums[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= k; i += 8)
        for (std::int64_t j = 0; j < 8; ++j)
            sums[j] += double{w[i + j]} * x[i + j];
    for (; i < k; ++i)
        sums[i % 8] += double{w[i]} * x[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

const float* decoded_row(const Matrix& matrix, std::int64_t row, float* out) {
    const Segment& segment = matrix.segment_of(row);
    decode_row(segment.dtype, segment.blocks + (row - segment.first) * segment.row_bytes, out,
               matrix.k);
    return out;
}

double bias_of(const LinearJob& job, std::int64_t n) {
    return job.bias != nullptr ? double{job.bias[n]} : 0.0;
}

/// Output `n` of every row.
void compute_output(const Context& context, const LinearJob& job, std::int64_t n,
                    ThreadScratch& scratch) {
    const Matrix& matrix = *job.matrix;
    const bool is_swiglu = job.epilogue == Epilogue::kSwiGlu;
    const float* w = decoded_row(matrix, n, scratch.work);
    const float* up =
        is_swiglu ? decoded_row(matrix, matrix.n / 2 + n, scratch.work + matrix.k) : nullptr;
    for (std::int64_t m = 0; m < job.rows; ++m) {
        const double* x = context.scratch->doubles + m * matrix.k;
        const double value = dot(w, x, matrix.k) + bias_of(job, n);
        float* y = job.y_row(m) + n;
        if (job.epilogue == Epilogue::kStore) {
            *y = static_cast<float>(value);
        } else if (job.epilogue == Epilogue::kAddResidual) {
            *y = static_cast<float>(double{*y} + value);
        } else {
            const double factor = dot(up, x, matrix.k) + bias_of(job, matrix.n / 2 + n);
            *y = static_cast<float>(value / (1.0 + std::exp(-value)) * factor);
        }
    }
}

}  // namespace

void reference_linear(const Context& context, const LinearJob& job) {
    const Matrix& matrix = *job.matrix;
    if (job.rows == 0) return;
    assert(matrix.k <= context.scratch->inputs_max && "prepare was told the largest K");
    assert(job.rows <= context.scratch->rows && "prepare was told the most rows");
    prologue(context, job);
    const std::int64_t outputs = job.epilogue == Epilogue::kSwiGlu ? matrix.n / 2 : matrix.n;
    context.pool->run(outputs, [&](const LoopPart& part) {
        for (std::int64_t n = part.begin; n < part.end; ++n)
            compute_output(context, job, n, context.thread(part));
    });
}

}  // namespace kernels::cpu
