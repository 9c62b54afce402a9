// Two backends side by side: the CPU in double as the reference, the CUDA backend under test, and
// memory that lies alike for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/lane_plan.h"

namespace kernels::gate {

/// Rows of floats between guard zones, on the host.
class Rows {
public:
    /// `guard` floats in front and behind every row; 0 keeps the rows aligned for wide loads.
    Rows(std::int64_t rows, std::int64_t columns, std::int64_t guard = kGuard)
        : rows_(rows),
          columns_(columns),
          guard_(guard),
          values_(static_cast<std::size_t>(guard + rows * (columns + guard)), kPattern) {
        fill(std::numeric_limits<float>::quiet_NaN());
    }
    Rows(std::int64_t rows, std::int64_t columns, std::int64_t guard,
         const std::vector<float>& values)
        : Rows(rows, columns, guard) {
        set(values);
    }
    void fill(float value) {
        for (std::int64_t m = 0; m < rows_; ++m)
            for (std::int64_t n = 0; n < columns_; ++n)
                at(m, n) = value;
    }
    void set(const std::vector<float>& values) {
        for (std::int64_t m = 0; m < rows_; ++m)
            for (std::int64_t n = 0; n < columns_; ++n)
                at(m, n) = values[static_cast<std::size_t>(m * columns_ + n)];
    }
    float& at(std::int64_t m, std::int64_t n) {
        return values_[static_cast<std::size_t>(guard_ + m * (columns_ + guard_) + n)];
    }
    /// Rows [begin, end) without guards.
    std::vector<float> rows(std::int64_t begin, std::int64_t end) {
        std::vector<float> result;
        for (std::int64_t m = begin; m < end; ++m)
            for (std::int64_t n = 0; n < columns_; ++n)
                result.push_back(at(m, n));
        return result;
    }
    std::vector<float> all() { return rows(0, rows_); }
    bool guards_are_intact() const;
    TensorView view();  // on the host
    std::vector<float>& raw() { return values_; }
    std::int64_t guard() const { return guard_; }

    static constexpr std::int64_t kGuard = 19;

private:
    static constexpr float kPattern = -12345.5F;
    std::int64_t rows_, columns_, guard_;
    std::vector<float> values_;
};

/// A host tensor of up to four dimensions, contiguous.
TensorView host_view(DType dtype, std::initializer_list<std::int64_t> shape, void* data);

class Pair {
public:
    /// Takes the CUDA backend; the CPU gets `threads` threads, 0 = all.
    Pair(std::unique_ptr<CudaBackend> cuda, int threads);

    /// Packs for both. The blocks must outlive the pair. Throws std::runtime_error on refusal.
    struct Matrices {
        MatrixView cpu, cuda;
    };
    Matrices pack(std::span<const MatrixSource> sources);
    /// For mutations: what the CUDA side holds differs.
    MatrixView pack_cuda(std::span<const MatrixSource> sources);
    void prepare(const StepLimits& limits);
    /// What a product with weights of this type may differ by from the reference: f32 sums of up to
    /// 17408 products on the plain path (6e-8 * sqrt(544) expected), x rounded to binary16 where
    /// matmul_mma serves (2^-11 / sqrt(3) = 2.8e-4 expected).
    double product_limit(DType dtype) const;
    /// The same where the row count matters: on sm_70 x is int8 up to `few_rows` rows (5e-3
    /// expected), binary16 above.
    double product_limit(DType dtype, int rows) const;
    /// Up to so many rows products have one numerics id, above another.
    int few_rows() const { return few_rows_; }
    /// The code is that of sm_70.
    bool has_lanes() const { return has_lanes_; }
    /// By cuBLASLt W is binary16 too: 3.9e-4 expected.
    double prefill_limit() const { return 1e-3; }

    /// Copies to device memory that lives until `reset`; same layout, guards included.
    TensorView place(Rows& rows);
    TensorView place(const TensorView& contiguous);
    void fetch(Rows& rows, const TensorView& device);
    void fetch(const TensorView& contiguous_host, const TensorView& device);
    void reset() { used_ = 0; }

    Backend& cpu() { return *cpu_; }
    CudaBackend& cuda() { return *cuda_; }

private:
    std::byte* take(std::size_t bytes);

    std::unique_ptr<CudaBackend> cuda_;
    std::unique_ptr<Backend> cpu_;
    bool has_lanes_ = false;
    int few_rows_ = 8;
    TensorView pool_;
    std::size_t pool_bytes_ = 0;
    std::size_t used_ = 0;
};

}  // namespace kernels::gate
