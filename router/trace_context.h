// W3C trace context of a request: its trace goes on to the replica, with a span of our own.
//
//   traceparent of the client, valid ─▶ same trace id, and its tracestate
//   missing, malformed, or there twice ─▶ a new trace id; a tracestate belongs to no trace then
//
// Form: 00-<32 hex digits, trace>-<16 hex digits, span>-<2 hex digits, flags>, all lower case.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "proto/http_message.h"

namespace router {

struct TraceContext {
    std::string trace_id;  // 32 hex digits
    bool is_sampled = false;
    bool is_from_client = false;
};

/// The trace of a valid `traceparent`. Of later versions what version 00 has is read.
[[nodiscard]] std::optional<TraceContext> parse_traceparent(std::string_view text);

/// The client's trace, or a new one.
[[nodiscard]] TraceContext trace_of(const proto::Headers& headers);

/// The header of one upstream request: the same trace, a new span id.
[[nodiscard]] std::string make_traceparent(const TraceContext& trace);

/// Puts the trace into the headers of an upstream request; the client's `tracestate` (its fields
/// joined by commas, up to 512 bytes, a longer one is dropped, not cut) goes with the trace it
/// belongs to.
void add_trace(proto::Headers& upstream, const TraceContext& trace, const proto::Headers& client);

}  // namespace router
