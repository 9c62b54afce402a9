// What `pack` keeps of a matrix: where each segment lies on the device, either packed (packed.h) or
// the file's blocks, rows following each other as in the file. How sources become segments is a
// pure plan:
//
//     gate + up of one type and size     one segment, interleaved by 8 rows (not where lanes own
//     rows) qkv + z of one type                one packed segment anything else a segment each,
//     packed where a kernel reads that
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/lane_order.h"
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

/// Sources that become one segment.
struct SegmentPlan {
    std::vector<MatrixSource> sources;
    bool is_packed = false;
    bool is_interleaved = false;              // two sources
    WeightOrder order = WeightOrder::kTiles;  // where it is packed
    std::int64_t outputs() const;
};
std::vector<SegmentPlan> segment_plan(std::span<const MatrixSource> sources,
                                      const std::function<bool(const MatrixSource&)>& can_pack,
                                      WeightOrder order);

/// Device memory that the segments take, whole pages of the driver.
std::uint64_t device_bytes(std::span<const SegmentPlan> plans);

}  // namespace kernels::cuda
