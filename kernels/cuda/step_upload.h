// The step descriptor's way to the device: one pinned copy, one device copy, one transfer a step.
//
//     header [16] │ token │ position │ seq_of_row │ row_begin │ kv_len_before │ state_slot │
//     replay_rows │ commit │ hidden_row │ logit_row │ sampling rules │ block_table
//     int32 but for the rules (sample_rows.h), at offsets fixed by the limits
//
// The addresses never change, so kernels and graphs hold them. There is one pinned copy,
// not two alternating ones, since finish_step waits for the step.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/sample_rows.h"

namespace kernels::cuda {

class StepUpload {
public:
    StepUpload() = default;
    StepUpload(const Driver& driver, const StepLimits& limits);

    /// Writes down what the kernels read; `send` enqueues the transfer. Between the two the rules
    /// of the step's logit rows may be written to rules().
    void fill(const StepDescriptor& step);
    void send(StreamHandle stream);
    bool is_sent() const { return is_sent_; }
    /// Rules written behind `send` go by themselves.
    void send_rules(std::int32_t logit_rows, StreamHandle stream);
    SampleRow* rules() { return reinterpret_cast<SampleRow*>(host_words() + rules_begin_); }
    const SampleRow* device_rules() const {
        return reinterpret_cast<const SampleRow*>(view_.rows + rules_begin_);
    }
    const StepView& view() const { return view_; }

private:
    std::int32_t* host_words() { return static_cast<std::int32_t*>(pinned_.get()); }

    const Driver* driver_ = nullptr;

    DeviceBuffer device_;
    PinnedBuffer pinned_;
    StepView view_{};  // device addresses
    std::int64_t rules_begin_ = 0;
    std::int64_t table_begin_ = 0;
    std::int64_t filled_ = 0;  // entries
    bool is_sent_ = true;
    std::int64_t table_entries_ = 0;
};

}  // namespace kernels::cuda
