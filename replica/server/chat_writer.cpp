#include <utility>

#include "proto/sse.h"
#include "replica/server/response_writer.h"

namespace replica::server {
namespace {

class ChatWriter final : public ResponseWriter {
public:
    explicit ChatWriter(const PreparedRequest& request)
        : head_(request.head),
          field_(request.reasoning_field),
          include_usage_(request.include_usage),
          include_timings_(request.include_timings),
          return_token_ids_(request.return_token_ids),
          chunks_(request.head, {.include_usage = request.include_usage, .field = field_}),
          choices_(request.choices.size()) {
        if (!return_token_ids_) return;
        for (proto::ChatChoice& choice : choices_)
            choice.token_ids.emplace();
    }

    std::string opening() override {
        std::string events;
        for (std::size_t i = 0; i < choices_.size(); ++i) {
            events += proto::sse_data(chunks_.role(static_cast<int>(i)));
        }
        return events;
    }

    std::string chunk(const ChoiceUpdate& update) override {
        std::string events;
        // The ids of an update ride on its first chunk; ids without text wait for the next one.
        std::vector<std::int32_t>& ids = waiting_ids(update.choice);
        ids.insert(ids.end(), update.token_ids.begin(), update.token_ids.end());
        const auto emit = [&](auto&& make) {
            proto::ChunkExtra extra;
            if (return_token_ids_ && !ids.empty()) extra.token_ids = &ids;
            events += proto::sse_data(make(extra));
            ids.clear();
        };
        for (const chat::OutputDelta& delta : update.deltas) {
            emit([&](proto::ChunkExtra extra) { return delta_chunk(update.choice, delta, extra); });
        }
        if (update.end && is_clean(*update.end)) {
            emit([&](proto::ChunkExtra extra) {
                return chunks_.finish(update.choice, update.end->finish_reason,
                                      update.end->stop_reason, extra);
            });
        }
        return events;
    }

    std::string closing(const GenerationTotals& totals) override {
        if (!include_usage_) return {};
        return proto::sse_data(chunks_.usage(totals.usage, timings(totals)));
    }

    void collect(ChoiceUpdate update) override {
        proto::ChatChoice& choice = choices_[static_cast<std::size_t>(update.choice)];
        for (chat::OutputDelta& delta : update.deltas)
            add(std::move(delta), choice);
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
        for (proto::ChatChoice& choice : choices_) {
            // Null says "only calls"; an answer without any text is an empty one.
            if (!choice.content && choice.tool_calls.empty()) choice.content.emplace();
        }
        return proto::chat_completion_json(head_, choices_, totals.usage, field_, timings(totals));
    }

private:
    std::optional<proto::Timings> timings(const GenerationTotals& totals) const {
        if (!include_timings_) return std::nullopt;
        return totals.timings;
    }

    std::vector<std::int32_t>& waiting_ids(int choice) {
        if (waiting_ids_.empty()) waiting_ids_.resize(choices_.size());
        return waiting_ids_[static_cast<std::size_t>(choice)];
    }

    std::string delta_chunk(int choice, const chat::OutputDelta& delta,
                            proto::ChunkExtra extra) const {
        if (const auto* content = std::get_if<chat::ContentDelta>(&delta)) {
            return chunks_.content(choice, content->text, extra);
        }
        if (const auto* reasoning = std::get_if<chat::ReasoningDelta>(&delta)) {
            return chunks_.reasoning(choice, reasoning->text, extra);
        }
        if (const auto* start = std::get_if<chat::ToolCallStart>(&delta)) {
            return chunks_.tool_open(choice, start->index, start->id, start->name, extra);
        }
        const auto& arguments = std::get<chat::ToolCallArguments>(delta);
        return chunks_.tool_arguments(choice, arguments.index, arguments.text, extra);
    }

    static void add(chat::OutputDelta delta, proto::ChatChoice& choice) {
        const auto append = [](std::optional<std::string>& to, const std::string& text) {
            if (!to) to.emplace();
            *to += text;
        };
        if (const auto* content = std::get_if<chat::ContentDelta>(&delta)) {
            append(choice.content, content->text);
        } else if (const auto* reasoning = std::get_if<chat::ReasoningDelta>(&delta)) {
            append(choice.reasoning, reasoning->text);
        } else if (auto* start = std::get_if<chat::ToolCallStart>(&delta)) {
            choice.tool_calls.push_back({std::move(start->id), std::move(start->name), {}});
        } else if (const auto* arguments = std::get_if<chat::ToolCallArguments>(&delta)) {
            choice.tool_calls[static_cast<std::size_t>(arguments->index)].arguments +=
                arguments->text;
        }
    }

    proto::ResponseHead head_;
    proto::ReasoningField field_;
    bool include_usage_, include_timings_, return_token_ids_;
    proto::ChatChunkWriter chunks_;
    std::vector<proto::ChatChoice> choices_;              // whole answers
    std::vector<std::vector<std::int32_t>> waiting_ids_;  // streams
};

}  // namespace

std::unique_ptr<ResponseWriter> make_chat_writer(const PreparedRequest& request) {
    return std::make_unique<ChatWriter>(request);
}

}  // namespace replica::server
