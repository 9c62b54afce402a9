// All metric families of the replica, in one place. tests/unit/server/metrics_test.cpp holds the
// catalogue of names and compares it with a scrape.
//
// Events are counted where they happen (engine thread or I/O thread; the library locks); what can
// be read from a status is made at the scrape, so a scrape changes nothing and works while the
// model loads or the device hangs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/armed.h"
#include "proto/status.h"
#include "replica/engine/engine.h"
#include "replica/server/choice_text.h"

namespace replica::server {

/// Where a request was when its client left.
enum class RequestPhase { kPrepare, kQueue, kPrefill, kDecode };
std::string_view phase_name(RequestPhase phase);

/// What a scrape reads beside the counted events.
struct MetricsSnapshot {
    proto::ReplicaState state = proto::ReplicaState::kLoading;
    bool is_ready = false, is_degraded = false;
    std::optional<bool> selftest_passed;
    std::chrono::duration<double> uptime{};
    std::vector<std::pair<std::string, double>> load_seconds;  // phase, seconds
    std::optional<EngineStatus> engine;                        // none before the model is loaded
    std::int64_t requests_waiting = 0;  // the engine's, and those not yet handed to it
    std::vector<kernels::KernelEntry> kernels;
    std::vector<std::pair<std::string, std::uint64_t>> device_memory;  // kind, bytes
    std::string gpu_uuid, config_digest;
};

class Metrics {
public:
    Metrics(int replica_index, const std::string& model);
    ~Metrics();
    Metrics(const Metrics&) = delete;
    Metrics& operator=(const Metrics&) = delete;

    // Engine thread.
    void observe_step(const StepStats& stats);
    void observe_first_token(std::chrono::duration<double> since_arrival);
    void observe_inter_token(std::chrono::duration<double> since_last);
    // I/O thread.
    void count_request(std::string_view endpoint, int status);
    void count_rejected(std::string_view reason);  // queue_full context draining loading invalid
    void count_unknown_fields(std::size_t count);
    void count_disconnect(RequestPhase phase);
    void observe_cancel_to_free(std::chrono::duration<double> time);
    /// One finished choice; `request_time` from arrival to its end.
    void observe_finished(const ChoiceEnd& end, std::chrono::duration<double> request_time);

    /// The Prometheus text. I/O thread.
    std::string text(const MetricsSnapshot& snapshot) const;

private:
    struct Families;
    std::unique_ptr<Families> families_;
};

}  // namespace replica::server
