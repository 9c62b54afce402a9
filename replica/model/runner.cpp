#include "replica/model/runner.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "replica/gguf/reader.h"
#include "replica/model/buffers.h"

namespace replica {
namespace {

enum class Weights { kToCome, kPlaced };

kernels::StepProgram draft_program(HiddenSource source) {
    return source == HiddenSource::kTrunk ? kernels::StepProgram::kDraftFromTrunk
                                          : kernels::StepProgram::kDraftFromDraft;
}

/// Weights that are placed count as free and needed: what the device has beside them is then exact,
/// whatever they took and whoever took more meanwhile.
MemorySupply supply_of(const kernels::Backend& backend, const WeightNeed& need,
                       const RunnerOptions& options, Weights weights) {
    const kernels::DeviceInfo device = backend.device();
    MemorySupply supply{.free_bytes = device.memory_bytes_free,
                        .weight_bytes = need.kept_bytes,
                        .is_host = device.memory_is_host,
                        .inputs_max = need.inputs_max,
                        .scratch_bytes = [&backend](const kernels::StepLimits& limits) {
                            return backend.scratch_bytes(limits);
                        }};
    if (weights == Weights::kPlaced) {
        supply.free_bytes += need.kept_bytes;
    } else {
        supply.loading_bytes = need.loading_bytes;
    }
    if (options.device_memory_bytes_max > 0) {
        supply.free_bytes = std::min(supply.free_bytes, options.device_memory_bytes_max);
    }
    return supply;
}

}  // namespace

tl::expected<std::unique_ptr<ModelRunner>, ModelError> ModelRunner::load(
    const GgufFile& file, kernels::Backend& backend, const RunnerOptions& options,
    const LoadProgress& progress) {
    auto config = read_model_config(file);
    if (!config) return tl::unexpected(std::move(config).error());
    const WeightParts parts{.with_mtp = wants_mtp(*config, options)};
    const WeightNeed need = measure_weights(file, *config, backend, parts);
    MemorySupply supply = supply_of(backend, need, options, Weights::kToCome);
    auto plan = plan_memory(*config, options, supply);
    if (!plan) return tl::unexpected(std::move(plan).error());
    auto weights =
        load_weights(file, *config, backend, plan->limits.max_model_len, parts, progress);
    if (!weights) return tl::unexpected(std::move(weights).error());
    if (!supply.is_host) {  // now by what is really left
        supply = supply_of(backend, need, options, Weights::kPlaced);
        plan = plan_memory(*config, options, supply);
        if (!plan) return tl::unexpected(std::move(plan).error());
    }

    std::unique_ptr<ModelRunner> runner(
        new ModelRunner(backend, *std::move(config), *std::move(plan), *std::move(weights)));
    if (const auto refusal = backend.prepare(runner->plan_.limits.step)) {
        return tl::unexpected(ModelError{refusal_kind(*refusal),
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
      buffers_(make_activations(backend, config_, plan_)),
      snapshots_(plan_.limits.snapshots, plan_.limits.snapshot_bytes),
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

const kernels::StepOutputs& ModelRunner::finish(const kernels::StepDescriptor& step) {
    if (!step.sampling.empty()) {
        backend_.sample({.logits = buffers_.logits, .vocabulary_used = vocabulary_used_});
    }
    return backend_.finish_step();
}

const kernels::StepOutputs& ModelRunner::run(const kernels::StepDescriptor& step) {
    assert(step.rows > 0 && step.rows <= plan_.limits.step.rows && "rows within the plan");
    assert(step.logit_rows <= plan_.limits.step.logit_rows && "logit rows within the plan");
    backend_.begin_step(step);
    if (!backend_.repeats(kernels::StepProgram::kTrunk)) forward_trunk(context());
    return finish(step);
}

const kernels::StepOutputs& ModelRunner::run_draft(const kernels::StepDescriptor& step,
                                                   HiddenSource source) {
    assert(!memory_.mtp.empty() && "the plan has memory for the MTP block");
    assert(step.rows > 0 && step.rows <= plan_.limits.step.rows && "rows within the plan");
    assert(step.logit_rows <= plan_.limits.step.logit_rows && "logit rows within the plan");
    backend_.begin_step(step);
    if (!backend_.repeats(draft_program(source))) forward_draft(source);
    return finish(step);
}

void ModelRunner::forward_draft(HiddenSource source) {
    // The pass reads a chained draft's hidden rows before its head writes the next ones.
    forward_mtp(context(), 0,
                source == HiddenSource::kTrunk ? buffers_.hidden : buffers_.mtp_hidden);
}

bool ModelRunner::rehearse(const Rehearsal& rehearsal) {
    const RehearsedStep step(rehearsal);
    if (!backend_.begin_rehearsal(step.descriptor(), rehearsal.program)) return false;
    if (rehearsal.program == kernels::StepProgram::kTrunk)
        forward_trunk(context());
    else
        forward_draft(rehearsal.program == kernels::StepProgram::kDraftFromTrunk
                          ? HiddenSource::kTrunk
                          : HiddenSource::kDraft);
    backend_.sample({.logits = buffers_.logits, .vocabulary_used = vocabulary_used_});
    backend_.finish_rehearsal();
    return true;
}

void ModelRunner::keep_hidden(std::int32_t row, std::int32_t slot, std::int32_t index) {
    assert(row >= 0 && row < plan_.limits.step.rows && "a row of the last step");
    assert(slot >= 0 && slot <= plan_.limits.state_slots);
    assert(index >= 0 && index < plan_.limits.kept_rows);
    backend_.copy_item(buffers_.hidden, row, kept_row(slot, index));
}

void ModelRunner::replay(std::int32_t slot, std::int32_t rows, std::int32_t kv_len) {
    if (rows == 0 || !config_.has_recurrent_state()) return;
    const std::int32_t row_begin[] = {0, 0};
    kernels::StepDescriptor step;
    step.seqs = 1;
    step.row_begin = row_begin;
    step.kv_len_before = step.kv_len = {&kv_len, 1};
    step.state_slot = {&slot, 1};
    step.replay_rows = {&rows, 1};
    backend_.begin_step(step);
    if (!backend_.repeats(kernels::StepProgram::kReplay)) forward_replay(context());
    backend_.finish_step();
}

void ModelRunner::copy_block(std::int32_t from, std::int32_t to) {
    for (const auto* layers : {&memory_.layers, &memory_.mtp}) {
        for (const LayerMemory& layer : *layers) {
            if (layer.kv.k.empty()) continue;
            backend_.copy_item(layer.kv.k, from, to);
            backend_.copy_item(layer.kv.v, from, to);
        }
    }
}

void ModelRunner::save_state(std::int32_t slot, std::int32_t snapshot) {
    snapshots_.save(backend_, memory_, slot, snapshot);
}

void ModelRunner::load_state(std::int32_t snapshot, std::int32_t slot) {
    snapshots_.load(backend_, memory_, snapshot, slot);
}

}  // namespace replica
