#include "router/policy.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "proto/error.h"

namespace router {
namespace {

InstanceRef ref_of(const ReplicaView& replica) {
    return {replica.index, replica.life};
}

bool is_excluded(const Demand& demand, const ReplicaView& replica) {
    return std::find(demand.excluded.begin(), demand.excluded.end(), ref_of(replica)) !=
           demand.excluded.end();
}

/// Smaller is better. The index comes last so that the choice never depends on container order.
auto rank(const ReplicaView& replica) {
    return std::make_tuple(outstanding_tokens(replica), replica.occupied, replica.last_dispatch,
                           replica.index);
}

}  // namespace

std::string_view name_of(ReplicaState state) {
    static constexpr std::array<std::string_view, kReplicaStateCount> kNames = {
        "STARTING", "READY", "SUSPECT", "DOWN", "DRAINING"};
    return kNames.at(static_cast<std::size_t>(state));
}

std::int64_t outstanding_tokens(const ReplicaView& replica) {
    return replica.queued_tokens + replica.unseen_tokens + replica.expected_output_tokens;
}

bool is_startable(const ReplicaView& replica, int sequences, int dispatch_ahead) {
    if (replica.state != ReplicaState::kReady || replica.is_saturated) return false;
    if (replica.occupied == 0) return true;
    return replica.occupied + sequences <= replica.slots + dispatch_ahead;
}

Decision choose(const Snapshot& snapshot, const Demand& demand) {
    const ReplicaView* best = nullptr;     // among the startable
    const ReplicaView* nearest = nullptr;  // among the READY: the first expected to have room
    for (const ReplicaView& replica : snapshot.replicas) {
        if (replica.state != ReplicaState::kReady || is_excluded(demand, replica)) continue;
        if (nearest == nullptr || std::tie(replica.occupied, replica.index) <
                                      std::tie(nearest->occupied, nearest->index)) {
            nearest = &replica;
        }
        if (!is_startable(replica, demand.sequences, snapshot.dispatch_ahead)) continue;
        if (best == nullptr || rank(replica) < rank(*best)) best = &replica;
    }
    if (best != nullptr) {
        return {.verdict = Verdict::kDispatch,
                .replica = ref_of(*best),
                .outstanding_tokens = outstanding_tokens(*best)};
    }
    if (nearest == nullptr) return {};
    return {.verdict = Verdict::kWait,
            .replica = ref_of(*nearest),
            .outstanding_tokens = outstanding_tokens(*nearest)};
}

int retry_after_s(const Backlog& backlog, double spread) {
    const auto seconds = [](std::int64_t tokens, double rate) {
        return tokens <= 0 ? 0.0 : static_cast<double>(tokens) / std::max(rate, 1.0);
    };
    const double wait_s = seconds(backlog.prompt_tokens, backlog.prefill_tokens_per_s) +
                          seconds(backlog.output_tokens, backlog.decode_tokens_per_s);
    return proto::retry_after_seconds(wait_s, spread);
}

}  // namespace router
