// status: what a replica says about itself, to router and launcher.
//
// GET /internal/status answers one ReplicaStatus; GET /internal/status/stream sends `status` events
// (on change, at most every 20 ms, at least every second) and a `done` event per dispatch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/error.h"
#include "proto/json.h"

namespace proto {

/// The launcher's words for a replica's life, the same in CLI, metrics, log and dashboard.
/// A replica itself reports LOADING, WARMING, SELFTEST, READY or DRAINING.
enum class ReplicaState {
    kAbsent,
    kWaitVram,
    kWaitLock,
    kLoading,
    kWarming,
    kSelftest,
    kReady,
    kDraining,
    kStopping,
    kBackoff,
    kQuarantined,
    kUnkillable,
};
inline constexpr int kReplicaStateCount = static_cast<int>(ReplicaState::kUnkillable) + 1;

/// "READY"
std::string_view replica_state_name(ReplicaState state);
std::optional<ReplicaState> replica_state_from_name(std::string_view name);

inline constexpr std::chrono::milliseconds kStatusIntervalMin{20};
inline constexpr std::chrono::milliseconds kStatusIntervalMax{1000};

// What a report may say, far above what is true of any machine: whoever reads one adds, multiplies
// and converts these numbers without further looks. A report beyond them is refused as a whole.
inline constexpr int kReportedSequencesMax = 1 << 16;
inline constexpr std::int64_t kReportedTokensMax = 1'000'000'000'000;
inline constexpr std::int64_t kReportedContextTokensMax = std::int64_t{1} << 27;
inline constexpr std::int64_t kReportedBlocksMax = 1'000'000'000'000;
inline constexpr int kReportedBlockTokensMax = 1 << 20;
inline constexpr int kReportedGpusMax = 64;
inline constexpr double kReportedTokensPerSecondMax = 1e9;
inline constexpr std::int64_t kReportedMillisecondsMax = 1'000'000'000'000;  // 31 years
inline constexpr double kReportedSecondsMax = 1e9;
inline constexpr int kReplicaIndexMax = 1 << 16;

/// An instance id as it is named in header fields and logs: 1 to 64 of [A-Za-z0-9._-].
inline constexpr std::size_t kInstanceBytesMax = 64;
bool is_valid_instance(std::string_view text);

struct ReplicaStatus {
    int replica = 0;
    std::string instance;  // our replicas: 16 hex digits, random per process
    ReplicaState state = ReplicaState::kLoading;
    std::uint64_t seq = 0;   // rises with every report of an instance
    std::uint64_t step = 0;  // forward passes so far
    std::int64_t step_age_ms = 0;
    int running = 0, waiting = 0, sequences_max = 0;
    std::int64_t queued_tokens = 0;  // prompt tokens accepted and not yet prefilled, minus cached
    std::int64_t kv_blocks_free = 0, kv_blocks_total = 0;
    int block_tokens = 0;
    int gpus = 1;  // that one step of it keeps busy
    double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
    std::int64_t longest_step_ms = 0;
    std::int64_t max_model_len = 0;
    std::string model;
    bool degraded = false;
    double eta_s = 0;
    // Since the process began: their growth is the throughput, idle times included.
    std::uint64_t prompt_tokens_total = 0;  // of requests that have begun, cached ones included
    std::uint64_t generated_tokens_total = 0;

    bool operator==(const ReplicaStatus&) const = default;
};

/// One line of JSON, keys in the order of the struct, `"v":1` first.
std::string to_json(const ReplicaStatus& status);
/// Unknown keys are ignored, missing ones keep their defaults; instance, state and seq must be
/// there, and every number within its limit.
Result<ReplicaStatus> parse_replica_status(std::string_view text);

/// How one dispatch of the router ended, for its accounts.
struct DoneEvent {
    std::string dispatch;  // the x-quadriga-dispatch header of the request
    std::int64_t prompt = 0, cached = 0, generated = 0;
    std::string reason;  // stop, length, tool_calls, cancelled, error

    bool operator==(const DoneEvent&) const = default;
};
std::string to_json(const DoneEvent& event);
/// The counts are from 0 to kReportedTokensMax.
Result<DoneEvent> parse_done_event(std::string_view text);

// Names of the headers that router and replica exchange.
inline constexpr std::string_view kHeaderInstance = "x-quadriga-instance";
inline constexpr std::string_view kHeaderDispatch = "x-quadriga-dispatch";
inline constexpr std::string_view kHeaderHop = "x-quadriga-hop";
inline constexpr std::string_view kHeaderPriority = "x-quadriga-priority";
inline constexpr std::string_view kHeaderDecision = "x-quadriga-decision";
inline constexpr std::string_view kHeaderWarning = "x-quadriga-warning";
inline constexpr std::string_view kHeaderPromptTokens = "x-quadriga-prompt-tokens";
inline constexpr std::string_view kHeaderCachedTokens = "x-quadriga-cached-tokens";
inline constexpr std::string_view kHeaderRequestId = "x-request-id";

}  // namespace proto
