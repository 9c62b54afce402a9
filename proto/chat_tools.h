// chat_tools: `tools` and `tool_choice` of a chat request. Inside proto only.
#pragma once

#include "proto/chat_request.h"

namespace proto {

/// Fills tools, functions and tool_choice of `request`.
Result<void> read_tools(const Json& body, ChatRequest& request);

}  // namespace proto
