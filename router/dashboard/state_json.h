// What `GET /dashboard/state` answers, from what the router's parts say of themselves. Pure.
//
//   {"v":1,"router":{…},"warnings":["…"],"replicas":[…],"queue":{…},
//    "samples":{"columns":["number","age_s",…],"rows":[[…],…]},"decisions":[…]}
//
// Samples and decisions are numbered; a page says which it has
// (`?samples_after=N&decisions_after=N`) and gets only newer ones, so that a poll once per second
// stays small. Times are ages: neither the page's clock nor ours needs to be right. No prompt text
// and no key is in any of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/json.h"
#include "proto/ready_pipe.h"
#include "router/dashboard/sample_ring.h"
#include "router/decision_ring.h"
#include "router/replica_set.h"
#include "router/wait_queue.h"

namespace router {

/// Decisions shown at most.
inline constexpr std::size_t kDecisionsShown = 50;
/// Kernels of a replica shown at most, and bytes of each of their texts.
inline constexpr std::size_t kKernelsShown = 128;
inline constexpr std::size_t kFactBytesMax = 200;

/// What a replica's /info says and the dashboard shows; texts are cut to kFactBytesMax.
struct ReplicaFacts {
    std::string instance;  // whose they are
    std::string version;
    std::string config_digest;
    std::string arch;
    std::string quant;
    std::vector<proto::KernelState> kernels;
};
/// Never fails: what is missing or of another type stays empty.
[[nodiscard]] ReplicaFacts parse_facts(const std::string& instance, const std::string& info_json);
/// Of the instances that are there now.
using FactsByReplica = std::map<int, ReplicaFacts>;

/// What waits now.
struct QueueView {
    struct Class {
        std::size_t count = 0;
        std::optional<Clock::time_point> oldest;
    };
    std::array<Class, kPriorityClassCount> classes;
    std::size_t count_max = 0;
    std::size_t body_bytes = 0;
    std::size_t body_bytes_max = 0;
    int retry_after_s_min = 0;  // what a request refused now would be told
    int retry_after_s_max = 0;
};

/// What concerns the fleet as a whole.
struct FleetView {
    std::string id;  // of this router process
    std::string version;
    std::string commit;
    std::string layout;  // as the launcher calls it; empty: not known
    std::string config_digest;
    std::string keys_digest;           // empty: no keys are needed
    std::vector<std::string> drifted;  // files on disk that differ from what is in use
    Clock::time_point started_at;
    bool is_draining = false;
    bool is_affinity_suspended = false;
    std::optional<int> certificate_days_left;  // none: clients speak without TLS
    FleetMode mode = FleetMode::kNone;
};

/// What the page has already.
struct StateCursor {
    std::uint64_t samples_after = 0;
    std::uint64_t decisions_after = 0;
};
/// Reads `samples_after` and `decisions_after`; anything but a number is 0.
[[nodiscard]] StateCursor parse_cursor(std::string_view query);

[[nodiscard]] proto::Json fleet_json(const FleetView& fleet, const ReplicaSet& set,
                                     Clock::time_point now);
[[nodiscard]] proto::Json replica_json(const Replica& replica, const ReplicaFacts* facts,
                                       Clock::time_point now);
[[nodiscard]] proto::Json queue_json(const QueueView& queue, Clock::time_point now);
[[nodiscard]] proto::Json samples_json(const SampleRing& ring, std::uint64_t after,
                                       Clock::time_point now);
[[nodiscard]] proto::Json decisions_json(const DecisionRing& ring, std::uint64_t after,
                                         std::chrono::system_clock::time_point now);

/// What an operator should know, in sentences, the gravest first; empty when all is well.
[[nodiscard]] std::vector<std::string> warnings(const FleetView& fleet, const ReplicaSet& set,
                                                const FactsByReplica& facts);

}  // namespace router
