// chat_messages: the `messages` of a chat request, checked and brought into the one form that
// templates get. Inside proto only.
#pragma once

#include "proto/error.h"
#include "proto/json.h"
#include "proto/json_reader.h"

namespace proto {

/// What ChatRequest::messages promises, or the first fault with its path.
/// Takes the tree: the text of a conversation is moved, not copied.
Result<Json> read_messages(Json messages, const JsonLimits& limits);

}  // namespace proto
