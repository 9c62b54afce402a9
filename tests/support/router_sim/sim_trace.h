// Traffic for the simulator: sessions of turns, each turn adding segments to its prompt.
//
// A session is one client: it sends a turn, waits for the whole answer, thinks, sends the next. A
// single request is a session of one turn. A segment is a message: an identity and a length; equal
// identities at the same place of two prompts are equal text. Shapes are those of recorded traffic
// (lengths, sharing, bursts); the numbers come from a seed, so a trace is the same for every
// router.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sim {

struct Segment {
    std::uint64_t text = 0;
    std::int64_t tokens = 0;
};

struct Turn {
    std::vector<Segment> added;  // behind the answer of the turn before
    int output_tokens = 1;
    double think_s = 0;  // before this turn, from the end of the one before
    bool is_document = false;
    bool is_fresh = false;  // begins a new prompt instead of going on with the last one
};

struct Session {
    double start_s = 0;
    std::vector<Turn> turns;
};

/// What is special about the replicas of a trace.
struct Fleet {
    std::vector<double> speeds = {1, 1, 1, 1};
    std::vector<double> told_rates = {1, 1, 1, 1};  // reported rate / true rate
    std::int64_t cache_tokens = 1'000'000;          // per replica; 0: evicts everything
    /// From `slow_from_s` to `slow_until_s` the second replica runs at `slow_speed`.
    double slow_from_s = 0;
    double slow_until_s = 0;
    double slow_speed = 1;
};

struct Trace {
    std::string name;
    std::vector<Session> sessions;
    Fleet fleet;
    bool has_room = false;  // caches are large enough to compare hits with the oracle's
};

/// All traces, the same for the same seed.
[[nodiscard]] std::vector<Trace> make_traces(std::uint64_t seed);

}  // namespace sim
