// Carries a segment plan out: file rows go up in slices of whole row tiles and are packed on the
// device, so that loading needs the packed model and one slice.
//
// Nothing waits for the device but a pinned buffer that is still travelling (staging.h): while a
// slice travels and is packed, the next one is read. One slice on the device suffices, in order of
// the stream: packing a gigabyte takes a hundredth of the time that reading it does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/staging.h"

namespace kernels::cuda {

class MatrixUpload {
public:
    /// File bytes on the device at a time, at least one row tile: long copies, little extra memory.
    static constexpr std::int64_t kSliceBytes = std::int64_t{64} << 20;

    MatrixUpload(const Driver& driver, KernelSet& kernels, Arena& arena, Staging& staging,
                 StreamHandle stream)
        : driver_(driver), kernels_(kernels), arena_(arena), staging_(staging), stream_(stream) {}
    /// Enqueues; the sources may go when this returns. Throws CudaError.
    Matrix run(std::span<const SegmentPlan> plans);
    /// Hears of bytes that have been read.
    void watch(std::function<void(std::uint64_t bytes)> on_bytes) {
        on_bytes_ = std::move(on_bytes);
    }
    /// Gives the slice's memory back once loading is over and the stream has been waited for.
    void release() { slice_ = {}, slice_bytes_ = 0; }

private:
    void reserve_slice(std::span<const SegmentPlan> plans);
    const std::uint8_t* upload_plain(const SegmentPlan& plan, std::int64_t row_bytes);
    const std::uint8_t* upload_packed(const SegmentPlan& plan, std::int64_t row_bytes);
    void pack_slices(const MatrixSource& source, const MatrixSource* partner, WeightOrder order,
                     std::int64_t row_bytes, DeviceAddress packed);
    void copy(DeviceAddress to, const MatrixSource& source, std::int64_t first_row,
              std::int64_t rows, std::int64_t row_bytes);

    const Driver& driver_;
    KernelSet& kernels_;
    Arena& arena_;
    Staging& staging_;
    StreamHandle stream_;
    std::function<void(std::uint64_t)> on_bytes_;
    DeviceBuffer slice_;  // file rows on their way
    std::int64_t slice_bytes_ = 0;
};

}  // namespace kernels::cuda
