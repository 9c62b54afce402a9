// The router's own series, all of them, with help text: `quadriga_router_...`.
//
// Every series is a reference that lives as long as the process; a request touches counters through
// arrays indexed by enums, never through a look-up by label. Label values come from closed sets
// (enums, replica indexes): nothing a client sends becomes a label.
// Decision thread only. Source: spec of the router, section 12, as far as it has meaning now.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "proto/http_gate.h"
#include "router/affinity.h"
#include "router/breaker.h"
#include "router/policy.h"
#include "router/timing.h"
#include "router/wait_queue.h"

namespace router {

enum class Endpoint : std::uint8_t {
    kChatCompletions,
    kCompletions,
    kTokens,
    kModels,
    kHealth,
    kReady,
    kInfo,
    kMetrics,
    kDashboard,
    kOther
};
inline constexpr std::size_t kEndpointCount = 10;

/// How a request ended; exactly one for each.
enum class Outcome : std::uint8_t {
    kOk,
    kClientError,
    kRejected,
    kClientAbort,
    kUpstreamError,
    kUpstreamStall,
    kDrained
};
inline constexpr std::size_t kOutcomeCount = 7;
[[nodiscard]] std::string_view name_of(Outcome outcome);
[[nodiscard]] std::string_view name_of(Endpoint endpoint);

enum class Phase : std::uint8_t { kQueued, kPrefill, kDecode };
inline constexpr std::size_t kPhaseCount = 3;
[[nodiscard]] std::string_view name_of(Phase phase);

enum class RejectReason : std::uint8_t {
    kQueueFull,
    kQueueTimeout,
    kNoReplicaReady,
    kDraining,
    kBodiesFull,
    kAttemptsUsedUp,
    kKeyQueueFull,  // the key's half of the queue, or of the memory for bodies
    kKeyBodiesFull,
    kPassesFull,  // of what needs no queue
    kKeyPassesFull,
    kModelGone  // while it waited, the last replica that might serve its model came back without
};
inline constexpr std::size_t kRejectReasonCount = 11;

/// What can be read again while the process runs.
enum class Reload : std::uint8_t { kKeys, kAdminKeys, kTls };
inline constexpr std::size_t kReloadCount = 3;

enum class RetryReason : std::uint8_t { kRefused, kLost, kBusy };
inline constexpr std::size_t kRetryReasonCount = 3;

enum class AttemptOutcome : std::uint8_t { kOk, kClientError, kRefused, kBusy, kLost, kAborted };
inline constexpr std::size_t kAttemptOutcomeCount = 6;

/// Where the router's own time goes.
enum class Stage : std::uint8_t { kAdmit, kChoose, kDispatch, kRelay };
inline constexpr std::size_t kStageCount = 4;

/// Why a connection was not kept.
enum class ConnectionReject : std::uint8_t { kCount, kAddress, kDescriptors, kTls };
inline constexpr std::size_t kConnectionRejectCount = 4;
[[nodiscard]] std::string_view name_of(Stage stage);

/// Series that carry a replica label. They stay where they are until the process ends: an attempt
/// keeps them, and may end after its replica was removed. What it then counts shows nowhere.
struct ReplicaSeries {
    bool is_forgotten = false;
    prometheus::Counter* prompt_tokens_cached = nullptr;
    prometheus::Counter* prompt_tokens_uncached = nullptr;
    prometheus::Counter* generation_tokens = nullptr;
    std::array<prometheus::Counter*, kAttemptOutcomeCount> upstream_requests{};
    prometheus::Gauge* upstream_inflight = nullptr;
    std::array<prometheus::Gauge*, 2> upstream_connections{};  // busy, idle
    std::array<prometheus::Counter*, kReasonCount> decisions{};
    prometheus::Counter* affinity_predicted = nullptr;  // tokens
    prometheus::Counter* affinity_confirmed = nullptr;
    prometheus::Gauge* up = nullptr;
    std::array<prometheus::Gauge*, kReplicaStateCount> state{};
    prometheus::Gauge* status_age_seconds = nullptr;
    prometheus::Counter* status_fallback = nullptr;
    prometheus::Gauge* breaker_state = nullptr;
    std::array<prometheus::Counter*, kBreakerStateCount> breaker_transitions{};
};

class Metrics {
public:
    struct Build {
        std::string version;
        std::string commit;
        std::string config_digest;
    };
    explicit Metrics(const Build& build);

    /// The series of replica `index`, made on first use and kept.
    ReplicaSeries& replica(int index);
    /// It was removed: its series go, so that no alert speaks of it for ever.
    void forget_replica(int index);
    /// By index; null where there was none.
    [[nodiscard]] const std::vector<std::unique_ptr<ReplicaSeries>>& replicas() const {
        return replicas_;
    }

    void count_request(Endpoint endpoint, int status, Outcome outcome);
    /// Requests of `endpoint` that ended like this so far, whatever their status.
    [[nodiscard]] double requests_total(Endpoint endpoint, Outcome outcome) const;

    /// When the certificate that clients see ends; without one there is no such series.
    void set_certificate_end(std::chrono::system_clock::time_point end);
    /// Requests on the admin's TCP port refused for their key.
    prometheus::Counter* admin_wrong_keys = nullptr;
    prometheus::Counter* admin_shut_out = nullptr;

    /// Prometheus text of all series.
    [[nodiscard]] std::string text() const;

    std::array<prometheus::Gauge*, kPhaseCount> requests_inflight{};
    std::array<prometheus::Gauge*, kPriorityClassCount> queue_requests{};
    prometheus::Gauge* queue_bytes = nullptr;
    prometheus::Gauge* body_bytes = nullptr;
    prometheus::Gauge* passes_inflight = nullptr;
    prometheus::Gauge* unsent_bytes = nullptr;
    std::array<prometheus::Histogram*, kPriorityClassCount> queue_wait_seconds{};
    std::array<prometheus::Counter*, kRejectReasonCount> rejected{};
    std::optional<Timing> time_to_first_token_seconds;
    prometheus::Histogram* request_seconds = nullptr;
    std::optional<Timing> event_gap_seconds;
    std::array<prometheus::Counter*, kRetryReasonCount> retries{};
    prometheus::Counter* retry_budget_exhausted = nullptr;
    prometheus::Counter* poison_requests = nullptr;
    prometheus::Counter* log_lines_dropped = nullptr;
    prometheus::Counter* answer_ends_unread = nullptr;
    std::array<prometheus::Counter*, kPhaseCount> client_aborts{};
    prometheus::Histogram* cancel_seconds = nullptr;
    std::array<prometheus::Counter*, 2> stream_errors{};  // lost, stalled
    std::array<std::optional<Timing>, kStageCount> overhead_seconds;
    prometheus::Histogram* loop_lag_seconds = nullptr;
    prometheus::Histogram* ttft_prediction_error = nullptr;
    prometheus::Gauge* affinity_entries = nullptr;
    prometheus::Gauge* affinity_suspended = nullptr;
    std::array<prometheus::Counter*, kEvictionReasonCount> affinity_evictions{};
    prometheus::Gauge* fairness_jain_ratio = nullptr;
    prometheus::Gauge* connections = nullptr;
    std::array<prometheus::Counter*, kConnectionRejectCount> connections_rejected{};
    std::array<prometheus::Counter*, proto::kGateReasonCount> gate_rejected{};
    prometheus::Counter* slow_client_aborts = nullptr;
    std::array<prometheus::Counter*, kReloadCount> reloads{};
    std::array<prometheus::Counter*, kReloadCount> reloads_failed{};

private:
    [[nodiscard]] static std::size_t request_slot(Endpoint endpoint, std::size_t code_index,
                                                  Outcome outcome);

    // Status codes we answer with are few; one slot each, the last for any other.
    static constexpr std::array<int, 22> kCodes = {200, 204, 400, 401, 404, 405, 408, 409,
                                                   413, 415, 417, 421, 429, 431, 499, 500,
                                                   501, 502, 503, 504, 505, 0};
    void make_own_series();
    void make_families();
    void lead_nowhere(ReplicaSeries& series);

    std::shared_ptr<prometheus::Registry> registry_;
    prometheus::Family<prometheus::Counter>* requests_family_ = nullptr;
    std::array<prometheus::Counter*, kEndpointCount * kCodes.size() * kOutcomeCount> requests_{};

    prometheus::Family<prometheus::Counter>* prompt_tokens_family_ = nullptr;
    prometheus::Family<prometheus::Counter>* generation_tokens_family_ = nullptr;
    prometheus::Family<prometheus::Counter>* upstream_requests_family_ = nullptr;
    prometheus::Family<prometheus::Gauge>* upstream_inflight_family_ = nullptr;
    prometheus::Family<prometheus::Gauge>* upstream_connections_family_ = nullptr;
    prometheus::Gauge* certificate_end_ = nullptr;
    prometheus::Family<prometheus::Counter>* decisions_family_ = nullptr;
    prometheus::Family<prometheus::Counter>* affinity_tokens_family_ = nullptr;
    prometheus::Family<prometheus::Gauge>* up_family_ = nullptr;
    prometheus::Family<prometheus::Gauge>* state_family_ = nullptr;
    prometheus::Family<prometheus::Gauge>* status_age_family_ = nullptr;
    prometheus::Family<prometheus::Counter>* status_fallback_family_ = nullptr;
    prometheus::Family<prometheus::Gauge>* breaker_state_family_ = nullptr;
    prometheus::Family<prometheus::Counter>* breaker_transitions_family_ = nullptr;
    std::vector<std::unique_ptr<ReplicaSeries>> replicas_;
    // Where the series of forgotten replicas lead.
    prometheus::Counter no_counter_;
    prometheus::Gauge no_gauge_;
};

/// One request in the in-flight gauge, in exactly one phase; leaves it on destruction.
class InflightGauge {
public:
    InflightGauge(Metrics& metrics, Phase phase);
    InflightGauge(const InflightGauge&) = delete;
    InflightGauge& operator=(const InflightGauge&) = delete;
    ~InflightGauge();

    void enter(Phase phase);
    Phase phase() const { return phase_; }

private:
    Metrics& metrics_;
    Phase phase_;
};

}  // namespace router
