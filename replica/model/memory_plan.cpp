#include "replica/model/memory_plan.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <limits>
#include <string>

#include "replica/model/buffers.h"
#include "replica/model/saturated.h"

namespace replica {
namespace {

constexpr std::int32_t kCountMax = std::numeric_limits<std::int32_t>::max();

std::int32_t clamped(std::int64_t count) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(count, kCountMax));
}

std::int64_t blocks_of(std::int64_t tokens, std::int64_t block_tokens) {
    return tokens / block_tokens + (tokens % block_tokens != 0 ? 1 : 0);
}

std::string gib(std::uint64_t bytes) {
    char text[48];
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1ULL << 30));
    return text;
}

std::uint64_t delta_net_layers(const ModelConfig& config) {
    return static_cast<std::uint64_t>(
        std::ranges::count(config.layers, LayerKind::kDeltaNet, &LayerConfig::kind));
}

/// Bytes of one KV page over all attention layers.
Saturated block_bytes(const ModelConfig& config, const RunnerOptions& options, bool with_mtp) {
    Saturated values = 0;
    const auto add = [&](const LayerConfig& layer) {
        if (layer.kind != LayerKind::kAttention) return;
        values = values + Saturated(2) * layer.kv_heads * options.block_tokens * config.head_dim;
    };
    std::ranges::for_each(config.layers, add);
    if (with_mtp) std::ranges::for_each(config.mtp_layers, add);
    return values * (options.kv_dtype == kernels::DType::kF32 ? 4 : 2);
}

/// Bytes of a slot's states and convolution rings.
Saturated state_slot_bytes(const ModelConfig& config, std::int32_t conv_ring_rows) {
    if (!config.delta_net) return 0;
    const DeltaNetConfig& net = *config.delta_net;
    const Saturated layer =
        Saturated(net.value_dim()) * net.state_size + Saturated(conv_ring_rows) * net.conv_dim();
    return layer * delta_net_layers(config) * sizeof(float);
}

Saturated replay_slot_bytes(const ModelConfig& config, std::int32_t draft_tokens) {
    if (!config.delta_net || draft_tokens == 0) return 0;
    return Saturated(1 + draft_tokens) * replay_row_values(*config.delta_net) *
           delta_net_layers(config) * sizeof(float);
}

/// Whole pages of the driver, graphs of steps, what others take meanwhile. Host memory has more of
/// the last: all that the machine does beside us.
std::uint64_t spare_bytes(const MemorySupply& supply) {
    constexpr std::uint64_t kShare = 32;
    constexpr std::uint64_t kDeviceMax = 1ULL << 30;  // kernels.md 7: graphs take at most this
    const std::uint64_t share = supply.free_bytes / kShare;
    return supply.is_host ? share : std::min(share, kDeviceMax);
}

/// Everything but the pages and what depends on memory.
MemoryPlan plan_without_pages(const ModelConfig& config, const RunnerOptions& options,
                              const MemorySupply& supply, std::int32_t context) {
    MemoryPlan plan;
    plan.kv_dtype = options.kv_dtype;
    plan.snapshots_on_device = supply.is_host;
    RunnerLimits& limits = plan.limits;
    const bool can_draft = !config.mtp_layers.empty() && options.draft_tokens_max > 0;
    limits.draft_tokens_max = can_draft ? std::min(options.draft_tokens_max, kDraftTokensMax) : 0;
    limits.kept_rows = can_draft ? kKeptRows : 0;
    plan.has_mtp = wants_mtp(config, options);

    const std::int32_t verifying = std::min(options.sequences_max, options.draft_batch_max);
    // One row for every sequence, and the drafts of those that verify.
    limits.step.logit_rows =
        options.logit_rows_max > 0
            ? options.logit_rows_max
            : clamped(options.sequences_max + std::int64_t{verifying} * limits.draft_tokens_max);
    limits.step.rows =
        std::max({options.step_rows_max, options.sequences_max, limits.step.logit_rows});
    limits.step.seqs = options.sequences_max;
    limits.step.blocks_per_seq = clamped(blocks_of(context, options.block_tokens));
    limits.step.vocabulary = config.vocabulary;
    limits.step.inputs_max = supply.inputs_max;
    limits.block_tokens = options.block_tokens;
    limits.has_recurrent_state = config.has_recurrent_state();
    limits.state_slots = limits.has_recurrent_state ? options.sequences_max : 0;
    limits.max_model_len = context;

    if (config.delta_net) {
        limits.step.delta_key_heads = config.delta_net->key_heads;
        limits.step.delta_value_heads = config.delta_net->value_heads;
        // One row more than taps and drafts need, so that even a verify step of which nothing is
        // accepted has overwritten nothing.
        plan.conv_ring_rows = config.delta_net->conv_kernel - 1 +
                              (limits.draft_tokens_max > 0 ? 1 + limits.draft_tokens_max : 0);
    }
    const Saturated slots = Saturated(limits.state_slots) + 1;  // slot 0 is scratch
    const Saturated slot_bytes = state_slot_bytes(config, plan.conv_ring_rows);
    plan.state_bytes = (slots * slot_bytes).value();
    plan.replay_bytes = (slots * replay_slot_bytes(config, limits.draft_tokens_max)).value();
    limits.snapshot_bytes = slot_bytes.value();
    if (limits.snapshot_bytes > 0) {
        // One place at least: through it the choices of a request share their prompt.
        limits.snapshots = static_cast<std::int32_t>(std::clamp<std::uint64_t>(
            options.snapshot_memory_bytes / limits.snapshot_bytes, 1, kCountMax));
    }
    plan.snapshot_bytes = (Saturated(limits.snapshots) * slot_bytes).value();
    plan.buffer_bytes = buffer_bytes(config, plan);
    plan.rope_bytes = (Saturated(context) * config.n_rot * sizeof(float)).value();
    plan.weight_bytes = supply.weight_bytes;
    if (supply.scratch_bytes) plan.scratch_bytes = supply.scratch_bytes(limits.step);
    plan.reserve_bytes = supply.loading_bytes + spare_bytes(supply);
    return plan;
}

struct Pages {
    std::int64_t count;
    Saturated bytes_each;
};

void set_pages(MemoryPlan& plan, const Pages& pages) {
    plan.limits.blocks_total = clamped(pages.count);
    plan.kv_bytes = (Saturated(plan.limits.blocks_total) * pages.bytes_each).value();
}

/// The plan with as few pages as it may have.
MemoryPlan least_plan(const ModelConfig& config, const RunnerOptions& options,
                      const MemorySupply& supply, std::int32_t context) {
    MemoryPlan plan = plan_without_pages(config, options, supply, context);
    const std::int64_t fixed =
        options.kv_tokens > 0 ? blocks_of(options.kv_tokens, options.block_tokens) : 0;
    set_pages(plan, {.count = std::max<std::int64_t>(plan.limits.step.blocks_per_seq, fixed),
                     .bytes_each = block_bytes(config, options, plan.has_mtp)});
    return plan;
}

/// The largest context for which the least plan fits, in whole pages; 0 = none. Cost grows with
/// the context, so the interval is halved.
std::int32_t largest_context(const ModelConfig& config, const RunnerOptions& options,
                             const MemorySupply& supply, std::int32_t context) {
    std::int64_t fits = 0;
    std::int64_t too_large = blocks_of(context, options.block_tokens);
    while (too_large - fits > 1) {
        const std::int64_t middle = fits + (too_large - fits) / 2;
        const auto tokens = static_cast<std::int32_t>(middle * options.block_tokens);
        const bool ok =
            least_plan(config, options, supply, tokens).device_bytes() <= supply.free_bytes;
        (ok ? fits : too_large) = middle;
    }
    return static_cast<std::int32_t>(fits * options.block_tokens);
}

/// Whether it is this one flag that asks for too much: without it the plan fits.
std::optional<ModelError> refusal_of_flag(const ModelConfig& config, const RunnerOptions& options,
                                          const MemorySupply& supply, const MemoryPlan& least) {
    const auto fits_with = [&](const RunnerOptions& other) {
        return least_plan(config, other, supply, least.limits.max_model_len).device_bytes() <=
               supply.free_bytes;
    };
    const std::string why =
        "needs " + gib(least.device_bytes()) + " in all, the device has " + gib(supply.free_bytes);
    RunnerOptions smaller = options;
    smaller.kv_tokens = 0;
    if (options.kv_tokens > 0 && fits_with(smaller)) {
        return ModelError{ModelErrorKind::kMemory,
                          "a KV pool of " + std::to_string(options.kv_tokens) + " tokens", why,
                          "lower the KV pool (kv_tokens), or leave it out to take what fits"};
    }
    smaller = options;
    smaller.snapshot_memory_bytes = 0;
    if (least.snapshots_on_device && options.snapshot_memory_bytes > 0 && fits_with(smaller)) {
        return ModelError{ModelErrorKind::kMemory,
                          "checkpoints in " + gib(options.snapshot_memory_bytes), why,
                          "lower the memory of checkpoints (checkpoint_memory_mib)"};
    }
    return std::nullopt;
}

ModelError refusal(const ModelConfig& config, const RunnerOptions& options,
                   const MemorySupply& supply, const MemoryPlan& least) {
    if (auto flag = refusal_of_flag(config, options, supply, least)) return *std::move(flag);
    const std::int32_t context = least.limits.max_model_len;
    const std::int32_t fits = largest_context(config, options, supply, context);
    return {
        ModelErrorKind::kMemory,
        "context " + std::to_string(context) + " with " + std::to_string(options.sequences_max) +
            " sequences",
        "needs " + gib(least.device_bytes()) + ", the device has " + gib(supply.free_bytes) + "; " +
            (fits > 0 ? "largest context that fits is " + std::to_string(fits) : "no context fits"),
        fits > 0 ? "lower the context or the number of sequences"
                 : "lower the number of sequences or free memory"};
}

}  // namespace

std::optional<ModelError> check_context(const ModelConfig& config, std::int32_t context) {
    if (context <= config.context_train) return std::nullopt;
    return ModelError{
        ModelErrorKind::kFlags, "context cannot be " + std::to_string(context),
        "the model was trained for " + std::to_string(config.context_train) + " tokens",
        "use a context of at most that"};
}

bool wants_mtp(const ModelConfig& config, const RunnerOptions& options) {
    return !config.mtp_layers.empty() && (options.draft_tokens_max > 0 || options.with_mtp);
}

std::uint64_t MemoryPlan::device_bytes() const {
    return (Saturated(weight_bytes) + kv_bytes + state_bytes + replay_bytes + buffer_bytes +
            rope_bytes + scratch_bytes + reserve_bytes + (snapshots_on_device ? snapshot_bytes : 0))
        .value();
}

tl::expected<MemoryPlan, ModelError> plan_memory(const ModelConfig& config,
                                                 const RunnerOptions& options,
                                                 const MemorySupply& supply) {
    assert(options.sequences_max > 0 && options.block_tokens > 0 && options.draft_batch_max > 0);
    std::int32_t context =
        options.context > 0 ? options.context : std::min(config.context_train, kContextDefaultMax);
    if (auto error = check_context(config, context)) return tl::unexpected(*std::move(error));
    if (options.kv_tokens > 0) {  // one sequence holds no more than the pool does
        context = static_cast<std::int32_t>(std::min<std::int64_t>(context, options.kv_tokens));
    }
    MemoryPlan plan = least_plan(config, options, supply, context);
    const std::uint64_t least_bytes = plan.device_bytes();
    if (least_bytes > supply.free_bytes) {
        return tl::unexpected(refusal(config, options, supply, plan));
    }
    if (options.kv_tokens > 0) return plan;

    const Saturated bytes_each = block_bytes(config, options, plan.has_mtp);
    const std::int64_t wanted =
        std::int64_t{plan.limits.step.blocks_per_seq} * options.sequences_max;
    const std::uint64_t more =
        (supply.free_bytes - least_bytes) / std::max<std::uint64_t>(bytes_each.value(), 1);
    const std::int64_t missing = wanted - plan.limits.blocks_total;
    set_pages(plan, {.count = plan.limits.blocks_total + (more < static_cast<std::uint64_t>(missing)
                                                              ? static_cast<std::int64_t>(more)
                                                              : missing),
                     .bytes_each = bytes_each});
    return plan;
}

}  // namespace replica
