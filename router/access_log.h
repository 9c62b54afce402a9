// One line per request, `key=value`, the counter of requests, and the ring of decisions: all from
// one place.
//
// The server reports every request when it has ended; what only the router knows of a generation
// (replica, attempts, tokens, times) is noted by the request's coroutine just before. No prompt
// text, no key; bytes of clients are escaped and cut.
//
// How many tokens were generated is the replica's to say, in a report that usually comes some
// milliseconds after the answer's last byte: the lines of a request wait for it, at most
// kReportWait. Counters and ring wait for nothing. Decision thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "proto/http_server.h"
#include "router/decision_ring.h"
#include "router/metrics.h"

namespace router {

class AccessLog {
public:
    AccessLog(Metrics& metrics, DecisionRing& ring) : metrics_(metrics), ring_(ring) {}

    static constexpr std::chrono::milliseconds kReportWait{1'000};
    static constexpr std::size_t kHeldMax = 1024;  // the oldest goes when there are more

    void note(const std::string& request_id, RequestRecord record);
    void on_access(const proto::HttpAccess& access);
    /// A replica has told how much it generated for a dispatch that has ended.
    void on_generated(const std::string& dispatch, std::int64_t generated_tokens);
    /// Writes the lines that have waited long enough. To be called a few times per second.
    void tick(Clock::time_point now);
    /// Writes all that wait: nobody will report any more.
    void write_held();

private:
    /// The lines of a request that has ended.
    struct Lines {
        std::shared_ptr<DecisionRecord> record;  // shared with the ring
        std::string before, after;               // of the access line: around the generated tokens
        Clock::time_point until;                 // the report is waited for
    };
    static void write(const Lines& lines);
    void write_oldest();

    Metrics& metrics_;
    DecisionRing& ring_;
    std::unordered_multimap<std::string, RequestRecord> notes_;  // between note and on_access
    std::list<Lines> held_;                                      // oldest first
    std::unordered_map<std::string_view, std::list<Lines>::iterator> held_by_dispatch_;
};

[[nodiscard]] Endpoint endpoint_of(std::string_view path);

}  // namespace router
