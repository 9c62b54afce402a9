// Tensors as the seam sees them: a typed address with a shape, owning nothing.
//
// A view is row-major; its last dimension is contiguous. The first dimension may be strided, so
// that `u`, `z`, `beta` can be column ranges of one fused projection output:
//
//     fused [rows, 10]   ┌ u (6) ┬ z (3) ┬ b ┐     u = {data, [rows, 6], row_stride 10}
//                        └───────┴───────┴───┘     z = {data + 6, [rows, 3], row_stride 10}
//
// The address belongs to the backend that made it; host code reads it only on the CPU backend.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace kernels {

/// Element and block types. The values are the type ids of the GGUF container.
enum class DType : std::int32_t {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ4_1 = 3,
    kQ5_0 = 6,
    kQ5_1 = 7,
    kQ8_0 = 8,
    kQ2_K = 10,
    kQ3_K = 11,
    kQ4_K = 12,
    kQ5_K = 13,
    kQ6_K = 14,
    kIQ4_NL = 20,
    kIQ4_XS = 23,
    kI32 = 26,
    kBF16 = 30,
};

struct TensorView {
    void* data = nullptr;
    DType dtype = DType::kF32;
    int rank = 0;
    std::array<std::int64_t, 4> shape{};  // outermost first; entries past `rank` are 0
    std::int64_t row_stride = 0;          // elements between rows, i.e. along dimension 0

    bool empty() const { return data == nullptr; }
    std::int64_t rows() const { return shape[0]; }
    /// Elements of one row, all inner dimensions together.
    std::int64_t row_elements() const {
        std::int64_t n = 1;
        for (int i = 1; i < rank; ++i)
            n *= shape[static_cast<std::size_t>(i)];
        return n;
    }
    template <class T>
    T* row(std::int64_t index) const {
        assert(index >= 0 && index < shape[0] && "row index inside the view");
        return static_cast<T*>(data) + index * row_stride;
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(data);
    }
};

/// Columns [begin, begin + count) of a two-dimensional view of 4-byte elements.
inline TensorView columns(const TensorView& view, std::int64_t begin, std::int64_t count) {
    assert(view.rank == 2 && begin >= 0 && begin + count <= view.shape[1]);
    assert(view.dtype == DType::kF32 || view.dtype == DType::kI32);
    TensorView result = view;
    result.data = static_cast<std::byte*>(view.data) + begin * 4;
    result.shape[1] = count;
    return result;
}

}  // namespace kernels
