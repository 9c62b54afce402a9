// The JSON of text completions.
#include <utility>

#include "proto/sse.h"
#include "replica/server/response_writer.h"

namespace replica::server {
namespace {

class TextWriter final : public ResponseWriter {
public:
    TextWriter(const PreparedRequest& request, const Tokenizer& tokenizer)
        : ResponseWriter(request), tokenizer_(tokenizer) {
        for (std::size_t i = 0; i < request.choice_count(); ++i)
            echoes_.push_back(request.prompt_of(i).echo);
    }

    std::string opening() override {
        std::string events;
        for (std::size_t i = 0; i < echoes_.size(); ++i) {
            if (echoes_[i].empty()) continue;
            proto::CompletionChoice echo;
            echo.text = echoes_[i];
            events += proto::sse_data(
                proto::text_completion_chunk(head_, static_cast<int>(i), echo, include_usage_));
        }
        return events;
    }

private:
    std::string part_json(int choice, const ChoiceParts& part) override {
        proto::CompletionChoice wire = wire_choice(part);
        if (wire.logprobs && wire.logprobs->tokens.empty()) wire.logprobs.reset();
        return proto::text_completion_chunk(head_, choice, wire, include_usage_);
    }

    std::string usage_json(const proto::Usage& usage, const Timings& timings) override {
        return proto::text_completion_usage_chunk(head_, usage, timings);
    }

    std::string body_json(std::vector<ChoiceParts> choices, const proto::Usage& usage,
                          const Timings& timings) override {
        std::vector<proto::CompletionChoice> wire;
        for (std::size_t i = 0; i < choices.size(); ++i) {
            wire.push_back(wire_choice(choices[i]));
            wire.back().text.insert(0, echoes_[i]);
        }
        return proto::text_completion_json(head_, wire, usage, timings);
    }

    proto::CompletionChoice wire_choice(const ChoiceParts& parts) const {
        proto::CompletionChoice wire;
        wire.finish_reason = parts.finish_reason;
        wire.stop_reason = parts.stop_reason;
        if (return_token_ids_) wire.token_ids = parts.token_ids;
        if (wants_logprobs_) wire.logprobs.emplace();
        for (const ChoiceDelta& delta : parts.deltas) {
            // Without a parser there is nothing but content.
            wire.text += std::get<chat::ContentDelta>(delta.what).text;
            for (const TokenEntry& entry : delta.tokens) {
                wire.logprobs->tokens.push_back(wire_logprob(entry, tokenizer_));
                wire.logprobs->text_offset.push_back(entry.text_offset);
            }
        }
        return wire;
    }

    const Tokenizer& tokenizer_;
    std::vector<std::string> echoes_;  // per choice
};

}  // namespace

std::unique_ptr<ResponseWriter> make_text_writer(const PreparedRequest& request,
                                                 const Tokenizer& tokenizer) {
    return std::make_unique<TextWriter>(request, tokenizer);
}

}  // namespace replica::server
