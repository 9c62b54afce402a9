// The step descriptor's way to the device: one pinned copy, one device copy, one transfer a step.
//
//     header [16] │ token │ position │ seq_of_row │ row_begin │ kv_len_before │ state_slot │
//     replay_rows │ commit │ hidden_row │ logit_row │ block_table
//     all int32, at offsets fixed by the limits
//
// The addresses never change, so kernels (and later graphs) hold them. There is one pinned copy,
// not two alternating ones, since finish_step waits for the step.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

class StepUpload {
public:
    StepUpload() = default;
    StepUpload(const Driver& driver, const StepLimits& limits);

    /// Copies what the kernels read and enqueues the transfer.
    void upload(const StepDescriptor& step, StreamHandle stream);
    const StepView& view() const { return view_; }

private:
    const Driver* driver_ = nullptr;

    DeviceBuffer device_;
    PinnedBuffer pinned_;
    StepView view_{};  // device addresses
    std::int64_t table_begin_ = 0;
    std::int64_t table_entries_ = 0;
};

}  // namespace kernels::cuda
