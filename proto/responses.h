// responses: the JSON texts a generation answers with, byte order of keys as in the API's examples.
//
// Everything here returns finished JSON text. A stream is a ChunkWriter: its prefix is made once,
// and a chunk costs one string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/chat_request.h"
#include "proto/json.h"

namespace proto {

/// "chatcmpl-", "cmpl-", "call_" and 24 hex digits.
std::string make_id(std::string_view prefix);

/// Equal in the whole answer and in every chunk of a stream.
struct ResponseHead {
    std::string id;
    std::int64_t created = 0;  // Unix seconds
    std::string model;
    std::string system_fingerprint;
};

struct Usage {
    std::int64_t prompt_tokens = 0, completion_tokens = 0;
    std::int64_t cached_tokens = 0, reasoning_tokens = 0;
};
std::string usage_json(const Usage& usage);

struct Timings {
    double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
    std::int64_t drafted = 0, accepted = 0;
};

/// The string or the token id that ended a choice; monostate is null.
using StopReason = std::variant<std::monostate, std::string, std::int64_t>;

struct TokenLogprob {
    struct Alternative {
        std::string token;  // raw bytes; U+FFFD replaces what is not UTF-8 on the wire
        double logprob = 0;
    };
    std::string token;
    double logprob = 0;
    std::vector<Alternative> top;
};

/// Entries of `content` and, apart, of reasoning.
struct ChoiceLogprobs {
    std::vector<TokenLogprob> content, reasoning_content;
};

struct ToolCall {
    std::string id, name;
    std::string arguments;  // JSON text
};

struct ChatChoice {
    std::optional<std::string> content;  // none is null
    std::optional<std::string> reasoning;
    std::vector<ToolCall> tool_calls;
    std::string finish_reason;  // stop, length, tool_calls
    StopReason stop_reason;
    std::optional<ChoiceLogprobs> logprobs;
    std::optional<std::vector<std::int32_t>> token_ids;
};

/// The body of a chat answer that is not streamed; choice index = position.
std::string chat_completion_json(const ResponseHead& head, const std::vector<ChatChoice>& choices,
                                 const Usage& usage, ReasoningField field,
                                 const std::optional<Timings>& timings = {});

/// What a chunk may carry beside its delta.
struct ChunkExtra {
    const ChoiceLogprobs* logprobs = nullptr;
    const std::vector<std::int32_t>* token_ids = nullptr;
};

/// Makes the chunks of a chat stream; send each with sse_data(), then kSseDone.
class ChatChunkWriter {
public:
    struct Options {
        bool include_usage = false;  // then all chunks but the last carry "usage":null
        ReasoningField field = ReasoningField::kReasoningContent;
    };
    ChatChunkWriter(const ResponseHead& head, Options options);

    [[nodiscard]] std::string role(int choice) const;
    [[nodiscard]] std::string content(int choice, std::string_view text,
                                      ChunkExtra extra = {}) const;
    [[nodiscard]] std::string reasoning(int choice, std::string_view text,
                                        ChunkExtra extra = {}) const;
    /// Opens call `call` (0, 1, …) of a choice, with its name and empty arguments.
    [[nodiscard]] std::string tool_open(int choice, int call, std::string_view id,
                                        std::string_view name, ChunkExtra extra = {}) const;
    [[nodiscard]] std::string tool_arguments(int choice, int call, std::string_view fragment,
                                             ChunkExtra extra = {}) const;
    [[nodiscard]] std::string finish(int choice, std::string_view finish_reason,
                                     const StopReason& stop_reason, ChunkExtra extra = {}) const;
    [[nodiscard]] std::string usage(const Usage& usage,
                                    const std::optional<Timings>& timings = {}) const;

private:
    [[nodiscard]] std::string chunk(int choice, std::string_view delta, ChunkExtra extra,
                                    std::string_view finish_reason,
                                    const StopReason* stop_reason) const;
    std::string prefix_;  // {"id":…,"system_fingerprint":…,"choices":[
    std::string suffix_;  // ] or ],"usage":null
    ReasoningField field_;
};

struct CompletionChoice {
    std::string text;
    std::string finish_reason;  // empty: null (a chunk before the last)
    StopReason stop_reason;
    struct Logprobs {
        std::vector<TokenLogprob> tokens;
        std::vector<std::int64_t> text_offset;
    };
    std::optional<Logprobs> logprobs;
    std::optional<std::vector<std::int32_t>> token_ids;
};

/// The body of a text completion that is not streamed; choice index = position.
std::string text_completion_json(const ResponseHead& head,
                                 const std::vector<CompletionChoice>& choices, const Usage& usage,
                                 const std::optional<Timings>& timings = {});
/// One chunk of a text stream.
std::string text_completion_chunk(const ResponseHead& head, int choice_index,
                                  const CompletionChoice& choice, bool include_usage);
std::string text_completion_usage_chunk(const ResponseHead& head, const Usage& usage,
                                        const std::optional<Timings>& timings = {});

struct ModelInfo {
    std::string id;
    std::int64_t created = 0;
    std::int64_t max_model_len = 0;
    std::int64_t n_ctx_train = 0, n_params = 0, size_bytes = 0;
    std::string arch;
};
std::string model_json(const ModelInfo& model);
std::string models_json(const std::vector<ModelInfo>& models);

}  // namespace proto
