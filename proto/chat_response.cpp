// Answers of /v1/chat/completions.
#include "proto/response_parts.h"
#include "proto/responses.h"

namespace proto {
namespace {

void append_logprob_core(std::string& out, std::string_view token, double logprob) {
    out += R"({"token":)";
    append_json_string(out, token);
    out += R"(,"logprob":)";
    append_number(out, logprob);
    out += R"(,"bytes":[)";
    for (std::size_t i = 0; i < token.size(); ++i) {
        if (i > 0) out += ',';
        out += std::to_string(static_cast<unsigned char>(token[i]));
    }
    out += ']';
}

void append_logprob_list(std::string& out, const std::vector<TokenLogprob>& tokens) {
    out += '[';
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) out += ',';
        append_logprob_core(out, tokens[i].token, tokens[i].logprob);
        out += R"(,"top_logprobs":[)";
        for (std::size_t j = 0; j < tokens[i].top.size(); ++j) {
            if (j > 0) out += ',';
            append_logprob_core(out, tokens[i].top[j].token, tokens[i].top[j].logprob);
            out += '}';
        }
        out += "]}";
    }
    out += ']';
}

void append_logprobs(std::string& out, const ChoiceLogprobs* logprobs) {
    if (logprobs == nullptr) {
        out += "null";
        return;
    }
    out += R"({"content":)";
    append_logprob_list(out, logprobs->content);
    if (!logprobs->reasoning_content.empty()) {
        out += R"(,"reasoning_content":)";
        append_logprob_list(out, logprobs->reasoning_content);
    }
    out += '}';
}

/// Reasoning under the names that `field` asks for. (Inline reasoning arrives inside the content.)
void append_reasoning_members(std::string& out, std::string_view text, ReasoningField field) {
    if (field == ReasoningField::kReasoningContent || field == ReasoningField::kBoth) {
        append_string_member(out, "reasoning_content", text);
    }
    if (field == ReasoningField::kReasoning || field == ReasoningField::kBoth) {
        append_string_member(out, "reasoning", text);
    }
}

void append_tool_calls(std::string& out, const std::vector<ToolCall>& calls) {
    out += R"(,"tool_calls":[)";
    for (std::size_t i = 0; i < calls.size(); ++i) {
        if (i > 0) out += ',';
        out += '{';
        append_string_member(out, "id", calls[i].id);
        out += R"(,"type":"function","function":{)";
        append_string_member(out, "name", calls[i].name);
        append_string_member(out, "arguments", calls[i].arguments);
        out += "}}";
    }
    out += ']';
}

void append_message(std::string& out, const ChatChoice& choice, ReasoningField field) {
    out += R"({"role":"assistant","content":)";
    if (choice.content) {
        append_json_string(out, *choice.content);
    } else {
        out += "null";
    }
    out += R"(,"refusal":null)";
    if (choice.reasoning) append_reasoning_members(out, *choice.reasoning, field);
    if (!choice.tool_calls.empty()) append_tool_calls(out, choice.tool_calls);
    out += '}';
}

}  // namespace

std::string chat_completion_json(const ResponseHead& head, const std::vector<ChatChoice>& choices,
                                 const Usage& usage, ReasoningField field,
                                 const std::optional<Timings>& timings) {
    std::string out = "{";
    append_head_members(out, head, "chat.completion");
    out += R"(,"service_tier":"default","choices":[)";
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const ChatChoice& choice = choices[i];
        if (i > 0) out += ',';
        out += R"({"index":)" + std::to_string(i) + R"(,"message":)";
        append_message(out, choice, field);
        append_string_member(out, "finish_reason", choice.finish_reason);
        out += R"(,"stop_reason":)";
        append_stop_reason(out, choice.stop_reason);
        out += R"(,"logprobs":)";
        append_logprobs(out, choice.logprobs ? &*choice.logprobs : nullptr);
        if (choice.token_ids) {
            out += R"(,"token_ids":)";
            append_token_ids(out, *choice.token_ids);
        }
        out += '}';
    }
    out += R"(],"usage":)" + usage_json(usage);
    append_timings(out, timings);
    return out + "}";
}

ChatChunkWriter::ChatChunkWriter(const ResponseHead& head, Options options)
    : suffix_(options.include_usage ? R"(],"usage":null})" : "]}"), field_(options.field) {
    prefix_ = "{";
    append_head_members(prefix_, head, "chat.completion.chunk");
    prefix_ += R"(,"choices":[)";
}

std::string ChatChunkWriter::chunk(int choice, std::string_view delta, ChunkExtra extra,
                                   std::string_view finish_reason,
                                   const StopReason* stop_reason) const {
    std::string out;
    out.reserve(prefix_.size() + delta.size() + suffix_.size() + 96);
    out += prefix_;
    out += R"({"index":)" + std::to_string(choice) + R"(,"delta":)";
    out += delta;
    out += R"(,"finish_reason":)";
    if (finish_reason.empty()) {
        out += "null";
    } else {
        append_json_string(out, finish_reason);
    }
    if (stop_reason != nullptr) {
        out += R"(,"stop_reason":)";
        append_stop_reason(out, *stop_reason);
    }
    out += R"(,"logprobs":)";
    append_logprobs(out, extra.logprobs);
    if (extra.token_ids != nullptr) {
        out += R"(,"token_ids":)";
        append_token_ids(out, *extra.token_ids);
    }
    out += '}';
    out += suffix_;
    return out;
}

std::string ChatChunkWriter::role(int choice) const {
    return chunk(choice, R"({"role":"assistant","content":""})", {}, "", nullptr);
}

std::string ChatChunkWriter::content(int choice, std::string_view text, ChunkExtra extra) const {
    std::string delta = "{";
    append_string_member(delta, "content", text);
    return chunk(choice, delta + "}", extra, "", nullptr);
}

std::string ChatChunkWriter::reasoning(int choice, std::string_view text, ChunkExtra extra) const {
    std::string delta = "{";
    if (field_ == ReasoningField::kInline) {
        append_string_member(delta, "content", text);
    } else {
        append_reasoning_members(delta, text, field_);
    }
    return chunk(choice, delta + "}", extra, "", nullptr);
}

std::string ChatChunkWriter::tool_open(int choice, int call, std::string_view id,
                                       std::string_view name, ChunkExtra extra) const {
    std::string delta = R"({"tool_calls":[{"index":)" + std::to_string(call);
    append_string_member(delta, "id", id);
    delta += R"(,"type":"function","function":{)";
    append_string_member(delta, "name", name);
    delta += R"(,"arguments":""}}]})";
    return chunk(choice, delta, extra, "", nullptr);
}

std::string ChatChunkWriter::tool_arguments(int choice, int call, std::string_view fragment,
                                            ChunkExtra extra) const {
    std::string delta = R"({"tool_calls":[{"index":)" + std::to_string(call) + R"(,"function":{)";
    append_string_member(delta, "arguments", fragment);
    return chunk(choice, delta + "}}]}", extra, "", nullptr);
}

std::string ChatChunkWriter::finish(int choice, std::string_view finish_reason,
                                    const StopReason& stop_reason, ChunkExtra extra) const {
    return chunk(choice, "{}", extra, finish_reason, &stop_reason);
}

std::string ChatChunkWriter::usage(const Usage& usage,
                                   const std::optional<Timings>& timings) const {
    std::string out = prefix_ + R"(],"usage":)" + usage_json(usage);
    append_timings(out, timings);
    return out + "}";
}

}  // namespace proto
