#include "replica/server/choice_text.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace replica::server {

using chat::ContentDelta;
using chat::OutputDelta;
using chat::ReasoningDelta;
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

ChoiceText::ChoiceText(const Tokenizer& tokenizer, const std::vector<TokenId>& tag_tokens,
                       ChoiceTextOptions options)
    : tokenizer_(tokenizer),
      tag_tokens_(tag_tokens),
      options_(std::move(options)),
      matcher_(make_matcher()) {
    if (options_.parser) parser_.emplace(*options_.parser);
}

chat::StopMatcher ChoiceText::make_matcher() const {
    return chat::StopMatcher(
        {.strings = options_.stop, .include_stop_string = options_.include_stop_string});
}

ChoiceText::Step ChoiceText::feed(TokenId token) {
    assert(!has_stopped_ && "the engine sends no token after the verdict to stop");
    const bool is_spelled_out = !options_.skip_special_tokens ||
                                std::binary_search(tag_tokens_.begin(), tag_tokens_.end(), token);
    std::string text;
    decoder_.feed(tokenizer_.piece(token, {.render_special = is_spelled_out}), text);
    Step step;
    if (!parser_) {
        route({ContentDelta{std::move(text)}}, step.deltas);
    } else {
        const bool was_reasoning = parser_->in_reasoning();
        route(parser_->feed(text), step.deltas);
        // The closing tag counts as reasoning; the first token of a plain answer does not.
        if (was_reasoning && (parser_->in_reasoning() || has_reasoning_)) ++reasoning_tokens_;
    }
    step.must_stop = has_stopped_;
    return step;
}

std::vector<OutputDelta> ChoiceText::finish(const FinishInfo& info, ChoiceEnd& end) {
    std::vector<OutputDelta> out;
    const bool is_whole =
        info.reason == FinishReason::kStop || info.reason == FinishReason::kLength;
    if (!has_stopped_ && is_whole) {
        std::string text;
        decoder_.finish(text);
        if (parser_) {
            route(parser_->feed(text), out);
            if (!has_stopped_) {
                route(
                    parser_->finish(info.reason == FinishReason::kLength ? chat::FinishKind::kLength
                                                                         : chat::FinishKind::kEnd),
                    out);
            }
        } else {
            route({ContentDelta{std::move(text)}}, out);
        }
        if (!has_stopped_) release_held_content(out);
    }
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
    const auto ms = [](std::chrono::duration<double> time) { return time.count() * 1e3; };
    end.prompt_tokens = info.prompt_tokens;
    end.completion_tokens = info.generated_tokens;
    end.reasoning_tokens = has_reasoning_ ? reasoning_tokens_ : 0;
    end.timings = {.queue_ms = ms(info.queue_time),
                   .prefill_ms = ms(info.prefill_time),
                   .decode_ms = ms(info.decode_time)};
    if (parser_) end.parse_fallbacks = parser_->fallbacks();
    return out;
}

void ChoiceText::route(std::vector<OutputDelta> deltas, std::vector<OutputDelta>& out) {
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

void ChoiceText::route_reasoning(std::string text, std::vector<OutputDelta>& out) {
    if (text.empty()) return;
    has_reasoning_ = true;
    if (options_.reasoning == ReasoningMode::kHidden) return;
    if (options_.reasoning == ReasoningMode::kSeparate) {
        out.emplace_back(ReasoningDelta{std::move(text)});
        return;
    }
    if (!is_inline_open_) text.insert(0, "<think>\n");
    is_inline_open_ = true;
    out.emplace_back(ContentDelta{std::move(text)});
}

void ChoiceText::close_inline_reasoning(std::vector<OutputDelta>& out) {
    if (!is_inline_open_) return;
    is_inline_open_ = false;
    out.emplace_back(ContentDelta{"\n</think>\n\n"});
}

void ChoiceText::route_content(std::string_view text, std::vector<OutputDelta>& out) {
    std::string decided = matcher_.feed(text);
    has_stopped_ = matcher_.matched();
    if (!decided.empty()) out.emplace_back(ContentDelta{std::move(decided)});
}

void ChoiceText::release_held_content(std::vector<OutputDelta>& out) {
    std::string held = matcher_.finish();
    if (!held.empty()) out.emplace_back(ContentDelta{std::move(held)});
    if (!matcher_.matched()) matcher_ = make_matcher();
}

}  // namespace replica::server
