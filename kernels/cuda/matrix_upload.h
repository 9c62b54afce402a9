// Carries a segment plan out: file rows go up in slices of whole row tiles and are packed on the
// device, so that loading needs the packed model and one slice.
#pragma once

#include <span>

#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/memory.h"

namespace kernels::cuda {

class MatrixUpload {
public:
    MatrixUpload(const Driver& driver, KernelSet& kernels, Arena& arena, StreamHandle stream)
        : driver_(driver), kernels_(kernels), arena_(arena), stream_(stream) {}
    /// Enqueues; the sources must live until the stream has been waited for, which must happen
    /// before the next `run`. Throws CudaError.
    Matrix run(std::span<const SegmentPlan> plans);
    /// Gives the slice's memory back once loading is over and the stream has been waited for.
    void release() { slice_ = {}, slice_bytes_ = 0; }

private:
    void reserve_slice(std::span<const SegmentPlan> plans);
    const std::uint8_t* upload_plain(const SegmentPlan& plan, std::int64_t row_bytes);
    const std::uint8_t* upload_packed(const SegmentPlan& plan, std::int64_t row_bytes);
    void pack_slices(const MatrixSource& source, const MatrixSource* partner,
                     std::int64_t row_bytes, DeviceAddress packed);
    void copy(DeviceAddress to, const MatrixSource& source, std::int64_t first_row,
              std::int64_t rows, std::int64_t row_bytes);

    const Driver& driver_;
    KernelSet& kernels_;
    Arena& arena_;
    StreamHandle stream_;
    DeviceBuffer slice_;  // file rows on their way
    std::int64_t slice_bytes_ = 0;
};

}  // namespace kernels::cuda
