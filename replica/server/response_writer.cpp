#include "replica/server/response_writer.h"

#include <utility>

#include "proto/sse.h"

namespace replica::server {
namespace {

/// Whether an end is one that the client reads as a finish reason.
bool is_clean(const ChoiceEnd& end) {
    return end.finish_reason != "error" && end.finish_reason != "cancelled";
}

}  // namespace

ResponseWriter::ResponseWriter(const PreparedRequest& request)
    : head_(request.head),
      include_usage_(request.include_usage),
      include_timings_(request.include_timings),
      return_token_ids_(request.return_token_ids),
      wants_logprobs_(request.wants_logprobs),
      choices_(request.choice_count()) {}

std::string ResponseWriter::chunk(const ChoiceUpdate& update) {
    std::string events;
    // The ids of an update ride on its first chunk; ids without text wait for the next one.
    std::vector<TokenId>& ids = choices_[static_cast<std::size_t>(update.choice)].token_ids;
    ids.insert(ids.end(), update.token_ids.begin(), update.token_ids.end());
    const auto emit = [&](ChoiceParts part) {
        part.token_ids = std::exchange(ids, {});
        events += proto::sse_data(part_json(update.choice, part));
    };
    for (const ChoiceDelta& delta : update.deltas) {
        ChoiceParts part;
        part.deltas.push_back(delta);
        emit(std::move(part));
    }
    if (update.end && is_clean(*update.end)) {
        ChoiceParts part;
        part.finish_reason = update.end->finish_reason;
        part.stop_reason = update.end->stop_reason;
        emit(std::move(part));
    }
    return events;
}

std::string ResponseWriter::closing(const GenerationTotals& totals) {
    if (!include_usage_) return {};
    return proto::sse_data(usage_json(totals.usage, timings(totals)));
}

void ResponseWriter::collect(ChoiceUpdate update) {
    ChoiceParts& choice = choices_[static_cast<std::size_t>(update.choice)];
    for (ChoiceDelta& delta : update.deltas)
        append_delta(choice.deltas, std::move(delta));
    choice.token_ids.insert(choice.token_ids.end(), update.token_ids.begin(),
                            update.token_ids.end());
    if (!update.end) return;
    choice.finish_reason = update.end->finish_reason;
    choice.stop_reason = update.end->stop_reason;
}

std::string ResponseWriter::body(const GenerationTotals& totals) {
    return body_json(std::exchange(choices_, {}), totals.usage, timings(totals));
}

ResponseWriter::Timings ResponseWriter::timings(const GenerationTotals& totals) const {
    if (!include_timings_) return std::nullopt;
    return totals.timings;
}

proto::TokenLogprob wire_logprob(const TokenEntry& entry, const Tokenizer& tokenizer) {
    const auto spelled = [&](TokenId token) {
        return tokenizer.piece(token, {.render_special = true});
    };
    proto::TokenLogprob wire;
    wire.token = spelled(entry.token);
    wire.logprob = static_cast<double>(entry.logprobs.drawn);
    for (std::int32_t i = 0; i < entry.logprobs.top_count; ++i) {
        const kernels::TokenLogprob& top = entry.logprobs.top[static_cast<std::size_t>(i)];
        wire.top.push_back({spelled(top.token), static_cast<double>(top.logprob)});
    }
    return wire;
}

}  // namespace replica::server
