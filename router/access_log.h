// One line per request, `key=value`, the counter of requests, and the ring of decisions: all from
// one place.
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
#include "router/decision_ring.h"
#include "router/metrics.h"

namespace router {

class AccessLog {
public:
    AccessLog(Metrics& metrics, DecisionRing& ring) : metrics_(metrics), ring_(ring) {}

    void note(const std::string& request_id, RequestRecord record);
    void on_access(const proto::HttpAccess& access);

private:
    void write_decision(const proto::HttpAccess& access, int status, const RequestRecord& request);

    Metrics& metrics_;
    DecisionRing& ring_;
    std::unordered_multimap<std::string, RequestRecord> notes_;  // between note and on_access
};

[[nodiscard]] Endpoint endpoint_of(std::string_view path);

}  // namespace router
