// How long a refused client should wait, from what the engine measures.
#pragma once

#include <random>

#include "replica/engine/engine.h"

namespace replica::server {

/// Seconds until a place in the queue is free, roughly: what is queued at the measured rate, and
/// an answer of usual length for each of the `waiting` entries ahead.
inline double expected_wait_s(const EngineStatus& engine, std::int64_t waiting) {
    constexpr double kPrefillFallback = 2000.0, kDecodeFallback = 40.0, kAnswerTokens = 256.0;
    const double prefill =
        engine.prefill_tokens_per_s > 0 ? engine.prefill_tokens_per_s : kPrefillFallback;
    const double decode =
        engine.decode_tokens_per_s > 0 ? engine.decode_tokens_per_s : kDecodeFallback;
    return static_cast<double>(engine.queued_tokens) / prefill +
           kAnswerTokens * static_cast<double>(waiting) / decode;
}

/// In [0, 1): keeps refused clients from returning together.
inline double random_spread() {
    thread_local std::minstd_rand generator{std::random_device{}()};
    return std::uniform_real_distribution<double>{0.0, 1.0}(generator);
}

}  // namespace replica::server
