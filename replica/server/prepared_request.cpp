#include "replica/server/prepared_request.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>

#include "replica/server/prepare.h"

namespace replica::server {
namespace {

std::int32_t clipped(std::int64_t value) {
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(value, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

proto::ApiError model_not_found(const ServedModel& model, std::string_view wanted) {
    std::string names = model.name;
    for (const std::string& alias : model.aliases)
        names += ", " + alias;
    proto::ApiError error;
    error.code = proto::ErrorCode::kModelNotFound;
    error.message = "The model '" + proto::printable(wanted) +
                    "' is not served here. Available: " + proto::printable(names, 1024) + ".";
    error.param = "model";
    return error;
}

proto::Result<void> check_common(const ServedModel& model,
                                 const proto::GenerationRequest& request) {
    if (!model.answers_to(request.model)) {
        return tl::make_unexpected(model_not_found(model, request.model));
    }
    if (request.constraint) {
        return proto::fail(proto::ErrorCode::kUnsupportedParameter,
                           "Constrained output is not offered by this server.",
                           request.constraint->param);
    }
    return {};
}

proto::Result<void> check_context(const ServedModel& model, std::size_t prompt_tokens,
                                  const std::string& param) {
    if (prompt_tokens + 1 <= static_cast<std::size_t>(model.max_model_len())) return {};
    return proto::fail(
        proto::ErrorCode::kContextLengthExceeded,
        "This model's maximum context length is " + std::to_string(model.max_model_len()) +
            " tokens, but the prompt has " + std::to_string(prompt_tokens) +
            " tokens: the request exceeds the available context size. Shorten the " + param + ".",
        param);
}

EngineRequest engine_request(const ServedModel& model, const proto::GenerationRequest& request,
                             std::uint64_t seed, const RequestContext& context) {
    EngineRequest engine;
    SamplingOptions& sampling = engine.sampling;
    sampling.temperature =
        static_cast<float>(request.temperature.value_or(model.default_temperature));
    sampling.top_k = clipped(std::max<std::int64_t>(request.top_k.value_or(0), 0));
    sampling.top_p = static_cast<float>(request.top_p.value_or(1.0));
    sampling.min_p = static_cast<float>(request.min_p.value_or(0.0));
    sampling.repetition_penalty = static_cast<float>(request.repetition_penalty.value_or(1.0));
    sampling.presence_penalty = static_cast<float>(request.presence_penalty.value_or(0.0));
    sampling.frequency_penalty = static_cast<float>(request.frequency_penalty.value_or(0.0));
    sampling.seed = seed;
    for (const proto::LogitBias& bias : request.logit_bias) {
        sampling.logit_bias.push_back({bias.token, static_cast<float>(bias.bias)});
    }
    if (request.max_tokens) engine.max_tokens = clipped(*request.max_tokens);
    engine.min_tokens = clipped(request.min_tokens);
    engine.ignore_eos = request.ignore_eos;
    engine.stop_token_ids = request.stop_token_ids;
    engine.priority = request.priority.value_or(context.header_priority.value_or(0));
    engine.draft_tokens = request.draft_tokens;
    engine.cache_salt = request.cache_salt;
    return engine;
}

ChoiceTextOptions text_options(const proto::GenerationRequest& request) {
    ChoiceTextOptions options;
    options.stop = request.stop;
    options.include_stop_string = request.include_stop_str_in_output;
    options.skip_special_tokens = request.skip_special_tokens;
    options.stop_token_ids = request.stop_token_ids;
    return options;
}

void fill_common(PreparedRequest& prepared, const ServedModel& model,
                 const proto::GenerationRequest& request) {
    prepared.head.created = unix_seconds_now();
    prepared.head.model = model.name;
    prepared.head.system_fingerprint = model.fingerprint;
    prepared.n = request.n;
    prepared.is_streamed = request.stream;
    prepared.include_usage = request.include_usage;
    prepared.return_token_ids = request.return_token_ids;
    prepared.include_timings = request.include_timings;
    prepared.unknown_fields = request.unknown_fields.size();
    if (request.include_timings && request.stream && !request.include_usage) {
        proto::add_warning(prepared.warnings,
                           "include_timings_without_usage: a stream tells them beside its usage, "
                           "which stream_options.include_usage asks for");
    }
    for (const std::string& warning : request.warnings) {
        proto::add_warning(prepared.warnings, warning);
    }
    if (request.draft_tokens.value_or(0) > model.limits.draft_tokens_max) {
        proto::add_warning(prepared.warnings,
                           "draft_tokens_clipped " + std::to_string(model.limits.draft_tokens_max));
    }
}

void ask_for_logprobs(PreparedRequest& prepared, int top_count) {
    prepared.wants_logprobs = true;
    for (PreparedPrompt& prompt : prepared.prompts) {
        prompt.engine.top_logprobs = top_count;
        prompt.text.wants_logprobs = true;
    }
}

std::uint64_t seed_of(const proto::GenerationRequest& request) {
    if (request.seed) return static_cast<std::uint64_t>(*request.seed);
    std::random_device device;
    return std::uint64_t{device()} << 32U | device();
}

std::int64_t unix_seconds_now() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

proto::RequestLimits request_limits(const ServedModel& model) {
    proto::RequestLimits limits;
    limits.vocabulary = model.tokenizer.vocabulary_size();
    return limits;
}

}  // namespace replica::server
