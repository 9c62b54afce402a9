// What the handlers of one replica share. All of it belongs to the I/O thread, except the worker
// threads that prepare requests from the immutable model.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>

#include "replica/engine/engine.h"
#include "replica/server/admission.h"
#include "replica/server/generation.h"
#include "replica/server/lifecycle.h"
#include "replica/server/metrics.h"
#include "replica/server/options.h"
#include "replica/server/served_model.h"
#include "replica/server/status_publisher.h"

namespace replica::server {

/// Threads that parse, render and tokenise: two, so that one huge prompt does not hold up all.
inline constexpr int kWorkerThreads = 2;

/// A loaded model and the engine that runs it; the engine goes first, then what it stands on.
struct Serving {
    std::shared_ptr<void> resources;  // runner, backend, file
    std::shared_ptr<const ServedModel> model;
    std::unique_ptr<Engine> engine;
};

struct AppState {
    using Clock = std::chrono::steady_clock;

    AppState(boost::asio::any_io_executor io, ServerOptions server_options,
             std::optional<std::string> key);

    /// What a scrape or a report shows; also looks for a wedge. None before the model is loaded.
    std::optional<EngineStatus> engine_status();
    /// Admitted requests that the engine does not run yet.
    std::int64_t requests_waiting(const EngineStatus& engine) const;
    proto::ReplicaStatus status();
    MetricsSnapshot snapshot();
    /// Of the device this replica runs on; "CPU-0" where there is none.
    std::string gpu_uuid() const;
    /// Seconds until a queue place is free, roughly.
    double expected_wait_s();

    boost::asio::any_io_executor executor;
    const ServerOptions options;
    const std::string instance;
    const std::optional<std::string> internal_key;
    const Clock::time_point started_at = Clock::now();

    Lifecycle lifecycle;
    WedgeWatch wedge_watch;
    bool is_wedged = false;
    Metrics metrics;
    Admission admission;
    std::vector<std::pair<std::string, double>> load_seconds;
    std::optional<bool> selftest_passed;

    std::optional<Serving> serving;
    std::set<Generation*> generations;  // running; each removes itself
    StatusPublisher status_publisher;
    boost::asio::thread_pool workers{kWorkerThreads};
};

}  // namespace replica::server
