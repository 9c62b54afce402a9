#include "router/policy_memory.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace router {
namespace {

constexpr double kTrustWeight = 0.1;
constexpr double kTrustMin = 0.05;
/// The first opinion counts as much as this many dispatches, so that a cache that never keeps
/// anything is found out within a few, while one miss of a good one does little.
constexpr double kTrustPrior = 2;

}  // namespace

void PolicyMemory::Standing::learn(double had) {
    ++predictions;
    const double weight = std::max(kTrustWeight, 1 / (kTrustPrior + predictions));
    trust = std::max(kTrustMin, trust + weight * (had - trust));
}

void PolicyMemory::fill(Demand& demand, const Boundaries& boundaries, Clock::time_point now) const {
    AffinityTable::Found found = affinity_.look_up(boundaries, now);
    demand.prompt_tokens = found.prompt_tokens;
    demand.preferred = found.preferred;
    if (options_.use_affinity && !regret_.is_suspended(now)) {
        demand.matches = std::move(found.matches);
    } else {
        demand.matches.clear();
    }
}

void PolicyMemory::fill(Snapshot& snapshot, Clock::time_point now) const {
    snapshot.cost = options_.cost;
    snapshot.big = {.threshold_s = options_.big_prefill_s,
                    .count_max = options_.big_prefills_max,
                    .light_hold = options_.light_hold,
                    .is_interactive = last_interactive_ != Clock::time_point::min() &&
                                      now - last_interactive_ < options_.interactive_window,
                    .is_start_recent = now < big_start_at()};
    for (ReplicaView& view : snapshot.replicas) {
        for (const auto& one : standings_) {
            if (one->replica != view.ref()) continue;
            view.trust = one->trust;
            view.big_prefills = one->big_prefills;
        }
    }
}

void PolicyMemory::note_arrival(std::int64_t prompt_tokens, const Snapshot& snapshot,
                                Clock::time_point now) {
    for (const ReplicaView& view : snapshot.replicas) {
        if (view.state != ReplicaState::kReady) continue;
        if (static_cast<double>(prompt_tokens) <=
            options_.big_prefill_s * view.prefill_tokens_per_s) {
            last_interactive_ = now;
            return;
        }
    }
}

void PolicyMemory::drop_instance(InstanceRef replica) {
    affinity_.drop_instance(replica);
    std::erase_if(standings_, [&](const std::shared_ptr<Standing>& one) {
        if (one->replica != replica) return false;
        one->is_gone = true;
        return true;
    });
}

double PolicyMemory::trust(InstanceRef replica) const {
    for (const auto& one : standings_) {
        if (one->replica == replica) return one->trust;
    }
    return 1;
}

bool PolicyMemory::has_big_prefills() const {
    return std::any_of(standings_.begin(), standings_.end(),
                       [](const auto& one) { return one->big_prefills > 0; });
}

std::shared_ptr<PolicyMemory::Standing> PolicyMemory::standing(InstanceRef replica) {
    for (const auto& one : standings_) {
        if (one->replica == replica) return one;
    }
    return standings_.emplace_back(std::make_shared<Standing>(Standing{.replica = replica}));
}

Placement::Placement(PolicyMemory& memory, const Decision& decision,
                     std::shared_ptr<const Boundaries> boundaries, KeyId key,
                     std::int64_t output_tokens, Clock::time_point now)
    : memory_(memory),
      standing_(memory.standing(*decision.replica)),
      boundaries_(std::move(boundaries)),
      replica_(*decision.replica),
      reason_(decision.reason),
      predicted_tokens_(decision.matched_tokens),
      expected_ttft_s_(decision.expected_ttft_s),
      least_load_ttft_s_(decision.least_load_ttft_s),
      key_(key),
      charged_service_(service_of(decision.uncached_tokens, output_tokens)),
      dispatched_at_(now),
      is_big_(decision.is_big) {
    assert(decision.verdict == Verdict::kDispatch && "only a dispatch is placed");
    if (is_big_) {
        ++standing_->big_prefills;
        memory_.last_big_start_ = now;
    }
    memory_.fair_share_.add(key_, charged_service_, now);
    memory_.fair_share_.on_start(key_);
    if (boundaries_) memory_.affinity_.note_pending(*boundaries_, replica_, now);
}

Placement::~Placement() {
    end_big_prefill();
    memory_.fair_share_.on_end(key_);
    if (boundaries_ && !has_first_token_) memory_.affinity_.drop_pending(*boundaries_, replica_);
}

void Placement::end_big_prefill() {
    if (!std::exchange(is_big_, false)) return;
    assert(standing_->big_prefills > 0 && "a long prefill ends once");
    --standing_->big_prefills;
}

void Placement::on_first_token(const FirstToken& first, Clock::time_point now) {
    if (std::exchange(has_first_token_, true)) return;
    end_big_prefill();
    const double actual_s = std::chrono::duration<double>(now - dispatched_at_).count();
    if (!first.is_timely) {
        // Nothing to compare.
    } else if (reason_ == Reason::kPrefix) {
        memory_.regret_.on_prefix_pick(actual_s, least_load_ttft_s_, now);
    } else {
        memory_.regret_.on_plain_pick(actual_s, expected_ttft_s_);
    }
    if (!first.report || standing_->is_gone) return;
    if (predicted_tokens_ > 0) {
        const double had =
            static_cast<double>(first.report->cached_tokens + first.report->block_tokens) /
            static_cast<double>(predicted_tokens_);
        standing_->learn(std::min(1.0, had));
    }
    if (boundaries_) memory_.affinity_.confirm(*boundaries_, replica_, *first.report, now);
}

}  // namespace router
