// Warm-up and self-test: the model answers a fixed request before it answers anybody else. The
// request goes the way of a client's, from JSON text to sampled tokens.
#pragma once

#include <tl/expected.hpp>

#include "replica/server/model_loader.h"

namespace replica::server {

inline constexpr int kSelftestTokens = 16;
/// Long enough to measure a rate, short enough for a large model on a CPU.
inline constexpr int kWarmUpPromptTokens = 64;

struct SelftestReport {
    std::vector<TokenId> tokens;
    std::string tokens_sha256;  // of the ids as decimal text with commas between
    double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
};

/// Loading thread; the engine must be idle.
void warm_up(const Serving& serving, const LoadHooks& hooks);
/// Fails (exit 8) when the engine reports an error, an id is outside the vocabulary, or one id
/// fills the answer.
tl::expected<SelftestReport, StartFailure> run_selftest(const Serving& serving,
                                                        const LoadHooks& hooks);

}  // namespace replica::server
