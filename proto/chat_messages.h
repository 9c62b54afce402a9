// chat_messages: the `messages` of a chat request, checked and brought into the one form that
// templates get. Inside proto only.
#pragma once

#include <string>
#include <vector>

#include "proto/error.h"
#include "proto/json.h"
#include "proto/json_reader.h"

namespace proto {

/// What ChatRequest::messages promises, or the first fault with its path.
/// Takes the tree: the text of a conversation is moved, not copied. What was accepted but is hardly
/// meant, a user's message without content for example, is named in `warnings`.
Result<Json> read_messages(Json messages, const JsonLimits& limits,
                           std::vector<std::string>& warnings);

}  // namespace proto
