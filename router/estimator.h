// Guesses about a request, corrected by what replicas report.
//
// Prompt tokens: bytes / bytes per token of the model; the quotient starts at 3.5 and follows the
// reported prompts. Output tokens: a moving average of what requests of this model and key
// generated, from 256, never more than the request allows. Wrong guesses cost balance, never
// correctness.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "router/fairness.h"

namespace router {

class Estimator {
public:
    /// Models and keys beyond this share the first guess; names of models come from clients.
    static constexpr std::size_t kAveragesMax = 4096;

    [[nodiscard]] std::int64_t prompt_tokens(const std::string& model, std::size_t bytes) const {
        const auto at = bytes_per_token_.find(model);
        const double per_token = at == bytes_per_token_.end() ? kBytesFirst : at->second;
        return std::max<std::int64_t>(
            1, static_cast<std::int64_t>(static_cast<double>(bytes) / per_token));
    }

    [[nodiscard]] std::int64_t output_tokens(const std::string& model, KeyId key,
                                             std::optional<std::int64_t> max_tokens,
                                             int sequences) const {
        const auto at = output_tokens_.find({model, key});
        auto one =
            static_cast<std::int64_t>(at == output_tokens_.end() ? kOutputFirst : at->second);
        if (max_tokens) one = std::min(one, *max_tokens);
        return std::max<std::int64_t>(1, one) * sequences;
    }

    void on_prompt(const std::string& model, std::size_t bytes, std::int64_t tokens) {
        if (tokens <= 0 || bytes == 0) return;
        const double seen = static_cast<double>(bytes) / static_cast<double>(tokens);
        follow(bytes_per_token_, model, kBytesFirst, std::clamp(seen, kBytesMin, kBytesMax));
    }

    /// `tokens` of one answer: of several to one request, their mean.
    void on_output(const std::string& model, KeyId key, std::int64_t tokens) {
        follow(output_tokens_, std::pair(model, key), kOutputFirst,
               static_cast<double>(std::clamp<std::int64_t>(tokens, 0, kOutputMax)));
    }

private:
    static constexpr double kWeight = 0.1;  // about the last ten requests
    static constexpr double kBytesFirst = 3.5;
    static constexpr double kOutputFirst = 256;
    static constexpr std::int64_t kOutputMax = 1 << 24;  // no answer is longer
    // Bodies carry JSON around the text, so a short prompt shows many bytes per token; beyond these
    // bounds a single odd request would spoil the average.
    static constexpr double kBytesMin = 0.5;
    static constexpr double kBytesMax = 32;

    template <class Averages, class Name>
    static void follow(Averages& averages, const Name& name, double first, double seen) {
        if (averages.size() >= kAveragesMax && !averages.contains(name)) return;
        double& average = averages.try_emplace(name, first).first->second;
        average += kWeight * (seen - average);
    }

    std::map<std::string, double> bytes_per_token_;
    std::map<std::pair<std::string, KeyId>, double> output_tokens_;
};

}  // namespace router
