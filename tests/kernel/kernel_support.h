// Parts of kernel tests: seeded random data, steps that own their arrays, buffers with guard zones,
// error norms. Nothing here uses the kernels under test.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/quant/format.h"
#include "kernels/quant/half.h"
#include "tests/kernel/comparison.h"

namespace kernels::test {

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    float normal() { return normal_(engine_); }
    float uniform(float low, float high) {
        return std::uniform_real_distribution<float>(low, high)(engine_);
    }
    std::uint8_t byte() { return static_cast<std::uint8_t>(engine_() & 255U); }
    std::vector<float> normals(std::int64_t count, float scale = 1.0F) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values)
            value = scale * normal();
        return values;
    }
    std::vector<float> uniforms(std::int64_t count, float low, float high) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values)
            value = uniform(low, high);
        return values;
    }

private:
    std::mt19937_64 engine_;
    std::normal_distribution<float> normal_;
};

/// `values` random weights as blocks of the type: every code occurs, scales of both signs.
std::vector<std::uint8_t> random_blocks(DType dtype, std::int64_t values, Random& random);

/// A view of host memory as the CPU backend takes it.
inline TensorView view_of(const float* data, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride = 0) {
    TensorView view;
    view.data = const_cast<float*>(data);  // views are not const; inputs are only read
    view.dtype = DType::kF32;
    view.rank = 2;
    view.shape = {rows, columns, 0, 0};
    view.row_stride = stride == 0 ? columns : stride;
    return view;
}

inline TensorView vector_of(const std::vector<float>& values) {
    TensorView view;
    view.data = const_cast<float*>(values.data());
    view.dtype = DType::kF32;
    view.rank = 1;
    view.shape = {static_cast<std::int64_t>(values.size()), 0, 0, 0};
    view.row_stride = 1;
    return view;
}

/// Output rows between guard zones: NaN where the operation must write, a pattern where it must
/// not.
class GuardedRows {
public:
    GuardedRows(std::int64_t rows, std::int64_t columns)
        : rows_(rows),
          columns_(columns),
          stride_(columns + kGuard),
          values_(static_cast<std::size_t>(kGuard + rows * stride_), kPattern) {
        fill(std::numeric_limits<float>::quiet_NaN());
    }
    void fill(float value) {
        for (std::int64_t m = 0; m < rows_; ++m)
            for (std::int64_t n = 0; n < columns_; ++n)
                at(m, n) = value;
    }
    TensorView view() { return view_of(values_.data() + kGuard, rows_, columns_, stride_); }
    float& at(std::int64_t m, std::int64_t n) {
        return values_[static_cast<std::size_t>(kGuard + m * stride_ + n)];
    }
    std::vector<float> rows(std::int64_t begin, std::int64_t end) {
        std::vector<float> result;
        for (std::int64_t m = begin; m < end; ++m)
            for (std::int64_t n = 0; n < columns_; ++n)
                result.push_back(at(m, n));
        return result;
    }
    std::vector<float> all() { return rows(0, rows_); }
    bool guards_are_intact() const {
        for (std::size_t i = 0; i < values_.size(); ++i) {
            const auto place = static_cast<std::int64_t>(i);
            const bool is_guard = place < kGuard || (place - kGuard) % stride_ >= columns_;
            if (is_guard && values_[i] != kPattern) return false;
        }
        return true;
    }

private:
    static constexpr std::int64_t kGuard = 19;
    static constexpr float kPattern = -12345.5F;
    std::int64_t rows_, columns_, stride_;
    std::vector<float> values_;
};

/// One sequence's share of a step.
struct SequencePart {
    std::int32_t kv_len_before = 0;
    std::int32_t rows = 1;
    std::int32_t state_slot = 1;
    std::vector<std::int32_t> blocks;  // its block table
    std::int32_t position_offset = 0;  // position = place in the KV + this
    std::int32_t replay_rows = 0;
    bool commits = true;
};

/// A step descriptor with the arrays it points to.
class Step {
public:
    explicit Step(const std::vector<SequencePart>& parts, std::int32_t blocks_per_seq = 16);
    /// A step of `rows` rows of one fresh sequence, for operations that only count rows.
    static Step of_rows(std::int32_t rows) { return Step({SequencePart{.rows = rows}}); }
    Step(Step&&) = default;

    StepDescriptor descriptor;
    std::vector<std::int32_t> token, position, seq_of_row, row_begin, kv_len_before, kv_len,
        state_slot, block_table, logit_row, replay_rows, hidden_row;
    std::vector<std::uint8_t> commit;
    std::vector<SamplingRow> sampling;
    /// Points the descriptor at the arrays again after a change.
    void link();
};

struct BackendOptions {
    int threads = 1;
    CpuAccumulator accumulator = CpuAccumulator::kFloat;
    std::int32_t rows = 128;
    std::int32_t inputs_max = 1024;
    std::int32_t vocabulary = 512;
};

inline StepLimits limits_of(const BackendOptions& options) {
    return {.rows = options.rows,
            .seqs = 16,
            .logit_rows = options.rows,
            .blocks_per_seq = 64,
            .vocabulary = options.vocabulary,
            .inputs_max = options.inputs_max};
}

/// A backend that is ready for a step unless matrices are still to be packed.
inline std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
    return make_cpu_backend(
        {.threads = options.threads, .cores = {}, .accumulator = options.accumulator});
}

}  // namespace kernels::test
