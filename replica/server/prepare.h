// What the preparation of chat and of text completions shares; for those two files only.
#pragma once

#include <chrono>

#include "replica/server/prepared_request.h"

namespace replica::server {

/// The model is ours, and nothing is asked that this server does not offer.
proto::Result<void> check_common(const ServedModel& model, const proto::GenerationRequest& request);
/// `param` is what to shorten: messages or prompt.
proto::Result<void> check_context(const ServedModel& model, std::size_t prompt_tokens,
                                  const std::string& param);
/// Everything but prompt, choice index and sink.
EngineRequest engine_request(const ServedModel& model, const proto::GenerationRequest& request,
                             std::uint64_t seed, const RequestContext& context);
ChoiceTextOptions text_options(const proto::GenerationRequest& request);
void fill_common(PreparedRequest& prepared, const ServedModel& model,
                 const proto::GenerationRequest& request);

/// Log-probabilities of every token and of `top_count` best ones beside it.
void ask_for_logprobs(PreparedRequest& prepared, int top_count);

/// The request's seed, or a random one: the draws of a request are reproducible by its seed only.
std::uint64_t seed_of(const proto::GenerationRequest& request);
std::int64_t unix_seconds_now();
/// What the request parser must know of the model.
proto::RequestLimits request_limits(const ServedModel& model);

}  // namespace replica::server
