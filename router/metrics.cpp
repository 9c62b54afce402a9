#include "router/metrics.h"

#include <algorithm>
#include <vector>

#include <prometheus/text_serializer.h>

#include "proto/process_families.h"

namespace router {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// From 5 ms to one hour: bounds that stop at 30 s would hide a long prefill.
const Buckets kFirstTokenBuckets = {.005, .01, .02, .05, .1,  .2,  .5,  1,    2,    5,
                                    10,   20,  40,  80,  160, 320, 640, 1280, 2560, 3600};
const Buckets kRequestBuckets = {.1, .2,  .5,  1,   2,    5,    10,   20,  40,
                                 80, 160, 320, 640, 1280, 2560, 3600, 7200};
const Buckets kQueueWaitBuckets = {.001, .01, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600};
const Buckets kEventGapBuckets = {.002, .005, .01, .015, .02, .03, .05, .075, .1,
                                  .15,  .2,   .3,  .5,   1,   2.5, 10,  60};
const Buckets kOverheadBuckets = {.00002, .00005, .0001, .0002, .0005, .001,
                                  .002,   .005,   .01,   .05,   .1,    1};
// Actual over expected: 1 is a perfect guess.
const Buckets kErrorBuckets = {.1, .25, .5, .75, .9, 1.1, 1.25, 1.5, 2, 4, 10, 100};
const Buckets kCancelBuckets = {.001, .005, .01, .05, .1, .5, 1};

constexpr std::array<std::string_view, kEndpointCount> kEndpointNames = {"/v1/chat/completions",
                                                                         "/v1/completions",
                                                                         "tokens",
                                                                         "/v1/models",
                                                                         "/health",
                                                                         "/ready",
                                                                         "/info",
                                                                         "/metrics",
                                                                         "/dashboard",
                                                                         "other"};
constexpr std::array<std::string_view, kOutcomeCount> kOutcomeNames = {
    "ok",     "client_error", "rejected", "client_abort", "upstream_error", "upstream_stall",
    "drained"};
constexpr std::array<std::string_view, kPhaseCount> kPhaseNames = {"queued", "prefill", "decode"};
constexpr std::array<std::string_view, kRejectReasonCount> kRejectNames = {
    "queue_full",  "queue_timeout",    "no_replica_ready", "draining",
    "bodies_full", "attempts_used_up", "key_queue_full",   "key_bodies_full",
    "passes_full", "key_passes_full",  "model_gone"};
constexpr std::array<std::string_view, kReloadCount> kReloadNames = {"keys", "admin_keys", "tls"};
constexpr std::array<std::string_view, kRetryReasonCount> kRetryNames = {"refused", "lost", "busy"};
constexpr std::array<std::string_view, kAttemptOutcomeCount> kAttemptNames = {
    "ok", "client_error", "refused", "busy", "lost", "aborted"};
constexpr std::array<std::string_view, kStageCount> kStageNames = {"admit", "choose", "dispatch",
                                                                   "relay"};
constexpr std::array<std::string_view, kConnectionRejectCount> kConnectionRejectNames = {
    "connections_max", "per_address", "descriptors", "tls"};
constexpr std::array<std::string_view, 2> kUseNames = {"busy", "idle"};
constexpr std::array<std::string_view, 2> kStreamErrorNames = {"lost", "stalled"};

constexpr const char* kPrefix = "quadriga_router_";

/// Makes families and series of one registry, so that names and help read as a table below.
struct Maker {
    prometheus::Registry& registry;

    auto& counters(const std::string& name, const std::string& help) {
        return prometheus::BuildCounter().Name(kPrefix + name).Help(help).Register(registry);
    }
    auto& gauges(const std::string& name, const std::string& help) {
        return prometheus::BuildGauge().Name(kPrefix + name).Help(help).Register(registry);
    }
    auto& histograms(const std::string& name, const std::string& help) {
        return prometheus::BuildHistogram().Name(kPrefix + name).Help(help).Register(registry);
    }
};

/// One series per name in `values`, in their order.
template <class Series, std::size_t kCount, class... Args>
void add_each(prometheus::Family<Series>& family, const std::string& label,
              const std::array<std::string_view, kCount>& values,
              std::array<Series*, kCount>& series, const Args&... args) {
    for (std::size_t i = 0; i < kCount; ++i) {
        series[i] = &family.Add({{label, std::string(values[i])}}, args...);
    }
}

}  // namespace

std::string_view name_of(Outcome outcome) {
    return kOutcomeNames.at(static_cast<std::size_t>(outcome));
}
std::string_view name_of(Endpoint endpoint) {
    return kEndpointNames.at(static_cast<std::size_t>(endpoint));
}
std::string_view name_of(Phase phase) {
    return kPhaseNames.at(static_cast<std::size_t>(phase));
}
std::string_view name_of(Stage stage) {
    return kStageNames.at(static_cast<std::size_t>(stage));
}

Metrics::Metrics(const Build& build) : registry_(std::make_shared<prometheus::Registry>()) {
    Maker make{*registry_};
    make.gauges("build_info", "Constant 1; version and commit are in the labels.")
        .Add({{"version", build.version}, {"commit", build.commit}})
        .Set(1);
    make.gauges("config_info", "Constant 1; the digest of the settings is in the label.")
        .Add({{"digest", build.config_digest}})
        .Set(1);
    make_own_series();
    make_families();
}

void Metrics::make_own_series() {
    Maker make{*registry_};
    requests_family_ =
        &make.counters("requests_total", "Requests by endpoint, answered status and outcome.");
    add_each(make.gauges("requests_inflight", "Requests in the router by phase."), "phase",
             kPhaseNames, requests_inflight);
    const std::array<std::string_view, kPriorityClassCount> classes = {
        name_of(PriorityClass::kInteractive), name_of(PriorityClass::kDefault),
        name_of(PriorityClass::kBulk)};
    add_each(make.gauges("queue_requests", "Requests that wait for a replica, by class."), "class",
             classes, queue_requests);
    queue_bytes = &make.gauges("queue_bytes", "Bytes of the bodies that wait.").Add({});
    body_bytes = &make.gauges("body_bytes",
                              "Bytes of all bodies held: waiting or in flight before "
                              "their first answer byte.")
                      .Add({});
    unsent_bytes =
        &make.gauges("unsent_bytes", "Bytes of answers that clients have not taken.").Add({});
    passes_inflight =
        &make.gauges("passes_inflight", "Requests that need no queue (/tokenize and its kind).")
             .Add({});
    add_each(make.histograms("queue_wait_seconds", "Time from arrival to dispatch, by class."),
             "class", classes, queue_wait_seconds, kQueueWaitBuckets);
    add_each(make.counters("rejected_total", "Requests that were refused, by reason."), "reason",
             kRejectNames, rejected);
    time_to_first_token_seconds.emplace(make.histograms("time_to_first_token_seconds",
                                                        "Time from arrival to the first answer "
                                                        "byte, of streams.")
                                            .Add({}, kFirstTokenBuckets));
    request_seconds =
        &make.histograms("request_seconds", "Time from arrival to the end of the answer.")
             .Add({}, kRequestBuckets);
    event_gap_seconds.emplace(
        make.histograms("event_gap_seconds", "Time between two events of a stream (not tokens).")
            .Add({}, kEventGapBuckets));
    add_each(make.counters("retries_total", "Further attempts at a replica, by reason."), "reason",
             kRetryNames, retries);
    retry_budget_exhausted =
        &make.counters("retry_budget_exhausted_total", "Attempts not made for lack of budget.")
             .Add({});
    poison_requests =
        &make.counters("poison_requests_total", "Requests that were on two instances as they died.")
             .Add({});
    answer_ends_unread =
        &make.counters(
                 "answer_ends_unread_total",
                 "Answers of replicas without a status stream whose usage was not understood.")
             .Add({});
    log_lines_dropped =
        &make.counters("log_lines_dropped_total", "Lines of the log that its reader did not take.")
             .Add({});
    add_each(make.counters("client_aborts_total", "Requests whose client left, by phase."), "phase",
             kPhaseNames, client_aborts);
    cancel_seconds = &make.histograms("cancel_seconds",
                                      "Time from the client's leaving to the upstream's close.")
                          .Add({}, kCancelBuckets);
    add_each(make.counters("stream_errors_total", "Answers that broke off after their first byte."),
             "reason", kStreamErrorNames, stream_errors);
    std::array<prometheus::Histogram*, kStageCount> overhead{};
    add_each(make.histograms("overhead_seconds", "The router's own time, by stage."), "stage",
             kStageNames, overhead, kOverheadBuckets);
    for (std::size_t i = 0; i < kStageCount; ++i)
        overhead_seconds.at(i).emplace(*overhead.at(i));
    loop_lag_seconds = &make.histograms("loop_lag_seconds", "Lateness of a timer of the loop.")
                            .Add({}, kOverheadBuckets);
    ttft_prediction_error = &make.histograms("ttft_prediction_error_ratio",
                                             "First token's time over what the choice expected.")
                                 .Add({}, kErrorBuckets);
    affinity_entries =
        &make.gauges("affinity_entries", "Message boundaries whose holders are known.").Add({});
    affinity_suspended =
        &make.gauges("affinity_suspended", "1 while affinity is off because it did not pay.")
             .Add({});
    std::array<std::string_view, kEvictionReasonCount> evictions;
    for (std::size_t i = 0; i < kEvictionReasonCount; ++i)
        evictions.at(i) = name_of(static_cast<EvictionReason>(i));
    add_each(make.counters("affinity_evictions_total", "Holders forgotten, by reason."), "reason",
             evictions, affinity_evictions);
    fairness_jain_ratio =
        &make.gauges("fairness_jain_ratio",
                     "Jain's index of the keys' service over the last minutes; 1 is even.")
             .Add({});
    connections = &make.gauges("connections", "Open client connections.").Add({});
    add_each(make.counters("connections_rejected_total", "Client connections refused, by reason."),
             "reason", kConnectionRejectNames, connections_rejected);
    auto& gate_family = make.counters("gate_rejected_total", "Requests that broke a rule of HTTP.");
    for (std::size_t i = 0; i < gate_rejected.size(); ++i) {
        const auto reason = static_cast<proto::GateReason>(i);
        gate_rejected.at(i) =
            &gate_family.Add({{"reason", std::string(proto::gate_reason_name(reason))}});
    }
    auto& admin_family =
        make.counters("admin_refused_total",
                      "Requests on the admin's TCP port refused for their key, by reason.");
    admin_wrong_keys = &admin_family.Add({{"reason", "wrong_key"}});
    admin_shut_out = &admin_family.Add({{"reason", "shut_out"}});
    slow_client_aborts =
        &make.counters("slow_client_aborts_total", "Clients cut since they read nothing.").Add({});
    auto& reload_family =
        make.counters("reloads_total", "Files read again on SIGHUP; a failed one changed nothing.");
    for (std::size_t i = 0; i < kReloadCount; ++i) {
        const std::string subject(kReloadNames.at(i));
        reloads.at(i) = &reload_family.Add({{"subject", subject}, {"result", "ok"}});
        reloads_failed.at(i) = &reload_family.Add({{"subject", subject}, {"result", "failed"}});
    }
}

void Metrics::make_families() {
    Maker make{*registry_};
    prompt_tokens_family_ = &make.counters("prompt_tokens_total",
                                           "Prompt tokens of our requests, as replicas reported.");
    generation_tokens_family_ = &make.counters(
        "generation_tokens_total", "Generated tokens of our requests, as replicas reported.");
    upstream_requests_family_ =
        &make.counters("upstream_requests_total", "Attempts at a replica, by outcome.");
    upstream_inflight_family_ =
        &make.gauges("upstream_inflight", "Our sequences on a replica, from selection to the end.");
    upstream_connections_family_ =
        &make.gauges("upstream_connections", "Our connections to a replica, in use and kept.");
    decisions_family_ = &make.counters("decisions_total", "Selections of a replica, by reason.");
    affinity_tokens_family_ = &make.counters(
        "affinity_tokens_total", "Prompt tokens expected in a replica's cache, and found there.");
    up_family_ = &make.gauges("replica_up", "1 when the replica is READY, SUSPECT or DRAINING.");
    state_family_ = &make.gauges("replica_state", "1 for the state the replica is in.");
    status_age_family_ = &make.gauges("status_age_seconds", "Age of the replica's last report.");
    status_fallback_family_ =
        &make.counters("status_fallback_total",
                       "Polls because the status stream was silent, had ended or was refused.");
    breaker_state_family_ =
        &make.gauges("breaker_state", "Breaker of the replica: 0 closed, 1 half-open, 2 open.");
    breaker_transitions_family_ =
        &make.counters("breaker_transitions_total", "Changes of the breaker, by its new state.");
}

void Metrics::set_certificate_end(std::chrono::system_clock::time_point end) {
    if (certificate_end_ == nullptr) {
        certificate_end_ =
            &Maker{*registry_}
                 .gauges("tls_certificate_end_timestamp_seconds",
                         "When the certificate that clients see ends, seconds since 1970.")
                 .Add({});
    }
    certificate_end_->Set(std::chrono::duration<double>(end.time_since_epoch()).count());
}

ReplicaSeries& Metrics::replica(int index) {
    const auto place = static_cast<std::size_t>(index);
    if (place >= replicas_.size()) replicas_.resize(place + 1);
    if (replicas_[place] != nullptr) return *replicas_[place];
    replicas_[place] = std::make_unique<ReplicaSeries>();
    ReplicaSeries& series = *replicas_[place];
    const std::string label = std::to_string(index);
    series.prompt_tokens_cached =
        &prompt_tokens_family_->Add({{"replica", label}, {"cached", "true"}});
    series.prompt_tokens_uncached =
        &prompt_tokens_family_->Add({{"replica", label}, {"cached", "false"}});
    series.generation_tokens = &generation_tokens_family_->Add({{"replica", label}});
    for (std::size_t i = 0; i < kAttemptOutcomeCount; ++i) {
        series.upstream_requests.at(i) = &upstream_requests_family_->Add(
            {{"replica", label}, {"outcome", std::string(kAttemptNames.at(i))}});
    }
    series.upstream_inflight = &upstream_inflight_family_->Add({{"replica", label}});
    for (std::size_t i = 0; i < kUseNames.size(); ++i) {
        series.upstream_connections.at(i) = &upstream_connections_family_->Add(
            {{"replica", label}, {"state", std::string(kUseNames.at(i))}});
    }
    for (std::size_t i = 0; i < series.decisions.size(); ++i) {
        series.decisions.at(i) = &decisions_family_->Add(
            {{"replica", label}, {"reason", std::string(name_of(static_cast<Reason>(i)))}});
    }
    series.affinity_predicted =
        &affinity_tokens_family_->Add({{"replica", label}, {"kind", "predicted"}});
    series.affinity_confirmed =
        &affinity_tokens_family_->Add({{"replica", label}, {"kind", "confirmed"}});
    series.up = &up_family_->Add({{"replica", label}});
    for (std::size_t i = 0; i < series.state.size(); ++i) {
        series.state.at(i) = &state_family_->Add(
            {{"replica", label}, {"state", std::string(name_of(static_cast<ReplicaState>(i)))}});
    }
    series.status_age_seconds = &status_age_family_->Add({{"replica", label}});
    series.status_fallback = &status_fallback_family_->Add({{"replica", label}});
    series.breaker_state = &breaker_state_family_->Add({{"replica", label}});
    for (std::size_t i = 0; i < series.breaker_transitions.size(); ++i) {
        series.breaker_transitions.at(i) = &breaker_transitions_family_->Add(
            {{"replica", label}, {"to", std::string(name_of(static_cast<BreakerState>(i)))}});
    }
    return series;
}

void Metrics::forget_replica(int index) {
    const auto place = static_cast<std::size_t>(index);
    if (place >= replicas_.size() || replicas_[place] == nullptr) return;
    ReplicaSeries& series = *replicas_[place];
    if (series.is_forgotten) return;
    const auto remove_all = [](auto& family, const auto& all) {
        for (auto* one : all)
            family.Remove(one);
    };
    prompt_tokens_family_->Remove(series.prompt_tokens_cached);
    prompt_tokens_family_->Remove(series.prompt_tokens_uncached);
    generation_tokens_family_->Remove(series.generation_tokens);
    remove_all(*upstream_requests_family_, series.upstream_requests);
    upstream_inflight_family_->Remove(series.upstream_inflight);
    remove_all(*upstream_connections_family_, series.upstream_connections);
    remove_all(*decisions_family_, series.decisions);
    affinity_tokens_family_->Remove(series.affinity_predicted);
    affinity_tokens_family_->Remove(series.affinity_confirmed);
    up_family_->Remove(series.up);
    remove_all(*state_family_, series.state);
    status_age_family_->Remove(series.status_age_seconds);
    status_fallback_family_->Remove(series.status_fallback);
    breaker_state_family_->Remove(series.breaker_state);
    remove_all(*breaker_transitions_family_, series.breaker_transitions);
    lead_nowhere(series);
}

void Metrics::lead_nowhere(ReplicaSeries& series) {
    series = {.is_forgotten = true,
              .prompt_tokens_cached = &no_counter_,
              .prompt_tokens_uncached = &no_counter_,
              .generation_tokens = &no_counter_,
              .upstream_inflight = &no_gauge_,
              .affinity_predicted = &no_counter_,
              .affinity_confirmed = &no_counter_,
              .up = &no_gauge_,
              .status_age_seconds = &no_gauge_,
              .status_fallback = &no_counter_,
              .breaker_state = &no_gauge_};
    series.upstream_requests.fill(&no_counter_);
    series.upstream_connections.fill(&no_gauge_);
    series.decisions.fill(&no_counter_);
    series.state.fill(&no_gauge_);
    series.breaker_transitions.fill(&no_counter_);
}

std::size_t Metrics::request_slot(Endpoint endpoint, std::size_t code_index, Outcome outcome) {
    return (static_cast<std::size_t>(endpoint) * kCodes.size() + code_index) * kOutcomeCount +
           static_cast<std::size_t>(outcome);
}

double Metrics::requests_total(Endpoint endpoint, Outcome outcome) const {
    double total = 0;
    for (std::size_t i = 0; i < kCodes.size(); ++i) {
        const prometheus::Counter* counter = requests_.at(request_slot(endpoint, i, outcome));
        if (counter != nullptr) total += counter->Value();
    }
    return total;
}

void Metrics::count_request(Endpoint endpoint, int status, Outcome outcome) {
    const auto code = std::find(kCodes.begin(), kCodes.end() - 1, status);
    const auto code_index = static_cast<std::size_t>(code - kCodes.begin());
    prometheus::Counter*& counter = requests_.at(request_slot(endpoint, code_index, outcome));
    if (counter == nullptr) {
        counter = &requests_family_->Add({{"endpoint", std::string(name_of(endpoint))},
                                          {"code", *code == 0 ? "other" : std::to_string(*code)},
                                          {"outcome", std::string(name_of(outcome))}});
    }
    counter->Increment();
}

std::string Metrics::text() const {
    std::vector<prometheus::MetricFamily> families = registry_->Collect();
    proto::append_process_families(families);
    return prometheus::TextSerializer().Serialize(families);
}

InflightGauge::InflightGauge(Metrics& metrics, Phase phase) : metrics_(metrics), phase_(phase) {
    metrics_.requests_inflight.at(static_cast<std::size_t>(phase_))->Increment();
}

InflightGauge::~InflightGauge() {
    metrics_.requests_inflight.at(static_cast<std::size_t>(phase_))->Decrement();
}

void InflightGauge::enter(Phase phase) {
    metrics_.requests_inflight.at(static_cast<std::size_t>(phase_))->Decrement();
    phase_ = phase;
    metrics_.requests_inflight.at(static_cast<std::size_t>(phase_))->Increment();
}

}  // namespace router
