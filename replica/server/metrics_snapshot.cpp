#include "replica/server/metrics_snapshot.h"

#include <array>

#include "proto/process_families.h"
#include "replica/server/options.h"

namespace replica::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::map<std::string, std::string>;

class Writer {
public:
    Writer(const Labels& constant_labels, std::vector<MetricFamily>& families)
        : constant_labels_(constant_labels), families_(families) {}

    struct Text {
        std::string name, help;
    };
    void gauge(Text text, double value, const Labels& labels = {}) {
        add({"quadriga_replica_" + text.name, std::move(text.help)}, MetricType::Gauge, value,
            labels);
    }
    void counter(Text text, double value, const Labels& labels = {}) {
        add({"quadriga_replica_" + text.name, std::move(text.help)}, MetricType::Counter, value,
            labels);
    }

private:
    void add(Text text, MetricType type, double value, const Labels& labels) {
        if (families_.empty() || families_.back().name != text.name) {
            MetricFamily family;
            family.name = std::move(text.name);
            family.help = std::move(text.help);
            family.type = type;
            families_.push_back(std::move(family));
        }
        ClientMetric metric;
        for (const Labels* set : {&constant_labels_, &labels}) {
            for (const auto& [name, content] : *set)
                metric.label.push_back({name, content});
        }
        if (type == MetricType::Gauge) {
            metric.gauge.value = value;
        } else {
            metric.counter.value = value;
        }
        families_.back().metric.push_back(std::move(metric));
    }

    const Labels& constant_labels_;
    std::vector<MetricFamily>& families_;
};

double as_number(bool value) {
    return value ? 1 : 0;
}

void append_state(const MetricsSnapshot& snapshot, Writer& out) {
    // The states a replica itself can be in.
    constexpr std::array kStates = {proto::ReplicaState::kLoading, proto::ReplicaState::kWarming,
                                    proto::ReplicaState::kSelftest, proto::ReplicaState::kReady,
                                    proto::ReplicaState::kDraining};
    for (const proto::ReplicaState state : kStates) {
        out.gauge({"state", "1 for the state the replica is in."},
                  as_number(state == snapshot.state),
                  {{"state", std::string(proto::replica_state_name(state))}});
    }
    out.gauge({"ready", "1 when requests are admitted."}, as_number(snapshot.is_ready));
    out.gauge({"degraded", "1 when a kernel that the plan wants is not armed."},
              as_number(snapshot.is_degraded));
    out.gauge({"uptime_seconds", "Since the process started."}, snapshot.uptime.count());
    for (const auto& [phase, seconds] : snapshot.load_seconds) {
        out.gauge({"load_seconds", "Time each phase of loading took."}, seconds,
                  {{"phase", phase}});
    }
    if (snapshot.selftest_passed) {
        out.gauge({"selftest_passed", "1 when the self-test passed."},
                  as_number(*snapshot.selftest_passed));
    }
    for (const kernels::KernelEntry& kernel : snapshot.kernels) {
        out.gauge({"kernel_armed", "1 when the kernel is in use."},
                  as_number(kernel.state == kernels::KernelState::kArmed),
                  {{"kernel", kernels::full_name(kernel)}});
    }
    for (const kernels::KernelEntry& kernel : snapshot.kernels) {
        out.counter({"kernel_runs_total", "Launches of the kernel."},
                    static_cast<double>(kernel.runs), {{"kernel", kernels::full_name(kernel)}});
    }
    for (const auto& [kind, bytes] : snapshot.device_memory) {
        out.gauge({"device_memory_bytes", "Memory planned at load, by what it is for."},
                  static_cast<double>(bytes), {{"gpu_uuid", snapshot.gpu_uuid}, {"kind", kind}});
    }
    out.gauge({"config_info", "Always 1; the label is the digest of the launcher's settings."}, 1,
              {{"digest", snapshot.config_digest}});
    out.gauge({"build_info", "Always 1; the label says which build."}, 1,
              {{"version", build_version()}});
}

void append_engine(const EngineStatus& engine, std::int64_t waiting, Writer& out) {
    out.gauge({"requests_running", "Sequences in the engine's steps."}, engine.running);
    out.gauge({"requests_waiting", "Requests admitted and not yet running."},
              static_cast<double>(waiting));
    out.gauge({"sequences_max", "Sequences that may run at once."}, engine.sequences_max);
    out.gauge({"queued_tokens", "Prompt tokens accepted, not cached and not yet prefilled."},
              static_cast<double>(engine.queued_tokens));
    out.gauge({"step_token_budget", "Tokens that the last step might have had."},
              engine.step_token_budget);
    out.counter(
        {"prompt_tokens_total", "Prompt tokens of requests that have begun, cached ones included."},
        static_cast<double>(engine.prompt_tokens_total));
    out.counter(
        {"cached_prompt_tokens_total", "Those of prompt_tokens_total that the prefix cache had."},
        static_cast<double>(engine.cache.hit_tokens_total));
    out.counter({"generation_tokens_total", "Tokens sampled."},
                static_cast<double>(engine.generated_tokens_total));
    out.counter({"preemptions_total", "Sequences put back because blocks ran out."},
                static_cast<double>(engine.preemptions_total));
    const bool has_stepped = engine.last_step_end != std::chrono::steady_clock::time_point{};
    const std::chrono::duration<double> age =
        has_stepped ? std::chrono::steady_clock::now() - engine.last_step_end
                    : std::chrono::steady_clock::duration{};
    out.gauge({"last_step_age_seconds", "Since the last forward pass ended."}, age.count());
    out.gauge({"longest_step_seconds", "Longest forward pass of the last minute."},
              engine.longest_step.count());
    out.gauge({"prefill_tokens_per_second", "Over 10 s of busy time."},
              engine.prefill_tokens_per_s);
    out.gauge({"decode_tokens_per_second", "Over 10 s of busy time."}, engine.decode_tokens_per_s);
}

/// Blocks that only the prefix cache holds are free for the taking: they are not used.
void append_cache(const EngineStatus& engine, Writer& out) {
    const int used = engine.blocks_total - engine.blocks_free;
    out.gauge({"kv_blocks_used", "KV blocks that sequences hold."}, used);
    out.gauge({"kv_blocks_total", "KV blocks there are."}, engine.blocks_total);
    out.gauge({"kv_block_tokens", "Tokens of one block."}, engine.block_tokens);
    out.gauge({"kv_cache_used_ratio", "Used over all blocks."},
              engine.blocks_total > 0 ? static_cast<double>(used) / engine.blocks_total : 0.0);
    out.gauge({"cache_info", "Always 1; the labels give sizes."}, 1,
              {{"block_size", std::to_string(engine.block_tokens)},
               {"num_gpu_blocks", std::to_string(engine.blocks_total)}});
    const CacheStatus& cache = engine.cache;
    const auto number = [](auto value) { return static_cast<double>(value); };
    out.counter({"prefix_query_tokens_total", "Prompt tokens looked up in the prefix cache."},
                number(cache.query_tokens_total));
    out.counter({"prefix_hit_tokens_total", "Of those, found."}, number(cache.hit_tokens_total));
    const Labels host = {{"tier", "host"}};
    out.gauge({"checkpoints", "Saved recurrent states."}, cache.checkpoints, host);
    out.gauge({"checkpoint_bytes", "Bytes of the saved states."}, number(cache.checkpoint_bytes),
              host);
    out.counter({"checkpoints_created_total", "States saved."}, number(cache.created_total), host);
    out.counter({"checkpoints_restored_total", "States that a sequence went on from."},
                number(cache.restored_total), host);
    out.counter({"checkpoints_evicted_total", "Saved states that gave way to others."},
                number(cache.evicted_total), host);
}

void append_drafts(const DraftStatus& draft, Writer& out) {
    const auto by_position = [&](Writer::Text text, const auto& totals) {
        for (std::int32_t i = 0; i < draft.draft_tokens_max; ++i) {
            const auto total = static_cast<double>(totals[static_cast<std::size_t>(i)]);
            out.counter(text, total, {{"position", std::to_string(i + 1)}});
        }
    };
    by_position({"draft_tokens_total", "Tokens drafted, by position in the draft."},
                draft.drafted_total);
    by_position({"draft_tokens_accepted_total", "Drafts accepted with all before them."},
                draft.accepted_total);
    out.gauge({"spec_draft_tokens", "Drafts in a row, as chosen for the last step."},
              draft.draft_tokens);
    out.gauge({"spec_cost_ratio", "Time of drafting and verifying over that of a plain step."},
              draft.cost_ratio);
    out.gauge({"spec_gain_ratio", "Predicted speed-up: tokens of a round over its cost."},
              draft.gain_ratio);
}

}  // namespace

void append_snapshot(const MetricsSnapshot& snapshot, const Labels& constant_labels,
                     std::vector<MetricFamily>& families) {
    Writer out(constant_labels, families);
    append_state(snapshot, out);
    if (snapshot.engine) {
        append_engine(*snapshot.engine, snapshot.requests_waiting, out);
        append_cache(*snapshot.engine, out);
        append_drafts(snapshot.engine->draft, out);
    }
    proto::append_process_families(families, constant_labels);
}

}  // namespace replica::server
