#include "proto/status.h"

#include <algorithm>
#include <cassert>

#include "proto/json_fields.h"
#include "proto/json_reader.h"

namespace proto {
namespace {

constexpr std::array<std::string_view, kReplicaStateCount> kStateNames = {
    "ABSENT", "WAIT_VRAM", "WAIT_LOCK", "LOADING", "WARMING",     "SELFTEST",
    "READY",  "DRAINING",  "STOPPING",  "BACKOFF", "QUARANTINED", "UNKILLABLE",
};

}  // namespace

std::string_view replica_state_name(ReplicaState state) {
    const auto index = static_cast<std::size_t>(state);
    assert(index < kStateNames.size() && "a ReplicaState outside its enumeration");
    return kStateNames[index];
}

std::optional<ReplicaState> replica_state_from_name(std::string_view name) {
    const auto found = std::ranges::find(kStateNames, name);
    if (found == kStateNames.end()) return std::nullopt;
    return static_cast<ReplicaState>(found - kStateNames.begin());
}

std::string to_json(const ReplicaStatus& status) {
    const Json json = {
        {"v", 1},
        {"replica", status.replica},
        {"instance", status.instance},
        {"state", replica_state_name(status.state)},
        {"seq", status.seq},
        {"step", status.step},
        {"step_age_ms", status.step_age_ms},
        {"running", status.running},
        {"waiting", status.waiting},
        {"sequences_max", status.sequences_max},
        {"queued_tokens", status.queued_tokens},
        {"kv_blocks_free", status.kv_blocks_free},
        {"kv_blocks_total", status.kv_blocks_total},
        {"block_tokens", status.block_tokens},
        {"prefill_tokens_per_s", status.prefill_tokens_per_s},
        {"decode_tokens_per_s", status.decode_tokens_per_s},
        {"longest_step_ms", status.longest_step_ms},
        {"max_model_len", status.max_model_len},
        {"model", status.model},
        {"degraded", status.degraded},
        {"eta_s", status.eta_s},
        {"prompt_tokens_total", status.prompt_tokens_total},
        {"generated_tokens_total", status.generated_tokens_total},
    };
    return json_text(json);
}

Result<ReplicaStatus> parse_replica_status(std::string_view text) {
    ReplicaStatus status;
    Result<Json> json = read_json_object(text);
    if (!json) return tl::unexpected(json.error());
    FieldReader fields(*json);
    fields.require("instance", status.instance);
    fields.require("state", status.state);
    fields.require("seq", status.seq);
    fields.read("replica", status.replica);
    fields.read("step", status.step);
    fields.read("step_age_ms", status.step_age_ms);
    fields.read("running", status.running);
    fields.read("waiting", status.waiting);
    fields.read("sequences_max", status.sequences_max);
    fields.read("queued_tokens", status.queued_tokens);
    fields.read("kv_blocks_free", status.kv_blocks_free);
    fields.read("kv_blocks_total", status.kv_blocks_total);
    fields.read("block_tokens", status.block_tokens);
    fields.read("prefill_tokens_per_s", status.prefill_tokens_per_s);
    fields.read("decode_tokens_per_s", status.decode_tokens_per_s);
    fields.read("longest_step_ms", status.longest_step_ms);
    fields.read("max_model_len", status.max_model_len);
    fields.read("model", status.model);
    fields.read("degraded", status.degraded);
    fields.read("eta_s", status.eta_s);
    fields.read("prompt_tokens_total", status.prompt_tokens_total);
    fields.read("generated_tokens_total", status.generated_tokens_total);
    return fields.result(std::move(status));
}

std::string to_json(const DoneEvent& event) {
    const Json json = {
        {"dispatch", event.dispatch},   {"prompt", event.prompt}, {"cached", event.cached},
        {"generated", event.generated}, {"reason", event.reason},
    };
    return json_text(json);
}

Result<DoneEvent> parse_done_event(std::string_view text) {
    DoneEvent event;
    Result<Json> json = read_json_object(text);
    if (!json) return tl::unexpected(json.error());
    FieldReader fields(*json);
    fields.require("dispatch", event.dispatch);
    fields.read("prompt", event.prompt);
    fields.read("cached", event.cached);
    fields.read("generated", event.generated);
    fields.read("reason", event.reason);
    return fields.result(std::move(event));
}

}  // namespace proto
