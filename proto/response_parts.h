// response_parts: pieces of JSON that several answers share. Inside proto only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/responses.h"

namespace proto {

/// `"key":"text"`, with a comma before it when `out` is not at the start of an object.
void append_string_member(std::string& out, std::string_view key, std::string_view text);

/// "id":…,"object":…,"created":…,"model":…,"system_fingerprint":…
void append_head_members(std::string& out, const ResponseHead& head, std::string_view object);
void append_stop_reason(std::string& out, const StopReason& reason);
void append_token_ids(std::string& out, const std::vector<std::int32_t>& ids);
void append_timings(std::string& out, const std::optional<Timings>& timings);
/// A finite JSON number; minus infinity becomes the most negative one that clients accept.
void append_number(std::string& out, double value);

}  // namespace proto
