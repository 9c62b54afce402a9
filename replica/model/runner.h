// A model ready to step: weights, KV pages, recurrent state and buffers on one backend, and places
// in host memory for saved states.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "replica/engine/step_runner.h"
#include "replica/model/config.h"
#include "replica/model/forward.h"
#include "replica/model/memory_plan.h"
#include "replica/model/rehearsal.h"
#include "replica/model/snapshots.h"
#include "replica/model/weights.h"

namespace replica {

/// The StepRunner of a real model. Engine thread only, once loaded.
class ModelRunner final : public StepRunner {
public:
    /// Reads, checks and places the model. `file` and `backend` outlive the runner.
    static tl::expected<std::unique_ptr<ModelRunner>, ModelError> load(
        const GgufFile& file, kernels::Backend& backend, const RunnerOptions& options,
        const LoadProgress& progress);

    const RunnerLimits& limits() const override { return plan_.limits; }
    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override;

    /// Also without drafts, when RunnerOptions.with_mtp asks for the block's memory.
    const kernels::StepOutputs& run_draft(const kernels::StepDescriptor& step,
                                          HiddenSource source) override;
    void keep_hidden(std::int32_t row, std::int32_t slot, std::int32_t index) override;
    void replay(std::int32_t slot, std::int32_t rows, std::int32_t kv_len) override;

    void copy_block(std::int32_t from, std::int32_t to) override;
    void save_state(std::int32_t slot, std::int32_t snapshot) override;
    void load_state(std::int32_t snapshot, std::int32_t slot) override;

    /// Makes a step ready ahead of its first use, once limit_vocabulary has been called. False =
    /// the backend keeps no steps like this.
    bool rehearse(const Rehearsal& rehearsal);

    /// Ids from here on are unused rows of the vocabulary and are never drawn; the tokenizer knows.
    void limit_vocabulary(std::int32_t vocabulary_used) { vocabulary_used_ = vocabulary_used; }

    const ModelConfig& config() const { return config_; }
    const std::vector<std::string>& warnings() const { return weights_.warnings; }
    const MemoryPlan& plan() const { return plan_; }

private:
    ModelRunner(kernels::Backend& backend, ModelConfig config, MemoryPlan plan,
                ModelWeights weights);
    ForwardContext context() const;
    const kernels::StepOutputs& finish(const kernels::StepDescriptor& step);
    void forward_draft(HiddenSource source);

    kernels::Backend& backend_;
    ModelConfig config_;
    MemoryPlan plan_;
    ModelWeights weights_;
    ModelMemory memory_;
    Activations buffers_;
    Snapshots snapshots_;
    std::int32_t vocabulary_used_;
};

}  // namespace replica
