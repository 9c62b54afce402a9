#include "replica/server/completion_sink.h"

#include <utility>

namespace replica::server {

CompletionSink::CompletionSink(const ServedModel& model, ChoiceTextOptions text, Metrics& metrics,
                               std::shared_ptr<Mailbox> mailbox, Setup setup)
    : text_(model.tokenizer, model.tag_tokens, std::move(text)),
      metrics_(metrics),
      mailbox_(std::move(mailbox)),
      setup_(setup) {}

void CompletionSink::on_start(std::int32_t cached_tokens) {
    phase_.store(RequestPhase::kPrefill, std::memory_order_relaxed);
    cached_tokens_.store(cached_tokens, std::memory_order_relaxed);
}

std::optional<std::int32_t> CompletionSink::cached_tokens() const {
    const std::int32_t tokens = cached_tokens_.load(std::memory_order_relaxed);
    if (tokens < 0) return std::nullopt;
    return tokens;
}

SinkVerdict CompletionSink::on_token(TokenId token, const kernels::RowLogprobs* logprobs) {
    const Clock::time_point now = Clock::now();
    if (has_token_) {
        metrics_.observe_inter_token(now - last_token_);
    } else {
        metrics_.observe_first_token(now - setup_.arrival);
        phase_.store(RequestPhase::kDecode, std::memory_order_relaxed);
    }
    last_token_ = now;
    ChoiceText::Step step = text_.feed(token, logprobs);
    ChoiceUpdate update{.choice = setup_.choice, .has_first_token = !has_token_};
    has_token_ = true;
    for (ChoiceDelta& delta : step.deltas)
        append_delta(update.deltas, std::move(delta));
    if (setup_.wants_token_ids) update.token_ids.push_back(token);
    const bool is_news =
        update.has_first_token || !update.deltas.empty() || !update.token_ids.empty();
    if (is_news && !mailbox_->push(std::move(update))) {
        has_overflowed_ = true;
        return SinkVerdict::kStop;
    }
    return step.must_stop ? SinkVerdict::kStop : SinkVerdict::kContinue;
}

void CompletionSink::on_finish(const FinishInfo& info) {
    ChoiceUpdate update{.choice = setup_.choice};
    ChoiceEnd end;
    for (ChoiceDelta& delta : text_.finish(info, end)) {
        append_delta(update.deltas, std::move(delta));
    }
    if (has_overflowed_) {
        end.finish_reason = "error";
        end.error = "The client reads too slowly: its output buffer is full.";
    }
    update.end = std::move(end);
    mailbox_->push(std::move(update));
}

}  // namespace replica::server
