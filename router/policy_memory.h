// What the policy remembers between decisions, so that choose() itself can stay a function.
//
//   fill(Demand)      which replicas hold the beginning of this prompt      AffinityTable
//   fill(Snapshot)    how far each is trusted, its long prefills, the rules of the moment
//   place(Decision)   ─▶ Placement: pending boundaries, a long prefill counted, service charged
//     .on_first_token   what the replica really had cached, and when ─▶ trust, regret, affinity
//     destroyed         nothing of it stays counted
//
// No sockets and no clock: the simulator runs the same code in virtual time. Decision thread only.
// Source: spec of the router, sections 4 to 7.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "router/affinity.h"
#include "router/affinity_regret.h"
#include "router/boundaries.h"
#include "router/fairness.h"
#include "router/policy.h"

namespace router {

class Placement;

class PolicyMemory {
public:
    struct Options {
        AffinityTable::Options affinity;
        CostOptions cost;
        bool use_affinity = true;
        double big_prefill_s = 2;
        int big_prefills_max = 0;
        std::chrono::milliseconds big_prefill_stagger{200};
        std::chrono::milliseconds light_hold{10'000};
        std::chrono::milliseconds interactive_window{30'000};
    };
    explicit PolicyMemory(Options options) : options_(options), affinity_(options.affinity) {}
    PolicyMemory(const PolicyMemory&) = delete;
    PolicyMemory& operator=(const PolicyMemory&) = delete;

    /// Sets matches, length and tie-break of a request from what the replicas hold now.
    void fill(Demand& demand, const Boundaries& boundaries, Clock::time_point now) const;
    /// Adds to a snapshot what only the memory knows.
    void fill(Snapshot& snapshot, Clock::time_point now) const;

    /// A request has arrived: one that no cache is needed for to be quick keeps a replica free of
    /// long prompts for a while. One more question about a long document does not: it is quick only
    /// where the document is.
    void note_arrival(std::int64_t prompt_tokens, const Snapshot& snapshot, Clock::time_point now);

    /// Until when no idle replica begins a long prefill; in the past when there is no such rule
    /// now.
    [[nodiscard]] Clock::time_point big_start_at() const {
        return last_big_start_ + options_.big_prefill_stagger;
    }

    /// An instance is gone: what it held, its trust and its counts go with it.
    void drop_instance(InstanceRef replica);

    [[nodiscard]] double trust(InstanceRef replica) const;
    [[nodiscard]] bool has_big_prefills() const;
    [[nodiscard]] bool is_affinity_suspended(Clock::time_point now) const {
        return regret_.is_suspended(now);
    }
    [[nodiscard]] const AffinityTable& affinity() const { return affinity_; }
    FairShare& fair_share() { return fair_share_; }
    [[nodiscard]] const Options& options() const { return options_; }

private:
    friend class Placement;
    struct Standing {
        InstanceRef replica;
        double trust = 1;
        double predictions = 0;  // that taught it
        int big_prefills = 0;
        bool is_gone = false;
        void learn(double had);
    };
    std::shared_ptr<Standing> standing(InstanceRef replica);

    Options options_;
    AffinityTable affinity_;
    RegretMeter regret_;
    FairShare fair_share_;
    // One per living instance: few. Placements of a dead one keep theirs alive and count into it,
    // so that a late end cannot make its successor's numbers wrong.
    std::vector<std::shared_ptr<Standing>> standings_;
    Clock::time_point last_interactive_ = Clock::time_point::min();
    Clock::time_point last_big_start_;
};

/// One dispatch, as the memory follows it from selection to its end. The memory outlives it.
class Placement {
public:
    Placement(PolicyMemory& memory, const Decision& decision,
              std::shared_ptr<const Boundaries> boundaries, KeyId key, std::int64_t output_tokens,
              Clock::time_point now);
    Placement(const Placement&) = delete;
    Placement& operator=(const Placement&) = delete;
    ~Placement();

    struct FirstToken {
        /// Without a reported count of cached tokens nothing is learnt about the replica's cache.
        std::optional<AffinityTable::Report> report;
        /// False for an answer that comes whole: its head says nothing about the first token's
        /// time.
        bool is_timely = true;
    };
    void on_first_token(const FirstToken& first, Clock::time_point now);

    /// The prefill is over, as a report tells: another long one may begin.
    void end_big_prefill();
    [[nodiscard]] bool is_big_prefill() const { return is_big_; }

    /// The prefix the decision counted on.
    [[nodiscard]] std::int64_t predicted_tokens() const { return predicted_tokens_; }
    [[nodiscard]] double expected_ttft_s() const { return expected_ttft_s_; }
    [[nodiscard]] KeyId key() const { return key_; }
    /// Service charged by estimate; the report of the end corrects it.
    [[nodiscard]] double charged_service() const { return charged_service_; }

private:
    PolicyMemory& memory_;
    std::shared_ptr<PolicyMemory::Standing> standing_;
    std::shared_ptr<const Boundaries> boundaries_;
    InstanceRef replica_;
    Reason reason_;
    std::int64_t predicted_tokens_;
    double expected_ttft_s_;
    double least_load_ttft_s_;
    KeyId key_;
    double charged_service_;
    Clock::time_point dispatched_at_;
    bool is_big_;
    bool has_first_token_ = false;
};

}  // namespace router
