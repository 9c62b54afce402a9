#include "proto/completion_request.h"

#include "proto/field_check.h"
#include "proto/limits.h"

namespace proto {
namespace {

constexpr std::int64_t kMaxTokensDefault = 16;

tl::unexpected<ApiError> empty_prompt(const std::string& param) {
    return fail(ErrorCode::kInvalidValue, "'" + param + "' has no tokens.", param);
}

Result<Prompt> read_one(const Json& value, std::int64_t vocabulary, const std::string& param) {
    if (value.is_string()) {
        if (value.get_ref<const std::string&>().empty()) return empty_prompt(param);
        return Prompt(value.get<std::string>());
    }
    if (!value.is_array()) return wrong_type(param, "a string or an array of token ids");
    if (value.empty()) return empty_prompt(param);
    Result<std::vector<std::int32_t>> ids = read_token_ids(value, vocabulary, param);
    if (!ids) return tl::unexpected(ids.error());
    return Prompt(std::move(*ids));
}

Result<std::vector<Prompt>> read_prompts(const Json& prompt, std::int64_t vocabulary) {
    std::vector<Prompt> prompts;
    const bool is_single =
        !prompt.is_array() || prompt.empty() || integer_value(prompt[0]).has_value();
    if (is_single) {
        Result<Prompt> one = read_one(prompt, vocabulary, "prompt");
        if (!one) return tl::unexpected(one.error());
        prompts.push_back(std::move(*one));
        return prompts;
    }
    if (prompt.size() > kPromptsMax) {
        return fail(ErrorCode::kInvalidValue,
                    "At most " + std::to_string(kPromptsMax) + " prompts are accepted.", "prompt");
    }
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        if (prompt[i].type() != prompt[0].type()) {
            return wrong_type(indexed("prompt", i), "of the same kind as the first prompt");
        }
        Result<Prompt> one = read_one(prompt[i], vocabulary, indexed("prompt", i));
        if (!one) return tl::unexpected(one.error());
        prompts.push_back(std::move(*one));
    }
    return prompts;
}

Result<void> read_own_fields(const Json& body, CompletionRequest& request) {
    if (!request.max_tokens) request.max_tokens = kMaxTokensDefault;
    read_member(body, "echo", request.echo);
    if (find_member(body, "logprobs") != nullptr) {
        int logprobs = 0;
        read_member(body, "logprobs", logprobs);
        request.logprobs = logprobs;
    }
    if (request.echo && request.logprobs) {
        return fail(ErrorCode::kUnsupportedParameter, "'echo' is refused together with 'logprobs'.",
                    "echo");
    }
    int best_of = request.n;
    read_member(body, "best_of", best_of);
    if (best_of != request.n) {
        return fail(ErrorCode::kUnsupportedValue, "'best_of' must be equal to 'n'.", "best_of");
    }
    return {};
}

}  // namespace

Result<CompletionRequest> parse_completion_request(std::string_view body_text,
                                                   const RequestLimits& limits) {
    Result<Json> body = read_json_object(body_text, limits.json);
    if (!body) return tl::unexpected(body.error());
    CompletionRequest request;
    if (Result<void> checked = check_fields(*body, kCompletions, request); !checked) {
        return tl::unexpected(checked.error());
    }
    const Json* const prompt = find_member(*body, "prompt");
    if (prompt == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'prompt' is missing.", "prompt");
    }
    Result<std::vector<Prompt>> prompts = read_prompts(*prompt, limits.vocabulary);
    if (!prompts) return tl::unexpected(prompts.error());
    request.prompts = std::move(*prompts);
    if (Result<void> read = read_generation_fields(*body, limits.vocabulary, request); !read) {
        return tl::unexpected(read.error());
    }
    if (Result<void> read = read_own_fields(*body, request); !read) {
        return tl::unexpected(read.error());
    }
    return request;
}

}  // namespace proto
