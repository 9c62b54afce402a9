// The dashboard: one embedded page, open to everyone, and its data, which needs a key like
// any other path.
//
//   GET /dashboard            the page: fleet and playground
//   GET /dashboard/FILE       its parts: style.css, *.js, icon.svg; all compiled in
//   GET /dashboard/state      JSON (state_json.h), polled once per second; no stream is held
//
// The page loads nothing from elsewhere: its Content-Security-Policy forbids it, inline code too.
// A sample is taken every second whether somebody looks or not, so that the plots begin full.
// Decision thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "router/dashboard/sample_ring.h"
#include "router/dashboard/state_json.h"
#include "router/generation.h"

namespace router {

/// The page and its parts, which everyone may load; not its data.
[[nodiscard]] bool is_page_path(std::string_view path);

class Dashboard {
public:
    explicit Dashboard(Services& services);

    void add_routes(proto::RouteTable& routes);

    /// Takes a sample when one is due. To be called a few times per second.
    void tick(Clock::time_point now);

    /// The text of `/dashboard/state`.
    [[nodiscard]] std::string state(const StateCursor& cursor, Clock::time_point now);

private:
    [[nodiscard]] Reading read(Clock::time_point now);
    [[nodiscard]] QueueView queue_view() const;
    [[nodiscard]] FleetView fleet_view(Clock::time_point now);
    [[nodiscard]] std::vector<std::string> drifted();
    void learn_facts();

    Services& services_;
    const std::string id_;  // tells a page that the process is another one
    const Clock::time_point started_at_;
    Clock::time_point sample_due_;
    Sampler sampler_;
    SampleRing samples_;
    FactsByReplica facts_;
};

}  // namespace router
