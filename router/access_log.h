// One line per request, `key=value`, and the counter of requests: both from one place.
//
// The server reports every request when it has ended; what only the router knows of a generation
// (replica, attempts, tokens, times) is noted by the request's coroutine just before. No prompt
// text, no key; bytes of clients are escaped and cut. Decision thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "proto/http_server.h"
#include "router/metrics.h"

namespace router {

/// What a generation came to.
struct RequestRecord {
    Outcome outcome = Outcome::kOk;
    std::string model;
    PriorityClass priority_class = PriorityClass::kDefault;
    std::optional<int> replica;  // the last one tried
    int attempts = 0;
    std::string_view reason = "-";    // of the last choice
    std::int64_t matched_tokens = 0;  // expected in the replica's cache
    double expected_ttft_s = 0;
    std::string error;  // code of the error sent, if any
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;
    std::optional<std::chrono::steady_clock::duration> queued;
    std::optional<std::chrono::steady_clock::duration> first_byte;
};

class AccessLog {
public:
    explicit AccessLog(Metrics& metrics) : metrics_(metrics) {}

    void note(const std::string& request_id, RequestRecord record);
    void on_access(const proto::HttpAccess& access);

private:
    Metrics& metrics_;
    std::unordered_multimap<std::string, RequestRecord> notes_;  // between note and on_access
};

[[nodiscard]] Endpoint endpoint_of(std::string_view path);

}  // namespace router
