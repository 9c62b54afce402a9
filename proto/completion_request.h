// completion_request: the body of POST /v1/completions, validated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/chat_request.h"

namespace proto {

/// Text, or token ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest : GenerationRequest {
    std::vector<Prompt> prompts;  // 1 .. kPromptsMax, none of them empty
    bool echo = false;
    std::optional<int> logprobs;  // 0 .. 20 alternatives; none: no logprobs
    // max_tokens has the value 16 when the request gave none.
};

Result<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const RequestLimits& limits = {});

}  // namespace proto
