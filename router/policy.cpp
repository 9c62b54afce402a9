#include "router/policy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "proto/error.h"

namespace router {
namespace {

constexpr double kTieShare = 0.01;
constexpr double kTieWidthMin = 0.002;

/// A candidate and where it comes from.
struct Option {
    const ReplicaView* view = nullptr;
    Candidate* candidate = nullptr;
};

bool is_among(const std::vector<InstanceRef>& list, const ReplicaView& replica) {
    return std::find(list.begin(), list.end(), replica.ref()) != list.end();
}

Obstacle why_no_candidate(const ReplicaView& replica, const Demand& demand) {
    if (replica.state != ReplicaState::kReady) return Obstacle::kNotReady;
    if (is_among(demand.not_serving, replica)) return Obstacle::kModel;
    if (replica.is_shut) return Obstacle::kBreaker;
    return is_among(demand.excluded, replica) ? Obstacle::kExcluded : Obstacle::kNone;
}

std::int64_t matched_on(const Demand& demand, const ReplicaView& replica) {
    for (const Match& match : demand.matches) {
        if (match.replica == replica.ref()) return match.tokens;
    }
    return 0;
}

bool have_blocks(const ReplicaView& replica, const CostQuestion& question) {
    if (replica.blocks_total <= 0 || replica.occupied == 0) return true;
    return replica.blocks_used + blocks_for(replica, question) <= replica.blocks_total;
}

/// The replica kept for interactive requests: the READY one that has least to prefill, of those
/// that serve the model.
const ReplicaView* light_replica(const Snapshot& snapshot, const Demand& demand) {
    if (!snapshot.big.is_interactive || demand.waited >= snapshot.big.light_hold) return nullptr;
    const ReplicaView* light = nullptr;
    int ready = 0;
    for (const ReplicaView& replica : snapshot.replicas) {
        if (replica.state != ReplicaState::kReady || replica.is_shut) continue;
        if (is_among(demand.not_serving, replica)) continue;
        ++ready;
        // Among equals the one with the fewest long prompts, so that the role does not wander.
        const auto rank = [](const ReplicaView& one) {
            return std::make_tuple(one.ahead(), one.big_prefills, one.index);
        };
        if (light == nullptr || rank(replica) < rank(*light)) light = &replica;
    }
    return ready >= 2 ? light : nullptr;
}

int gpus_in_big_prefills(const Snapshot& snapshot) {
    int gpus = 0;
    for (const ReplicaView& replica : snapshot.replicas)
        gpus += replica.big_prefills * replica.gpus;
    return gpus;
}

/// Room first, then the rules for long prompts.
Obstacle why_not_now(const Snapshot& snapshot, const ReplicaView& replica,
                     const CostQuestion& question, bool is_big, const ReplicaView* light) {
    if (replica.is_reserved) return Obstacle::kReserved;
    if (replica.is_saturated) return Obstacle::kSaturated;
    if (!is_startable(replica, question.sequences, snapshot.dispatch_ahead)) {
        return Obstacle::kSlots;
    }
    if (!have_blocks(replica, question)) return Obstacle::kBlocks;
    if (!is_big) return Obstacle::kNone;
    if (&replica == light) return Obstacle::kLight;
    if (replica.big_prefills > 0 && snapshot.waiting > 0) return Obstacle::kBigCap;
    const int cap = snapshot.big.count_max;
    if (cap > 0 && gpus_in_big_prefills(snapshot) + replica.gpus > std::max(cap, replica.gpus)) {
        return Obstacle::kBigCap;
    }
    return Obstacle::kNone;
}

/// Cheapest by `cost_of_option`, ties resolved; nullptr when there is none.
template <class Cost>
const Option* cheapest(const std::vector<Option>& options, const Demand& demand,
                       Cost&& cost_of_option) {
    double least = std::numeric_limits<double>::infinity();
    for (const Option& option : options)
        least = std::min(least, cost_of_option(option));
    const double bound = least + tie_width_s(least);
    const auto rank = [&demand](const Option& option) {
        const ReplicaView& view = *option.view;
        // The index comes last so that the choice never depends on the order of the snapshot.
        return std::make_tuple(demand.preferred != view.ref(), view.occupied, view.last_dispatch,
                               view.index);
    };
    const Option* best = nullptr;
    for (const Option& option : options) {
        if (cost_of_option(option) > bound) continue;
        if (best == nullptr || rank(option) < rank(*best)) best = &option;
    }
    return best;
}

double cost_with_match(const Option& option) {
    return option.candidate->terms.total();
}
double cost_without_match(const Option& option) {
    return option.candidate->terms.without_match();
}

Reason reason_of(const Option& pick, const Option& least_load, const Demand& demand,
                 const std::vector<Option>& options) {
    if (pick.view->is_trial) return Reason::kTrial;
    if (demand.is_retry) return Reason::kRetry;
    if (options.size() == 1) return Reason::kOnly;
    if (pick.view != least_load.view) return Reason::kPrefix;
    for (const Option& option : options) {
        if (option.candidate->obstacle == Obstacle::kLight &&
            cost_with_match(option) < cost_with_match(pick)) {
            return Reason::kLight;
        }
    }
    return Reason::kLeastLoad;
}

void wait_for(Decision& decision, const Option& option) {
    decision.verdict = Verdict::kWait;
    decision.replica = option.view->ref();
    decision.obstacle = option.candidate->obstacle;
    decision.is_big = option.candidate->is_big;
}

/// Those worth waiting for: what keeps the request from them passes as work there ends.
bool is_worth_holding(const Option& option) {
    const Obstacle obstacle = option.candidate->obstacle;
    return obstacle == Obstacle::kSlots || obstacle == Obstacle::kBlocks;
}

}  // namespace

std::string_view name_of(ReplicaState state) {
    static constexpr std::array<std::string_view, kReplicaStateCount> kNames = {
        "STARTING", "READY", "SUSPECT", "DOWN", "DRAINING"};
    return kNames.at(static_cast<std::size_t>(state));
}

std::string_view name_of(Reason reason) {
    static constexpr std::array<std::string_view, kReasonCount> kNames = {
        "least_load", "prefix", "only", "light", "retry", "trial"};
    return kNames.at(static_cast<std::size_t>(reason));
}

std::string_view name_of(Obstacle obstacle) {
    static constexpr std::array<std::string_view, kObstacleCount> kNames = {
        "none",      "not_ready", "model",     "breaker", "excluded", "reserved",
        "saturated", "slots",     "kv_blocks", "big_cap", "light",    "stagger"};
    return kNames.at(static_cast<std::size_t>(obstacle));
}

const Candidate* Decision::find(InstanceRef ref) const {
    for (const Candidate& candidate : candidates) {
        if (candidate.replica == ref) return &candidate;
    }
    return nullptr;
}

double tie_width_s(double least_cost_s) {
    return std::max(kTieWidthMin, kTieShare * least_cost_s);
}

bool is_startable(const ReplicaView& replica, int sequences, int dispatch_ahead) {
    if (replica.state != ReplicaState::kReady || replica.is_shut || replica.is_saturated ||
        replica.is_reserved) {
        return false;
    }
    if (replica.occupied + replica.reserved_slots == 0) return true;
    return replica.occupied + replica.reserved_slots + sequences <= replica.slots + dispatch_ahead;
}

Decision choose(const Snapshot& snapshot, const Demand& demand) {
    Decision decision;
    decision.candidates.resize(snapshot.replicas.size());
    CostQuestion question{.tokens = std::max<std::int64_t>(1, demand.prompt_tokens),
                          .output_tokens_kept = demand.output_tokens_kept,
                          .sequences = demand.sequences,
                          .least_ahead = std::numeric_limits<std::int64_t>::max()};
    std::vector<Option> options;
    options.reserve(snapshot.replicas.size());
    for (std::size_t i = 0; i < snapshot.replicas.size(); ++i) {
        const ReplicaView& view = snapshot.replicas[i];
        Candidate& candidate = decision.candidates[i];
        candidate.replica = view.ref();
        candidate.obstacle = why_no_candidate(view, demand);
        if (!candidate.can_start()) continue;
        options.push_back({&view, &candidate});
        question.least_ahead = std::min(question.least_ahead, view.ahead());
    }
    if (options.empty()) return decision;

    const ReplicaView* light = light_replica(snapshot, demand);
    std::vector<Option> startable;
    startable.reserve(options.size());
    for (const Option& option : options) {
        const ReplicaView& view = *option.view;
        Candidate& candidate = *option.candidate;
        question.matched = matched_on(demand, view);
        candidate.matched_tokens = question.matched;
        candidate.uncached_tokens = uncached_tokens(view, question.tokens, question.matched);
        candidate.terms = cost_of(view, question, snapshot.cost);
        candidate.expected_ttft_s =
            expected_ttft_s(view, candidate.terms, candidate.uncached_tokens);
        candidate.is_big = static_cast<double>(candidate.uncached_tokens) >
                           snapshot.big.threshold_s * view.prefill_tokens_per_s;
        candidate.obstacle = why_not_now(snapshot, view, question, candidate.is_big, light);
        if (candidate.can_start()) startable.push_back(option);
    }
    const Option* nearest = cheapest(options, demand, cost_with_match);
    if (startable.empty()) {
        wait_for(decision, *nearest);
        return decision;
    }
    const Option* pick = cheapest(startable, demand, cost_with_match);
    const Option* least_load = cheapest(startable, demand, cost_without_match);
    for (const Option& option : options) {
        // Less than every one that can start: what a tie would decide is not worth a wait.
        if (!demand.may_hold || !is_worth_holding(option)) continue;
        const double bound = cost_with_match(*pick) - tie_width_s(cost_with_match(*pick));
        if (cost_with_match(option) >= bound) continue;
        if (decision.is_hold && cost_with_match(option) >= cost_with_match(*nearest)) continue;
        nearest = &option;
        decision.is_hold = true;
    }
    if (decision.is_hold) {
        wait_for(decision, *nearest);
        return decision;
    }
    // Two idle replicas do not begin a long prefill in the same instant. One that is prefilling
    // anyway would start this one at once, but far later in truth: so the request waits.
    if (pick->candidate->is_big && snapshot.big.is_start_recent && pick->view->big_prefills == 0) {
        pick->candidate->obstacle = Obstacle::kStagger;
        wait_for(decision, *pick);
        return decision;
    }
    decision.verdict = Verdict::kDispatch;
    decision.replica = pick->view->ref();
    decision.reason = reason_of(*pick, *least_load, demand, options);
    decision.expected_ttft_s = pick->candidate->expected_ttft_s;
    decision.least_load_ttft_s = least_load->candidate->expected_ttft_s;
    decision.matched_tokens = pick->candidate->matched_tokens;
    decision.uncached_tokens = pick->candidate->uncached_tokens;
    decision.blocks = blocks_for(*pick->view, question);
    decision.is_big = pick->candidate->is_big;
    return decision;
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
