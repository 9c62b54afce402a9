// A request body becomes work for the engine: validated, rendered, tokenised, checked against the
// context. Pure functions over the loaded model, run on a worker thread, since a long prompt takes
// a while.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/openai.h"
#include "replica/server/choice_text.h"
#include "replica/server/served_model.h"

namespace replica::server {

/// One prompt: what the engine runs once for all choices, and how their tokens become text.
struct PreparedPrompt {
    EngineRequest engine;  // without sinks
    ChoiceTextOptions text;
    std::string echo;  // completions: the prompt's text, in front of each answer
};

struct PreparedRequest {
    enum class Kind { kChat, kCompletion };
    Kind kind = Kind::kChat;
    proto::ResponseHead head;
    std::vector<PreparedPrompt> prompts;
    int n = 1;                       // choices of each prompt; index = prompt index x n + i
    std::int64_t prompt_tokens = 0;  // each prompt once, whatever n is
    bool is_streamed = false, include_usage = false;
    bool return_token_ids = false, include_timings = false, wants_logprobs = false;
    proto::ReasoningField reasoning_field = proto::ReasoningField::kReasoningContent;
    std::size_t unknown_fields = 0;
    std::vector<std::string> warnings;

    std::size_t choice_count() const { return prompts.size() * static_cast<std::size_t>(n); }
    const PreparedPrompt& prompt_of(std::size_t choice) const {
        return prompts[choice / static_cast<std::size_t>(n)];
    }
};

/// What the head of the HTTP request adds.
struct RequestContext {
    std::optional<int> header_priority;  // counts when the body names none
};

proto::Result<PreparedRequest> prepare_chat(const ServedModel& model, std::string_view body,
                                            const RequestContext& context);
proto::Result<PreparedRequest> prepare_completion(const ServedModel& model, std::string_view body,
                                                  const RequestContext& context);

/// The prompt of a chat request alone, for /tokenize and /apply-template.
struct RenderedChat {
    std::string text;
    std::vector<ByteSpan> data_spans;
    std::vector<TokenId> tokens;
    chat::ParserState initial_state = chat::ParserState::kStart;
    std::vector<std::string> warnings;
};
proto::Result<RenderedChat> render_prompt(const ServedModel& model,
                                          const proto::ChatRequest& request);

/// 404 naming the models there are.
proto::ApiError model_not_found(const ServedModel& model, std::string_view wanted);

}  // namespace replica::server
