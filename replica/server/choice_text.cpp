#include "replica/server/choice_text.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace replica::server {

using chat::ContentDelta;
using chat::OutputDelta;
using chat::ReasoningDelta;
using chat::TextOrigin;
using chat::ToolCallArguments;
using chat::ToolCallStart;

bool JsonObjectEnd::feed(std::string_view text) {
    for (const char c : text) {
        if (is_closed_) break;
        if (in_string_) {
            if (is_escaped_) {
                is_escaped_ = false;
            } else if (c == '\\') {
                is_escaped_ = true;
            } else if (c == '"') {
                in_string_ = false;
            }
        } else if (c == '"') {
            in_string_ = true;
        } else if (c == '{') {
            has_begun_ = true;
            ++depth_;
        } else if (c == '}') {
            --depth_;
            is_closed_ = has_begun_ && depth_ == 0;
        }
    }
    return is_closed_;
}

ChoiceDelta::ChoiceDelta(OutputDelta what_in, std::vector<TokenEntry> tokens_in)
    : what(std::move(what_in)), tokens(std::move(tokens_in)) {}

ChoiceText::ChoiceText(const Tokenizer& tokenizer, const std::vector<TokenId>& tag_tokens,
                       ChoiceTextOptions options)
    : tokenizer_(tokenizer),
      tag_tokens_(tag_tokens),
      options_(std::move(options)),
      matcher_(make_matcher()) {
    if (options_.wants_logprobs) ledger_.emplace();
    if (!options_.parser) return;
    options_.parser->reports_origins = options_.wants_logprobs;
    parser_.emplace(*options_.parser);
}

chat::StopMatcher ChoiceText::make_matcher() const {
    return chat::StopMatcher(
        {.strings = options_.stop, .include_stop_string = options_.include_stop_string});
}

ChoiceText::Step ChoiceText::feed(TokenId token, const kernels::RowLogprobs* logprobs) {
    assert(!has_stopped_ && "the engine sends no token after the verdict to stop");
    const bool was_reasoning = parser_ && parser_->in_reasoning();
    Step step;
    route(parse(decode(token, logprobs)), step.deltas);
    // The closing tag counts as reasoning; the first token of a plain answer does not.
    if (was_reasoning && (parser_->in_reasoning() || has_reasoning_)) ++reasoning_tokens_;
    if (ledger_) {
        ledger_->forget_before(parser_ ? parser_->decided_bytes() : ledger_->decoded_bytes());
    }
    step.must_stop = has_stopped_;
    return step;
}

/// The whole characters that `token` completes.
std::string ChoiceText::decode(TokenId token, const kernels::RowLogprobs* logprobs) {
    const bool is_spelled_out = !options_.skip_special_tokens ||
                                std::binary_search(tag_tokens_.begin(), tag_tokens_.end(), token);
    const std::string piece = tokenizer_.piece(token, {.render_special = is_spelled_out});
    std::string text;
    if (!ledger_) {
        decoder_.feed(piece, text);
        return text;
    }
    assert(logprobs != nullptr && "the engine gives log-probabilities to who asked for them");
    ledger_->feed({.token = token, .text_offset = 0, .logprobs = *logprobs}, piece, decoder_, text);
    return text;
}

/// What new characters are; without a parser all of them are content.
std::vector<OutputDelta> ChoiceText::parse(std::string text) {
    std::vector<OutputDelta> deltas;
    if (parser_) {
        deltas = parser_->feed(text);
        if (!ledger_) return deltas;
        for (const TextOrigin& origin : parser_->take_origins())
            ledger_->add_origin(origin);
        return deltas;
    }
    if (ledger_) {
        const std::size_t end = ledger_->decoded_bytes();
        ledger_->add_origin({Kind::kContent, {end - text.size(), end}});
    }
    deltas.emplace_back(ContentDelta{std::move(text)});
    return deltas;
}

std::vector<OutputDelta> ChoiceText::finish_parser(chat::FinishKind kind) {
    std::vector<OutputDelta> deltas = parser_->finish(kind);
    if (!ledger_) return deltas;
    for (const TextOrigin& origin : parser_->take_origins())
        ledger_->add_origin(origin);
    return deltas;
}

std::vector<TokenEntry> ChoiceText::tokens_of(Kind kind, std::size_t bytes) {
    std::vector<TokenEntry> tokens;
    if (ledger_) ledger_->take(kind, bytes, tokens);
    return tokens;
}

std::vector<ChoiceDelta> ChoiceText::finish(const FinishInfo& info, ChoiceEnd& end) {
    Deltas out;
    const bool is_whole =
        info.reason == FinishReason::kStop || info.reason == FinishReason::kLength;
    if (!has_stopped_ && is_whole) release_all(info.reason, out);
    name_the_end(info, end);
    const auto ms = [](std::chrono::duration<double> time) { return time.count() * 1e3; };
    end.prompt_tokens = info.prompt_tokens;
    end.cached_tokens = info.cached_tokens;
    end.completion_tokens = info.generated_tokens;
    end.reasoning_tokens = has_reasoning_ ? reasoning_tokens_ : 0;
    end.timings = {.queue_ms = ms(info.queue_time),
                   .prefill_ms = ms(info.prefill_time),
                   .decode_ms = ms(info.decode_time),
                   .drafted = info.drafted_tokens,
                   .accepted = info.accepted_tokens};
    if (parser_) end.parse_fallbacks = parser_->fallbacks();
    return out;
}

/// What decoder, parser and matcher still hold.
void ChoiceText::release_all(FinishReason reason, Deltas& out) {
    std::string text;
    if (ledger_) {
        ledger_->finish(decoder_, text);
    } else {
        decoder_.finish(text);
    }
    route(parse(std::move(text)), out);
    if (parser_ && !has_stopped_) {
        const bool is_cut = reason == FinishReason::kLength;
        route(finish_parser(is_cut ? chat::FinishKind::kLength : chat::FinishKind::kEnd), out);
    }
    if (!has_stopped_) release_held_content(out);
}

void ChoiceText::name_the_end(const FinishInfo& info, ChoiceEnd& end) const {
    const bool has_calls = parser_ && parser_->tool_call_count() > 0;
    switch (info.reason) {
        case FinishReason::kCancelled:
            end.finish_reason = "cancelled";
            break;
        case FinishReason::kError:
            end.finish_reason = "error";
            end.error = info.error;
            break;
        case FinishReason::kLength:
        case FinishReason::kStop: {
            const bool is_cut = info.reason == FinishReason::kLength && !has_stopped_;
            end.finish_reason = is_cut ? "length" : has_calls ? "tool_calls" : "stop";
            break;
        }
    }
    if (matcher_.matched()) {
        end.stop_reason = *matcher_.match();
    } else if (info.stop_token &&
               std::find(options_.stop_token_ids.begin(), options_.stop_token_ids.end(),
                         *info.stop_token) != options_.stop_token_ids.end()) {
        end.stop_reason = std::int64_t{*info.stop_token};
    }
}

void ChoiceText::route(std::vector<OutputDelta> deltas, Deltas& out) {
    for (OutputDelta& delta : deltas) {
        if (has_stopped_) return;
        if (auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
            route_reasoning(std::move(reasoning->text), out);
        } else if (const auto* content = std::get_if<ContentDelta>(&delta)) {
            close_inline_reasoning(out);
            route_content(content->text, out);
        } else if (auto* start = std::get_if<ToolCallStart>(&delta)) {
            close_inline_reasoning(out);
            release_held_content(out);
            has_stopped_ = options_.ends_after_first_call && start->index > 0;
            if (!has_stopped_) out.emplace_back(std::move(*start));
        } else if (auto* arguments = std::get_if<ToolCallArguments>(&delta)) {
            has_stopped_ = first_call_.feed(arguments->text) && options_.ends_after_first_call;
            out.emplace_back(std::move(*arguments));
        }
    }
}

void ChoiceText::route_reasoning(std::string text, Deltas& out) {
    if (text.empty()) return;
    has_reasoning_ = true;
    std::vector<TokenEntry> tokens = tokens_of(Kind::kReasoning, text.size());
    if (options_.reasoning == ReasoningMode::kHidden) return;
    if (options_.reasoning == ReasoningMode::kSeparate) {
        out.emplace_back(ReasoningDelta{std::move(text)}, std::move(tokens));
        return;
    }
    if (!is_inline_open_) text = std::string("<think>\n").append(text);
    is_inline_open_ = true;
    out.emplace_back(ContentDelta{std::move(text)}, std::move(tokens));
}

void ChoiceText::close_inline_reasoning(Deltas& out) {
    if (!is_inline_open_) return;
    is_inline_open_ = false;
    out.emplace_back(ContentDelta{"\n</think>\n\n"});
}

void ChoiceText::route_content(std::string_view text, Deltas& out) {
    std::string decided = matcher_.feed(text);
    has_stopped_ = matcher_.matched();
    if (decided.empty()) return;
    std::vector<TokenEntry> tokens = tokens_of(Kind::kContent, decided.size());
    out.emplace_back(ContentDelta{std::move(decided)}, std::move(tokens));
}

void ChoiceText::release_held_content(Deltas& out) {
    std::string held = matcher_.finish();
    if (!held.empty()) {
        std::vector<TokenEntry> tokens = tokens_of(Kind::kContent, held.size());
        out.emplace_back(ContentDelta{std::move(held)}, std::move(tokens));
    }
    if (!matcher_.matched()) matcher_ = make_matcher();
}

}  // namespace replica::server
