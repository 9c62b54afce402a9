// What `pack` keeps of a matrix: where each segment's blocks lie on the device. The file's block
// order is kept; rows follow each other without padding, as in the file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

struct Matrix {
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::array<SegmentView, kSegmentsMax> segments{};
    int segment_count = 0;

    std::span<const SegmentView> used() const {
        return {segments.data(), static_cast<std::size_t>(segment_count)};
    }
};

/// Why the sources cannot be one matrix here, if so.
std::optional<Refusal> check_sources(std::span<const MatrixSource> sources);

}  // namespace kernels::cuda
