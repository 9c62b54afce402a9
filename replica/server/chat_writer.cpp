// The JSON of chat answers.
#include <utility>

#include "proto/sse.h"
#include "replica/server/response_writer.h"

namespace replica::server {
namespace {

class ChatWriter final : public ResponseWriter {
public:
    ChatWriter(const PreparedRequest& request, const Tokenizer& tokenizer)
        : ResponseWriter(request),
          tokenizer_(tokenizer),
          field_(request.reasoning_field),
          chunks_(request.head, {.include_usage = request.include_usage, .field = field_}),
          choice_count_(static_cast<int>(request.choice_count())) {}

    std::string opening() override {
        std::string events;
        for (int choice = 0; choice < choice_count_; ++choice) {
            events += proto::sse_data(chunks_.role(choice));
        }
        return events;
    }

private:
    std::string part_json(int choice, const ChoiceParts& part) override {
        proto::ChunkExtra extra;
        if (!part.token_ids.empty()) extra.token_ids = &part.token_ids;
        if (part.deltas.empty()) {
            return chunks_.finish(choice, part.finish_reason, part.stop_reason, extra);
        }
        const ChoiceDelta& delta = part.deltas.front();
        proto::ChoiceLogprobs logprobs;
        if (!delta.tokens.empty()) {
            add_logprobs(delta, logprobs);
            extra.logprobs = &logprobs;
        }
        return delta_json(choice, delta.what, extra);
    }

    std::string usage_json(const proto::Usage& usage, const Timings& timings) override {
        return chunks_.usage(usage, timings);
    }

    std::string body_json(std::vector<ChoiceParts> choices, const proto::Usage& usage,
                          const Timings& timings) override {
        std::vector<proto::ChatChoice> wire;
        for (ChoiceParts& parts : choices)
            wire.push_back(whole_choice(std::move(parts)));
        return proto::chat_completion_json(head_, wire, usage, field_, timings);
    }

    proto::ChatChoice whole_choice(ChoiceParts parts) const {
        proto::ChatChoice choice;
        if (wants_logprobs_) choice.logprobs.emplace();
        for (ChoiceDelta& delta : parts.deltas) {
            if (wants_logprobs_) add_logprobs(delta, *choice.logprobs);
            add(std::move(delta.what), choice);
        }
        // Null says "only calls"; an answer without any text is an empty one.
        if (!choice.content && choice.tool_calls.empty()) choice.content.emplace();
        choice.finish_reason = std::move(parts.finish_reason);
        choice.stop_reason = std::move(parts.stop_reason);
        if (return_token_ids_) choice.token_ids = std::move(parts.token_ids);
        return choice;
    }

    void add_logprobs(const ChoiceDelta& delta, proto::ChoiceLogprobs& out) const {
        const bool is_reasoning = std::holds_alternative<chat::ReasoningDelta>(delta.what);
        auto& list = is_reasoning ? out.reasoning_content : out.content;
        for (const TokenEntry& entry : delta.tokens)
            list.push_back(wire_logprob(entry, tokenizer_));
    }

    std::string delta_json(int choice, const chat::OutputDelta& delta,
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

    const Tokenizer& tokenizer_;
    proto::ReasoningField field_;
    proto::ChatChunkWriter chunks_;
    int choice_count_;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_chat_writer(const PreparedRequest& request,
                                                 const Tokenizer& tokenizer) {
    return std::make_unique<ChatWriter>(request, tokenizer);
}

}  // namespace replica::server
