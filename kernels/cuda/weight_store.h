// The matrices a backend keeps: in which form, where, and what their largest weight is.
//
//     sources ──segment_plan──▶ packed or plain ──MatrixUpload──▶ device ──launch_peak──▶ unit
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/lane_registry.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/matrix_upload.h"
#include "kernels/cuda/registry.h"

namespace kernels::cuda {

class WeightStore {
public:
    /// The registry of the code that is loaded says which types are packed, and both hear of those
    /// that are there.
    WeightStore(const Driver& driver, const DeviceFacts& facts, KernelSet& kernels,
                MatmulRegistry& registry, LaneRegistry& lanes, Arena& arena, Staging& staging,
                StreamHandle stream);

    /// As Backend's. The sources may go when it returns.
    std::optional<Refusal> pack(std::span<const MatrixSource> sources, MatrixView& out);
    std::uint64_t packed_bytes(std::span<const MatrixSource> sources) const;
    /// Hears of bytes of sources that have been read.
    void watch(std::function<void(std::uint64_t bytes)> on_bytes) {
        upload_.watch(std::move(on_bytes));
    }
    /// Gives back what loading took; the stream has been waited for.
    void end_loading() { upload_.release(); }

    const Matrix& at(const MatrixView& view) const;
    std::span<const Matrix> all() const { return matrices_; }
    std::span<Matrix> all() { return matrices_; }

private:
    std::vector<SegmentPlan> segments(std::span<const MatrixSource> sources) const;
    void find_units(Matrix& matrix);

    const Driver& driver_;
    const DeviceFacts& facts_;
    KernelSet& kernels_;
    MatmulRegistry& registry_;
    LaneRegistry& lanes_;
    StreamHandle stream_;
    MatrixUpload upload_;
    unsigned* peak_;  // one word on the device
    std::vector<Matrix> matrices_;
};

}  // namespace kernels::cuda
