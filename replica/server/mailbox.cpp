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
    for (const chat::OutputDelta& delta : update.deltas)
        bytes += text_bytes(delta);
    return bytes;
}

}  // namespace

void append_delta(std::vector<chat::OutputDelta>& deltas, chat::OutputDelta delta) {
    if (!deltas.empty() && (join<chat::ContentDelta>(deltas.back(), delta) ||
                            join<chat::ReasoningDelta>(deltas.back(), delta) ||
                            join<chat::ToolCallArguments>(deltas.back(), delta))) {
        return;
    }
    deltas.push_back(std::move(delta));
}

std::size_t text_bytes(const chat::OutputDelta& delta) {
    return std::visit(
        [](const auto& d) {
            if constexpr (std::is_same_v<std::decay_t<decltype(d)>, chat::ToolCallStart>) {
                return d.name.size();
            } else {
                return d.text.size();
            }
        },
        delta);
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
            for (chat::OutputDelta& delta : update.deltas) {
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
