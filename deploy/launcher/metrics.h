// The launcher's own series, `quadriga_launcher_...`: one value set per scrape from the fleet's
// state; a scrape changes nothing.
#pragma once

#include <memory>
#include <string>

#include "deploy/launcher/fleet.h"
#include "deploy/launcher/view.h"

namespace deploy {

/// kRefused: its check, before anything was started. kFailed: it did not come to serve.
enum class RouterRestart { kServes, kRefused, kFailed };

class Metrics {
public:
    Metrics(int replica_count, const std::string& version);
    ~Metrics();
    /// What an order to restart the router has come to.
    void count_router_restart(RouterRestart outcome);
    /// A replica failed or was restarted: counts it under `reason`.
    void count_restart(int replica, const std::string& reason);
    /// Prometheus text format of `fleet` now.
    std::string scrape(const Fleet& fleet, const FleetFacts& facts, TimePoint now);

private:
    struct Series;
    std::unique_ptr<Series> series_;
};

}  // namespace deploy
