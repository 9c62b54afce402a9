// Guesses about a request, corrected by what replicas report.
//
// Prompt tokens: bytes of the body / bytes per token; the quotient starts at 3.5 and follows the
// reported prompts. Output tokens: a moving average of what requests generated, from 256, never
// more than the request allows. Wrong guesses cost balance, never correctness.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace router {

class Estimator {
public:
    [[nodiscard]] std::int64_t prompt_tokens(std::size_t bytes) const {
        return std::max<std::int64_t>(
            1, static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_token_));
    }

    [[nodiscard]] std::int64_t output_tokens(std::optional<std::int64_t> max_tokens,
                                             int sequences) const {
        auto one = static_cast<std::int64_t>(output_tokens_);
        if (max_tokens) one = std::min(one, *max_tokens);
        return std::max<std::int64_t>(1, one) * sequences;
    }

    void on_prompt(std::size_t bytes, std::int64_t tokens) {
        if (tokens <= 0 || bytes == 0) return;
        const double seen = static_cast<double>(bytes) / static_cast<double>(tokens);
        bytes_per_token_ += kWeight * (std::clamp(seen, kBytesMin, kBytesMax) - bytes_per_token_);
    }

    void on_output(std::int64_t tokens) {
        output_tokens_ +=
            kWeight * (static_cast<double>(std::max<std::int64_t>(tokens, 0)) - output_tokens_);
    }

private:
    static constexpr double kWeight = 0.1;  // about the last ten requests
    // Bodies carry JSON around the text, so a short prompt shows many bytes per token; beyond these
    // bounds a single odd request would spoil the average.
    static constexpr double kBytesMin = 0.5;
    static constexpr double kBytesMax = 32;

    double bytes_per_token_ = 3.5;
    double output_tokens_ = 256;
};

}  // namespace router
