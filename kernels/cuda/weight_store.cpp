#include "kernels/cuda/weight_store.h"

#include <cassert>
#include <string>

#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {

WeightStore::WeightStore(const Driver& driver, const DeviceFacts& facts, KernelSet& kernels,
                         MatmulRegistry& registry, LaneRegistry& lanes, Arena& arena,
                         Staging& staging, StreamHandle stream)
    : driver_(driver),
      facts_(facts),
      kernels_(kernels),
      registry_(registry),
      lanes_(lanes),
      stream_(stream),
      upload_(driver, kernels, arena, staging, stream),
      peak_(reinterpret_cast<unsigned*>(arena.take(sizeof(unsigned)))) {}

std::optional<Refusal> WeightStore::pack(std::span<const MatrixSource> sources, MatrixView& out) {
    if (std::optional<Refusal> refusal = check_sources(sources)) return refusal;
    Matrix matrix;
    try {
        matrix = upload_.run(segments(sources));
        find_units(matrix);
    } catch (const CudaError& error) {
        if (error.status != kOutOfMemory) throw;
        return Refusal{std::string(sources[0].name) + ": linear", error.what(),
                       "leaves no room for its weights", "free device memory or use a larger card",
                       RefusalKind::kMemory};
    }
    for (const MatrixSource& source : sources) {
        if (kernels_.kind() == CodeKind::kSm90) registry_.want(source.dtype);
        lanes_.want(source.dtype);
    }
    out = {.id = static_cast<std::int32_t>(matrices_.size()), .n = matrix.n, .k = matrix.k};
    matrices_.push_back(matrix);
    return std::nullopt;
}

std::uint64_t WeightStore::packed_bytes(std::span<const MatrixSource> sources) const {
    return check_sources(sources) ? 0 : device_bytes(segments(sources));
}

const Matrix& WeightStore::at(const MatrixView& view) const {
    assert(view.id >= 0 && static_cast<std::size_t>(view.id) < matrices_.size());
    return matrices_[static_cast<std::size_t>(view.id)];
}

std::vector<SegmentPlan> WeightStore::segments(std::span<const MatrixSource> sources) const {
    if (kernels_.kind() == CodeKind::kSm70)
        return segment_plan(
            sources,
            [&](const MatrixSource& source) {
                return lanes_.is_armed(source.dtype) && is_packable(source.dtype, source.k);
            },
            WeightOrder::kLanes);
    const auto can_pack = [&](const MatrixSource& source) {
        return registry_.is_armed(source.dtype) &&
               matmul_plan({.dtype = source.dtype,
                            .step_rows = kMatmulColumnsMax,
                            .rows = kMatmulColumnsMax,
                            .tiles = tile_count(source.n),
                            .k = source.k,
                            .multiprocessors = facts_.multiprocessors,
                            .shared_bytes_max = facts_.shared_bytes_max})
                   .has_value();
    };
    return segment_plan(sources, can_pack, WeightOrder::kTiles);
}

/// Each packed segment's power of two, from its largest weight.
void WeightStore::find_units(Matrix& matrix) {
    const auto peak = reinterpret_cast<DeviceAddress>(peak_);
    for (SegmentView& segment :
         std::span(matrix.segments).first(static_cast<std::size_t>(matrix.segment_count))) {
        if (!segment.is_packed || segment.has_lanes) continue;
        check_cuda(driver_, driver_.fill_bytes(peak, 0, sizeof(*peak_), stream_),
                   "zeroing of a word");
        launch_peak(kernels_, stream_, static_cast<DType>(segment.dtype),
                    {.records = segment.blocks,
                     .count = tile_count(segment.outputs) * record_count(matrix.k),
                     .peak = peak_});
        float largest = 0.0F;
        check_cuda(driver_, driver_.copy_to_host(&largest, peak, sizeof(largest), stream_),
                   "copy of a word");
        check_cuda(driver_, driver_.stream_synchronize(stream_), "largest weight");
        segment.unit = weight_unit(largest);
    }
}

}  // namespace kernels::cuda
