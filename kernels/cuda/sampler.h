// Drawing the step's tokens: on the device, and on the host what the device leaves to it.
//
//     sample:  rules go with the step's descriptor; sample_rows behind the head
//     finish:  the kernel writes tokens, 8 bytes a row, to host memory, where we watch for them: no
//              copy and no wake-up lies between a step and the next. Rows that ask for
//              log-probabilities, or whose candidates no block can sort, come back as logits and
//              are drawn by kernels/sampling.h
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "kernels/backend.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/sample_rows.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/sampling.h"

namespace kernels::cuda {

class Sampler {
public:
    /// Opts the kernel into its shared memory; `disabled` are names as in armed.h.
    Sampler(const Driver& driver, KernelSet& kernels, int shared_bytes_max,
            std::span<const std::string> disabled);

    /// Throws CudaError.
    void reserve(const StepLimits& limits);
    /// With the counters of now.
    KernelEntry entry() const;

    // Within a step, in this order.
    void begin();
    /// The host wants the logits themselves.
    void want_logits(const TensorView& logits);
    /// Enqueues the draw. Rules are written to `upload`, which is sent behind this.
    void sample(const StepDescriptor& step, const SampleArgs& args, StepUpload& upload,
                StreamHandle stream);
    /// Behind everything else: waits for the stream and fills the outputs.
    void finish(const StepDescriptor& step, StepOutputs& outputs, StreamHandle stream);

private:
    bool write_rules(const StepDescriptor& step, SampleRow* rules, StreamHandle stream);
    void await_drawn(std::size_t rows, StreamHandle stream) const;
    void fetch_rows(std::span<const std::size_t> rows, StreamHandle stream);
    void fetch_all(std::int32_t rows, StreamHandle stream);
    void draw_on_host(const SamplingRow& rules, std::size_t row);
    std::vector<std::size_t> rows_for_host(const StepDescriptor& step) const;
    std::span<const float> host_row(std::size_t row) const;

    const Driver& driver_;
    KernelSet& kernels_;
    KernelEntry entry_;

    StepLimits limits_;
    PinnedBuffer host_logits_;  // [logit_rows, vocabulary]
    PinnedBuffer host_edits_;   // LogitEdit [kSampleEditsMax]
    DeviceBuffer edits_there_;  // alike
    PinnedBuffer drawn_;  // tokens [logit_rows], statuses [logit_rows]; the kernel writes them
    std::vector<LogitEdit> edits_;
    SampleScratch scratch_;
    std::vector<std::int32_t> sampled_;
    std::vector<std::uint8_t> error_;
    std::vector<RowLogprobs> logprobs_;

    // Of the step.
    TensorView logits_;  // on the device
    bool wants_logits_ = false;
    bool draws_ = false;
    bool draws_here_ = false;  // on the device
    std::int32_t vocabulary_used_ = 0;
};

}  // namespace kernels::cuda
