// chat_messages: the `messages` of a chat request, checked and brought into the one form that
// templates get. Inside proto only.
#pragma once

#include "proto/error.h"
#include "proto/json.h"
#include "proto/json_reader.h"

namespace proto {

/// What ChatRequest::messages promises, or the first fault with its path.
Result<Json> read_messages(const Json& messages, const JsonLimits& limits);

}  // namespace proto
