// One replica in virtual time: slots, a queue, steps that mix prefill and decode, a prefix cache.
//
//   accept ─▶ waiting ─▶ running (a slot): prefill in chunks, first come first served, then a token
//                                          each step
//   a step takes  base + prefilled tokens / rate + a little for each token generated
//
// It resumes a prompt at the deepest boundary its cache holds when the prefill begins, and keeps
// all boundaries of a prompt it has prefilled. Its reports are the real wire type with measured
// rates, as a replica would send them. Time is seconds, given by the caller.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <unordered_map>
#include <vector>

#include "proto/status.h"
#include "router/boundaries.h"
#include "tests/support/router_sim/sim_trace.h"

namespace sim {

/// Lengths of prompts by the hash of what they begin with; the longest unused go first.
class SimCache {
public:
    explicit SimCache(std::int64_t tokens_max) : tokens_max_(tokens_max) {}

    /// Tokens of the deepest boundary that is here.
    [[nodiscard]] std::int64_t find(const std::vector<router::Boundary>& boundaries) const;
    void insert(const std::vector<router::Boundary>& boundaries);

private:
    struct Entry {
        std::uint64_t hash = 0;
        std::int64_t tokens = 0;  // beyond the boundary before
    };
    std::int64_t tokens_max_;
    std::int64_t tokens_ = 0;
    std::list<Entry> entries_;
    std::unordered_map<std::uint64_t, std::list<Entry>::iterator> by_hash_;
};

/// What a request is to a replica.
struct SimSequence {
    int request = 0;
    std::vector<router::Boundary> boundaries;  // with true lengths
    std::int64_t prompt_tokens = 0;
    int output_tokens = 1;

    std::int64_t cached = 0;
    std::int64_t prefilled = 0;  // cached ones included
    int generated = 0;
    bool has_begun = false;
    [[nodiscard]] bool is_decoding() const { return prefilled == prompt_tokens; }
};

class SimReplica {
public:
    static constexpr int kSlots = 8;

    SimReplica(int index, const Fleet& fleet);

    void accept(SimSequence sequence, double now_s);
    /// When its current step ends; infinity while it is idle.
    [[nodiscard]] double step_end_s() const { return step_end_s_; }

    struct Events {
        std::vector<int> tokens;  // requests that got a token, the first one included
        std::vector<SimSequence> first_tokens;
        std::vector<int> ended;
    };
    /// Ends the step of this moment and begins the next one.
    Events end_step();

    [[nodiscard]] proto::ReplicaStatus report();
    /// What a request would find in the cache once all that was sent before it is prefilled.
    [[nodiscard]] std::int64_t will_find(const std::vector<router::Boundary>& boundaries) const;
    [[nodiscard]] double busy_s() const { return busy_s_; }

private:
    void begin_step(double now_s);
    [[nodiscard]] double speed(double now_s) const;

    int index_;
    const Fleet& fleet_;
    SimCache cache_;
    std::deque<SimSequence> waiting_;
    std::vector<SimSequence> running_;
    double step_end_s_;
    double step_length_s_ = 0;
    std::vector<std::pair<std::size_t, std::int64_t>>
        chunks_;  // of the step: running index, tokens
    std::uint64_t steps_ = 0;
    std::uint64_t reports_ = 0;
    double prefill_rate_;  // measured
    double decode_rate_;
    double busy_s_ = 0;
};

}  // namespace sim
