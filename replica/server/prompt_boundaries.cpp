#include "replica/server/prompt_boundaries.h"

#include <algorithm>
#include <optional>
#include <string>

#include "replica/chat/messages.h"

namespace replica::server {
namespace {

// Words that no template contains.
constexpr std::string_view kFirst = "Qvfirst", kReply = "Qvreply", kSecond = "Qvsecond";

std::optional<std::string> rendered(const chat::Template& chat_template, const Tokenizer& tokenizer,
                                    chat::Json messages, bool add_generation_prompt) {
    chat::ChatInput input;
    input.messages = std::move(messages);
    input.add_generation_prompt = add_generation_prompt;
    input.bos_token = tokenizer.bos_text();
    input.eos_token = tokenizer.eos_text();
    auto prompt = chat::render_chat(chat_template, input);
    if (!prompt) return std::nullopt;
    return std::move(prompt->text);
}

chat::Json message(std::string_view role, std::string_view content) {
    return {{"role", role}, {"content", content}};
}

/// The mark in `opening`, a template's text between one message's content and the next one's. What
/// ends the message before does not belong to it, nor does white space at its end: that may melt
/// into the content.
std::vector<TokenId> mark_of(std::string opening, const Tokenizer& tokenizer) {
    opening.erase(opening.find_last_not_of(" \t\r\n") + 1);
    std::vector<TokenId> mark =
        tokenizer.encode(opening, {.add_special = false, .parse_special = true});
    const std::vector<TokenId>& ends = tokenizer.end_tokens();
    const auto is_control = [&](TokenId id) { return tokenizer.type(id) == TokenType::kControl; };
    const auto last_end = std::find_if(mark.rbegin(), mark.rend(), [&](TokenId id) {
        return std::binary_search(ends.begin(), ends.end(), id);
    });
    mark.erase(mark.begin(), last_end.base());
    mark.erase(mark.begin(), std::find_if(mark.begin(), mark.end(), is_control));
    return mark;
}

bool begins_with(std::span<const TokenId> tokens, std::span<const TokenId> mark) {
    return tokens.size() >= mark.size() && std::equal(mark.begin(), mark.end(), tokens.begin());
}

}  // namespace

TurnMarks find_turn_marks(const chat::Template& chat_template, const Tokenizer& tokenizer) {
    TurnMarks marks;
    const chat::Json first = message("user", kFirst);
    const auto chat = rendered(
        chat_template, tokenizer,
        chat::Json::array({first, message("assistant", kReply), message("user", kSecond)}), false);
    if (chat) {
        const std::size_t reply = chat->find(kReply), second = chat->find(kSecond);
        if (reply != std::string::npos && second != std::string::npos && reply < second) {
            const std::size_t begin = reply + kReply.size();
            marks.user = mark_of(chat->substr(begin, second - begin), tokenizer);
        }
    }
    const auto open = rendered(chat_template, tokenizer, chat::Json::array({first}), true);
    if (open) {
        const std::size_t at = open->find(kFirst);
        if (at != std::string::npos) {
            marks.assistant = mark_of(open->substr(at + kFirst.size()), tokenizer);
        }
    }
    return marks;
}

std::vector<std::int32_t> prompt_boundaries(std::span<const TokenId> prompt, const TurnMarks& marks,
                                            bool ends_in_assistant_turn) {
    std::vector<std::int32_t> boundaries;
    // Nothing comes before position 0: it parts no two requests.
    for (std::size_t i = 1; i < prompt.size() && !marks.user.empty(); ++i) {
        if (prompt[i] == marks.user.front() && begins_with(prompt.subspan(i), marks.user)) {
            boundaries.push_back(static_cast<std::int32_t>(i));
        }
    }
    if (ends_in_assistant_turn && !marks.assistant.empty()) {
        // Only the mark's first token: what follows varies with the request (thinking on or off).
        const auto last = std::find(prompt.rbegin(), prompt.rend(), marks.assistant.front());
        const auto at = static_cast<std::int32_t>(prompt.rend() - last) - 1;
        const std::int32_t least = boundaries.empty() ? 0 : boundaries.back();
        if (last != prompt.rend() && at > least) boundaries.push_back(at);
    }
    if (boundaries.size() > kBoundariesMax) {
        const auto surplus = static_cast<std::ptrdiff_t>(boundaries.size() - kBoundariesMax);
        boundaries.erase(boundaries.begin() + 1, boundaries.begin() + 1 + surplus);
    }
    return boundaries;
}

}  // namespace replica::server
