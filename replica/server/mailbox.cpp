#include "replica/server/mailbox.h"

#include <algorithm>
#include <utility>

namespace replica::server {
namespace {

template <class Text>
bool join(chat::OutputDelta& last, chat::OutputDelta& next) {
    auto* into = std::get_if<Text>(&last);
    const auto* from = std::get_if<Text>(&next);
    if (into == nullptr || from == nullptr) return false;
    if constexpr (std::is_same_v<Text, chat::ToolCallArguments>) {
        if (into->index != from->index) return false;
    }
    into->text += from->text;
    return true;
}

std::size_t waiting_bytes(const ChoiceUpdate& update) {
    std::size_t bytes = 0;
    for (const ChoiceDelta& delta : update.deltas)
        bytes += held_bytes(delta);
    return bytes;
}

}  // namespace

void append_delta(std::vector<ChoiceDelta>& deltas, ChoiceDelta delta) {
    if (!deltas.empty()) {
        ChoiceDelta& last = deltas.back();
        if (join<chat::ContentDelta>(last.what, delta.what) ||
            join<chat::ReasoningDelta>(last.what, delta.what) ||
            join<chat::ToolCallArguments>(last.what, delta.what)) {
            last.tokens.insert(last.tokens.end(), delta.tokens.begin(), delta.tokens.end());
            return;
        }
    }
    deltas.push_back(std::move(delta));
}

std::size_t held_bytes(const ChoiceDelta& delta) {
    const std::size_t text_bytes = std::visit(
        [](const auto& what) {
            if constexpr (std::is_same_v<std::decay_t<decltype(what)>, chat::ToolCallStart>) {
                return what.name.size();
            } else {
                return what.text.size();
            }
        },
        delta.what);
    return text_bytes + delta.tokens.size() * sizeof(TokenEntry);
}

bool Mailbox::push(ChoiceUpdate update) {
    bool is_first = false, fits = true;
    {
        const std::lock_guard lock(mutex_);
        is_first = waiting_.empty();
        const auto known =
            std::find_if(waiting_.begin(), waiting_.end(),
                         [&](const ChoiceUpdate& u) { return u.choice == update.choice; });
        if (known == waiting_.end()) {
            waiting_.push_back(std::move(update));
            fits = waiting_bytes(waiting_.back()) <= kOutputBytesMax;
        } else {
            known->has_first_token |= update.has_first_token;
            for (ChoiceDelta& delta : update.deltas) {
                append_delta(known->deltas, std::move(delta));
            }
            known->token_ids.insert(known->token_ids.end(), update.token_ids.begin(),
                                    update.token_ids.end());
            if (update.end) known->end = std::move(update.end);
            fits = waiting_bytes(*known) <= kOutputBytesMax;
        }
    }
    if (is_first) wake_();
    return fits;
}

std::vector<ChoiceUpdate> Mailbox::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
}

}  // namespace replica::server
