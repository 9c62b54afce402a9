#include "replica/model/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "replica/model/buffers.h"

namespace replica {
namespace {

std::string gib(std::uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1ULL << 30));
    return text;
}

/// Bytes of one KV page over all attention layers.
std::uint64_t block_bytes(const ModelConfig& config, const RunnerOptions& options) {
    const std::uint64_t value_bytes = options.kv_dtype == kernels::DType::kF32 ? 4 : 2;
    std::uint64_t values = 0;
    const auto add = [&](const LayerConfig& layer) {
        if (layer.kind != LayerKind::kAttention) return;
        values += std::uint64_t{2} * static_cast<std::uint64_t>(layer.kv_heads) *
                  static_cast<std::uint64_t>(options.block_tokens) *
                  static_cast<std::uint64_t>(config.head_dim);
    };
    std::ranges::for_each(config.layers, add);
    std::ranges::for_each(config.mtp_layers, add);
    return values * value_bytes;
}

std::uint64_t state_slot_bytes(const ModelConfig& config) {
    if (!config.delta_net) return 0;
    const DeltaNetConfig& net = *config.delta_net;
    const auto layers = static_cast<std::uint64_t>(
        std::ranges::count(config.layers, LayerKind::kDeltaNet, &LayerConfig::kind));
    const auto state =
        static_cast<std::uint64_t>(net.value_dim()) * static_cast<std::uint64_t>(net.state_size);
    const auto conv = static_cast<std::uint64_t>(net.conv_kernel - 1) *
                      static_cast<std::uint64_t>(net.conv_dim());
    return layers * (state + conv) * sizeof(float);
}

MemoryPlan plan_for_context(const ModelConfig& config, const RunnerOptions& options,
                            std::int32_t context) {
    const std::int32_t blocks_per_seq = (context + options.block_tokens - 1) / options.block_tokens;
    MemoryPlan plan;
    plan.kv_dtype = options.kv_dtype;
    RunnerLimits& limits = plan.limits;
    limits.step.rows = std::max(options.step_rows_max, options.sequences_max);
    limits.step.seqs = options.sequences_max;
    limits.step.logit_rows =
        options.logit_rows_max > 0 ? options.logit_rows_max : options.sequences_max;
    limits.step.blocks_per_seq = blocks_per_seq;
    limits.step.vocabulary = config.vocabulary;
    limits.blocks_total = blocks_per_seq * options.sequences_max;
    limits.block_tokens = options.block_tokens;
    limits.state_slots = config.has_recurrent_state() ? options.sequences_max : 0;
    limits.has_recurrent_state = config.has_recurrent_state();
    limits.max_model_len = context;

    plan.kv_bytes = static_cast<std::uint64_t>(limits.blocks_total) * block_bytes(config, options);
    plan.state_bytes =
        static_cast<std::uint64_t>(limits.state_slots + 1) * state_slot_bytes(config);
    plan.buffer_bytes = buffer_bytes(config, limits.step);
    plan.rope_bytes = static_cast<std::uint64_t>(context) *
                      static_cast<std::uint64_t>(config.n_rot) * sizeof(float);
    return plan;
}

}  // namespace

tl::expected<MemoryPlan, ModelError> plan_memory(const ModelConfig& config,
                                                 const RunnerOptions& options,
                                                 std::uint64_t free_bytes) {
    const std::int32_t context =
        options.context > 0 ? options.context : std::min(config.context_train, kContextDefaultMax);
    if (context > config.context_train) {
        return tl::unexpected(ModelError{
            ModelErrorKind::kFile, "context " + std::to_string(context),
            "the model was trained for " + std::to_string(config.context_train) + " tokens",
            "use a context of at most that"});
    }
    MemoryPlan plan = plan_for_context(config, options, context);
    if (plan.total_bytes() <= free_bytes) return plan;

    // The largest context that fits, in whole pages: the cost is monotonic, so halve the interval.
    std::int32_t fits = 0;
    std::int32_t too_large = (context + options.block_tokens - 1) / options.block_tokens;
    while (too_large - fits > 1) {
        const std::int32_t middle = fits + (too_large - fits) / 2;
        const bool ok =
            plan_for_context(config, options, middle * options.block_tokens).total_bytes() <=
            free_bytes;
        (ok ? fits : too_large) = middle;
    }
    const std::string remedy =
        fits > 0 ? "largest context that fits is " + std::to_string(fits * options.block_tokens) +
                       "; or lower the number of sequences"
                 : "no context fits; lower the number of sequences or free memory";
    return tl::unexpected(ModelError{
        ModelErrorKind::kMemory,
        "context " + std::to_string(context) + " with " + std::to_string(options.sequences_max) +
            " sequences",
        "needs " + gib(plan.total_bytes()) + ", the device has " + gib(free_bytes), remedy});
}

}  // namespace replica
