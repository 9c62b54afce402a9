// Text completions: no template, no parser; every prompt has n choices.
#include "replica/server/prepare.h"

namespace replica::server {
namespace {

using proto::ErrorCode;
using proto::fail;

std::vector<TokenId> tokens_of(const ServedModel& model, const proto::Prompt& prompt) {
    if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) return *ids;
    return model.tokenizer.encode(std::get<std::string>(prompt),
                                  {.add_special = true, .parse_special = true});
}

std::string text_of(const ServedModel& model, const proto::Prompt& prompt) {
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    return model.tokenizer.decode(std::get<std::vector<std::int32_t>>(prompt),
                                  {.render_special = false});
}

}  // namespace

proto::Result<PreparedRequest> prepare_completion(const ServedModel& model, std::string_view body,
                                                  const RequestContext& context) {
    const auto request = proto::parse_completion_request(body, request_limits(model));
    if (!request) return tl::make_unexpected(request.error());
    if (auto checked = check_common(model, *request); !checked) {
        return tl::make_unexpected(checked.error());
    }
    PreparedRequest prepared;
    prepared.kind = PreparedRequest::Kind::kCompletion;
    prepared.head.id = proto::make_id("cmpl-");
    fill_common(prepared, model, *request);
    const std::uint64_t seed = seed_of(*request);
    for (const proto::Prompt& prompt : request->prompts) {
        const std::vector<TokenId> tokens = tokens_of(model, prompt);
        if (tokens.empty()) {
            return fail(ErrorCode::kInvalidValue, "A prompt has no tokens.", "prompt");
        }
        if (auto checked = check_context(model, tokens.size(), "prompt"); !checked) {
            return tl::make_unexpected(checked.error());
        }
        prepared.prompt_tokens += static_cast<std::int64_t>(tokens.size());
        PreparedPrompt& one = prepared.prompts.emplace_back();
        one.engine = engine_request(model, *request, seed, context);
        one.engine.choice_index =
            static_cast<std::int32_t>(prepared.prompts.size() - 1) * prepared.n;
        one.engine.prompt = tokens;
        one.text = text_options(*request);
        if (request->echo) one.echo = text_of(model, prompt);
    }
    if (request->logprobs) ask_for_logprobs(prepared, *request->logprobs);
    return prepared;
}

}  // namespace replica::server
