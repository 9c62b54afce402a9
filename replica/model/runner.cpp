#include "replica/model/runner.h"

#include <cassert>
#include <utility>

#include "replica/gguf/reader.h"
#include "replica/model/buffers.h"

namespace replica {

tl::expected<std::unique_ptr<ModelRunner>, ModelError> ModelRunner::load(
    const GgufFile& file, kernels::Backend& backend, const RunnerOptions& options,
    const LoadProgress& progress) {
    auto config = read_model_config(file);
    if (!config) return tl::unexpected(std::move(config).error());
    // Weights stay in the page cache on the CPU; what is planned here comes on top of them.
    auto plan = plan_memory(*config, options, backend.device().memory_bytes_free);
    if (!plan) return tl::unexpected(std::move(plan).error());
    auto weights = load_weights(file, *config, backend, plan->limits.max_model_len, progress);
    if (!weights) return tl::unexpected(std::move(weights).error());

    std::unique_ptr<ModelRunner> runner(
        new ModelRunner(backend, *std::move(config), *std::move(plan), *std::move(weights)));
    if (const auto refusal = backend.prepare(runner->plan_.limits.step)) {
        return tl::unexpected(ModelError{ModelErrorKind::kFile,
                                         refusal->subject + ": " + refusal->value, refusal->rule,
                                         refusal->remedy});
    }
    return runner;
}

ModelRunner::ModelRunner(kernels::Backend& backend, ModelConfig config, MemoryPlan plan,
                         ModelWeights weights)
    : backend_(backend),
      config_(std::move(config)),
      plan_(plan),
      weights_(std::move(weights)),
      memory_(make_model_memory(backend, config_, plan_)),
      buffers_(make_activations(backend, config_, plan_.limits.step)),
      vocabulary_used_(config_.vocabulary) {
    plan_.limits.step.inputs_max = weights_.inputs_max;
}

ForwardContext ModelRunner::context() const {
    return {.backend = backend_,
            .config = config_,
            .weights = weights_,
            .memory = memory_,
            .buffers = buffers_};
}

const kernels::StepOutputs& ModelRunner::run(const kernels::StepDescriptor& step) {
    assert(step.rows > 0 && step.rows <= plan_.limits.step.rows && "rows within the plan");
    assert(step.logit_rows <= plan_.limits.step.logit_rows && "logit rows within the plan");
    backend_.begin_step(step);
    forward_trunk(context());
    if (!step.sampling.empty()) {
        backend_.sample({.logits = buffers_.logits, .vocabulary_used = vocabulary_used_});
    }
    return backend_.finish_step();
}

const kernels::StepOutputs& ModelRunner::run_mtp(const kernels::StepDescriptor& step,
                                                 std::int32_t first_hidden_row) {
    assert(!config_.mtp_layers.empty() && "the model has an MTP block");
    assert(first_hidden_row + step.rows <= plan_.limits.step.rows &&
           "hidden rows within the buffer");
    kernels::TensorView hidden = buffers_.hidden;
    hidden.data = hidden.row<float>(first_hidden_row);
    hidden.shape[0] -= first_hidden_row;
    backend_.begin_step(step);
    forward_mtp(context(), 0, hidden);
    return backend_.finish_step();
}

}  // namespace replica
