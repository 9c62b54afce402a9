// What `pack` keeps of a matrix: where each segment's blocks lie and which kernel reads them.
//
// Nothing is copied. The file's blocks stay where they are (usually mapped pages that several
// replicas share) and must outlive the backend.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/simd_kernels.h"

namespace kernels::cpu {

inline constexpr int kSegmentsMax = 4;

struct Segment {
    DType dtype = DType::kF32;
    const std::uint8_t* blocks = nullptr;
    std::int64_t first = 0;  // row of the matrix at which the segment begins
    std::int64_t n = 0;
    std::int64_t row_bytes = 0;
    TileKernels tile;
};

struct Matrix {
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::array<Segment, kSegmentsMax> segments;
    int segment_count = 0;
    bool reads_records = false;  // some segment wants quantised activations
    bool reads_floats = false;   // some segment wants them in f32

    std::span<const Segment> used() const {
        return {segments.data(), static_cast<std::size_t>(segment_count)};
    }
    /// The segment that holds row `row`.
    const Segment& segment_of(std::int64_t row) const;
};

/// Fills `out`, or says why the sources cannot be one matrix here.
std::optional<Refusal> make_matrix(std::span<const MatrixSource> sources, Matrix& out);

}  // namespace kernels::cpu
