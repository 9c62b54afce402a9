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

bool is_valid_instance(std::string_view text) {
    constexpr std::string_view kAllowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return !text.empty() && text.size() <= kInstanceBytesMax &&
           text.find_first_not_of(kAllowed) == std::string_view::npos;
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
        {"gpus", status.gpus},
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
    const auto read_count = [&fields](const char* name, auto& out, auto most) {
        fields.read_between(name, out, 0, most);
    };
    fields.require("instance", status.instance);
    fields.require("state", status.state);
    fields.require("seq", status.seq);
    read_count("replica", status.replica, kReplicaIndexMax);
    fields.read("step", status.step);
    read_count("step_age_ms", status.step_age_ms, kReportedMillisecondsMax);
    read_count("running", status.running, kReportedSequencesMax);
    read_count("waiting", status.waiting, kReportedSequencesMax);
    read_count("sequences_max", status.sequences_max, kReportedSequencesMax);
    read_count("queued_tokens", status.queued_tokens, kReportedTokensMax);
    read_count("kv_blocks_free", status.kv_blocks_free, kReportedBlocksMax);
    read_count("kv_blocks_total", status.kv_blocks_total, kReportedBlocksMax);
    read_count("block_tokens", status.block_tokens, kReportedBlockTokensMax);
    read_count("gpus", status.gpus, kReportedGpusMax);
    read_count("prefill_tokens_per_s", status.prefill_tokens_per_s, kReportedTokensPerSecondMax);
    read_count("decode_tokens_per_s", status.decode_tokens_per_s, kReportedTokensPerSecondMax);
    read_count("longest_step_ms", status.longest_step_ms, kReportedMillisecondsMax);
    read_count("max_model_len", status.max_model_len, kReportedContextTokensMax);
    fields.read("model", status.model);
    fields.read("degraded", status.degraded);
    read_count("eta_s", status.eta_s, kReportedSecondsMax);
    fields.read("prompt_tokens_total", status.prompt_tokens_total);
    fields.read("generated_tokens_total", status.generated_tokens_total);
    Result<ReplicaStatus> read = fields.result(std::move(status));
    if (read && !is_valid_instance(read->instance)) {
        return fail(ErrorCode::kInvalidValue, "An instance is 1 to 64 of [A-Za-z0-9._-].",
                    "instance");
    }
    return read;
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
    fields.read_between("prompt", event.prompt, 0, kReportedTokensMax);
    fields.read_between("cached", event.cached, 0, kReportedTokensMax);
    fields.read_between("generated", event.generated, 0, kReportedTokensMax);
    fields.read("reason", event.reason);
    return fields.result(std::move(event));
}

}  // namespace proto
