#include <utility>

#include "proto/sse.h"
#include "replica/server/response_writer.h"

namespace replica::server {
namespace {

class TextWriter final : public ResponseWriter {
public:
    explicit TextWriter(const PreparedRequest& request)
        : head_(request.head),
          include_usage_(request.include_usage),
          include_timings_(request.include_timings),
          return_token_ids_(request.return_token_ids) {
        for (const PreparedChoice& prepared : request.choices) {
            proto::CompletionChoice choice;
            choice.text = prepared.echo;
            if (return_token_ids_) choice.token_ids.emplace();
            choices_.push_back(std::move(choice));
        }
    }

    std::string opening() override {
        std::string events;
        for (std::size_t i = 0; i < choices_.size(); ++i) {
            if (choices_[i].text.empty()) continue;
            events += event(static_cast<int>(i), choices_[i]);
        }
        return events;
    }

    std::string chunk(const ChoiceUpdate& update) override {
        proto::CompletionChoice part;
        for (const chat::OutputDelta& delta : update.deltas) {
            if (const auto* content = std::get_if<chat::ContentDelta>(&delta)) {
                part.text += content->text;
            }
        }
        if (return_token_ids_) part.token_ids = update.token_ids;
        if (update.end && is_clean(*update.end)) {
            part.finish_reason = update.end->finish_reason;
            part.stop_reason = update.end->stop_reason;
        }
        const bool is_news =
            !part.text.empty() || !update.token_ids.empty() || !part.finish_reason.empty();
        return is_news ? event(update.choice, part) : std::string();
    }

    std::string closing(const GenerationTotals& totals) override {
        if (!include_usage_) return {};
        return proto::sse_data(
            proto::text_completion_usage_chunk(head_, totals.usage, timings(totals)));
    }

    void collect(ChoiceUpdate update) override {
        proto::CompletionChoice& choice = choices_[static_cast<std::size_t>(update.choice)];
        for (const chat::OutputDelta& delta : update.deltas) {
            if (const auto* content = std::get_if<chat::ContentDelta>(&delta)) {
                choice.text += content->text;
            }
        }
        if (choice.token_ids) {
            choice.token_ids->insert(choice.token_ids->end(), update.token_ids.begin(),
                                     update.token_ids.end());
        }
        if (update.end) {
            choice.finish_reason = update.end->finish_reason;
            choice.stop_reason = update.end->stop_reason;
        }
    }

    std::string body(const GenerationTotals& totals) override {
        return proto::text_completion_json(head_, choices_, totals.usage, timings(totals));
    }

private:
    std::optional<proto::Timings> timings(const GenerationTotals& totals) const {
        if (!include_timings_) return std::nullopt;
        return totals.timings;
    }

    std::string event(int choice, const proto::CompletionChoice& part) const {
        return proto::sse_data(proto::text_completion_chunk(head_, choice, part, include_usage_));
    }

    proto::ResponseHead head_;
    bool include_usage_, include_timings_, return_token_ids_;
    std::vector<proto::CompletionChoice> choices_;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_text_writer(const PreparedRequest& request) {
    return std::make_unique<TextWriter>(request);
}

}  // namespace replica::server
