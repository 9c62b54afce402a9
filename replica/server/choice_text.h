// One choice's way from sampled tokens to what the client reads; a pure state machine.
//
//   token ─▶ bytes ─▶ whole characters ─▶ output parser (chat) ─▶ stop strings ─▶ deltas
//                                          reasoning, content, calls   (content only)
//
// Streamed and plain replies go the same way; a plain reply is the sum of the deltas. When
// log-probabilities are wanted, each delta names the tokens its text is made of (TokenLedger).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/responses.h"
#include "replica/chat/output_parser.h"
#include "replica/chat/stop_strings.h"
#include "replica/engine/engine.h"
#include "replica/server/token_ledger.h"
#include "replica/tokenizer/stream_decoder.h"
#include "replica/tokenizer/tokenizer.h"

namespace replica::server {

/// Finds the end of one JSON object in text that arrives in pieces.
class JsonObjectEnd {
public:
    /// True when the object that begins at the first '{' has been closed by now.
    bool feed(std::string_view text);

private:
    int depth_ = 0;
    bool has_begun_ = false, in_string_ = false, is_escaped_ = false, is_closed_ = false;
};

enum class ReasoningMode {
    kSeparate,  // deltas of their own
    kHidden,    // generated and counted, not returned
    kInline,    // in the content, between the tags
};

struct ChoiceTextOptions {
    std::optional<chat::ParserOptions> parser;  // none: all text is content (completions)
    std::vector<std::string> stop;
    bool include_stop_string = false;
    bool skip_special_tokens = true;
    ReasoningMode reasoning = ReasoningMode::kSeparate;
    bool ends_after_first_call = false;   // parallel_tool_calls: false
    std::vector<TokenId> stop_token_ids;  // the request's own, to name the one that ended it
    bool wants_logprobs = false;
};

/// What the client reads next of a choice.
struct ChoiceDelta {
    // Defined apart: inlined, GCC 12 warns of copies in a variant's other alternatives.
    ChoiceDelta(chat::OutputDelta what_in, std::vector<TokenEntry> tokens_in = {});
    chat::OutputDelta what;
    std::vector<TokenEntry> tokens;  // with log-probabilities: those that first show here
};

/// How a choice ended, and what it cost.
struct ChoiceEnd {
    std::string finish_reason;  // stop, length, tool_calls, cancelled, error
    proto::StopReason stop_reason;
    std::string error;  // for error: a sentence
    std::int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
    proto::Timings timings;
    std::map<std::string, std::uint64_t> parse_fallbacks;
};

/// One thread at a time.
class ChoiceText {
public:
    /// `tokenizer` outlives the object. `tag_tokens`: control tokens that are spelled out all the
    /// same because the parser looks for them; sorted.
    ChoiceText(const Tokenizer& tokenizer, const std::vector<TokenId>& tag_tokens,
               ChoiceTextOptions options);

    struct Step {
        std::vector<ChoiceDelta> deltas;
        bool must_stop = false;  // a stop string, or the one call that was wanted
    };
    /// `logprobs` is null when they are not wanted.
    Step feed(TokenId token, const kernels::RowLogprobs* logprobs = nullptr);
    /// Releases what was held. Called once, last.
    std::vector<ChoiceDelta> finish(const FinishInfo& info, ChoiceEnd& end);

private:
    using Deltas = std::vector<ChoiceDelta>;
    using Kind = chat::TextOrigin::Kind;

    std::string decode(TokenId token, const kernels::RowLogprobs* logprobs);
    std::vector<chat::OutputDelta> parse(std::string text);
    std::vector<chat::OutputDelta> finish_parser(chat::FinishKind kind);
    std::vector<TokenEntry> tokens_of(Kind kind, std::size_t bytes);
    void release_all(FinishReason reason, Deltas& out);
    void name_the_end(const FinishInfo& info, ChoiceEnd& end) const;

    void route(std::vector<chat::OutputDelta> deltas, Deltas& out);
    void route_reasoning(std::string text, Deltas& out);
    void route_content(std::string_view text, Deltas& out);
    void release_held_content(Deltas& out);
    void close_inline_reasoning(Deltas& out);
    chat::StopMatcher make_matcher() const;

    const Tokenizer& tokenizer_;
    const std::vector<TokenId>& tag_tokens_;
    ChoiceTextOptions options_;
    StreamDecoder decoder_;
    std::optional<TokenLedger> ledger_;  // when log-probabilities are wanted
    std::optional<chat::OutputParser> parser_;
    chat::StopMatcher matcher_;
    JsonObjectEnd first_call_;
    std::int64_t reasoning_tokens_ = 0;
    bool has_reasoning_ = false;
    bool is_inline_open_ = false;
    bool has_stopped_ = false;
};

}  // namespace replica::server
