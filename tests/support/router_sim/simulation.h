// A router's parts over simulated replicas, in virtual time.
//
//   trace ─▶ WaitQueue ─▶ choose ─▶ SimReplica ─▶ reports, first tokens, ends ─▶ ReplicaSet,
//              PolicyMemory, Account                                             PolicyMemory
//
// Everything between arrival and dispatch is the code of the running router; simulated are only
// clients, replicas and the clock. Four routers see the same trace:
//   ours          all of it
//   least-loaded  the same without matches
//   oracle        the same, told what every cache holds and will hold
//   plain         least-loaded without the rules for long prompts
#pragma once

#include <string_view>
#include <vector>

#include "tests/support/router_sim/sim_trace.h"

namespace sim {

enum class Policy : std::uint8_t { kOurs, kLeastLoaded, kOracle, kPlain };
inline constexpr int kPolicyCount = 4;
[[nodiscard]] std::string_view name_of(Policy policy);

struct RequestOutcome {
    double ttft_s = 0;  // from arrival at the router
    bool is_document = false;
    std::size_t session = 0;
};

struct RunResult {
    std::vector<RequestOutcome> requests;
    double length_s = 0;  // first arrival to last token
    std::int64_t output_tokens = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;
    double busy_share = 0;  // of all replicas
    bool was_suspended = false;
};

/// Throws when a request never ends: that is a bug of the router or of the simulation.
[[nodiscard]] RunResult simulate(const Trace& trace, Policy policy, std::uint64_t seed);

}  // namespace sim
