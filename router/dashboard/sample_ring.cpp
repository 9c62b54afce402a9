#include "router/dashboard/sample_ring.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace router {
namespace {

/// Tokens between two readings. A process that was not there before adds nothing: where it began to
/// count is not known.
struct TokenGrowth {
    double prompt = 0;
    double generated = 0;
};

TokenGrowth growth_between(const std::map<int, TokenReading>& before,
                           const std::map<int, TokenReading>& after) {
    TokenGrowth growth;
    for (const auto& [index, now] : after) {
        const auto then = before.find(index);
        if (then == before.end() || then->second.instance != now.instance) continue;
        // Reports come in order, so neither number falls; one that does would be a foreign error.
        growth.prompt += static_cast<double>(
            now.prompt_tokens - std::min(now.prompt_tokens, then->second.prompt_tokens));
        growth.generated += static_cast<double>(
            now.generated_tokens - std::min(now.generated_tokens, then->second.generated_tokens));
    }
    return growth;
}

}  // namespace

void QuantileWindow::push(const FineHistogram& second) {
    seconds_[next_] = second;
    next_ = (next_ + 1) % kQuantileWindow;
    whole_ = {};
    for (const FineHistogram& one : seconds_) {
        if (one.count() > 0) whole_.merge(one);
    }
}

std::optional<Sample> Sampler::take(Reading reading) {
    ttft_.push(reading.ttft);
    event_gap_.push(reading.event_gap);
    for (std::size_t i = 0; i < kStageCount; ++i)
        overhead_.at(i).push(reading.overhead.at(i));
    if (!last_) {
        last_ = std::move(reading);
        return std::nullopt;
    }
    const double seconds = std::chrono::duration<double>(reading.at - last_->at).count();
    assert(seconds > 0 && "readings follow each other");
    const auto rate = [seconds](double now, double before) {
        return std::max(0.0, now - before) / seconds;
    };
    Sample sample{.number = ++count_, .at = reading.at};
    for (std::size_t i = 0; i < kOutcomeCount; ++i)
        sample.requests.at(i) = rate(reading.requests.at(i), last_->requests.at(i));
    sample.aborts = rate(reading.aborts, last_->aborts);
    sample.retries = rate(reading.retries, last_->retries);
    sample.breaker_openings = rate(reading.breaker_openings, last_->breaker_openings);
    sample.prefix_predicted_tokens =
        rate(reading.prefix_predicted_tokens, last_->prefix_predicted_tokens);
    sample.prefix_confirmed_tokens =
        rate(reading.prefix_confirmed_tokens, last_->prefix_confirmed_tokens);
    const TokenGrowth tokens = growth_between(last_->tokens, reading.tokens);
    sample.prompt_tokens = tokens.prompt / seconds;
    sample.generated_tokens = tokens.generated / seconds;
    sample.inflight = reading.inflight;
    sample.ttft_p50_s = ttft_.quantile(0.5);
    sample.ttft_p95_s = ttft_.quantile(0.95);
    sample.event_gap_p50_s = event_gap_.quantile(0.5);
    sample.event_gap_p95_s = event_gap_.quantile(0.95);
    for (std::size_t i = 0; i < kStageCount; ++i)
        sample.overhead_p99_s.at(i) = overhead_.at(i).quantile(0.99);
    last_ = std::move(reading);
    return sample;
}

void SampleRing::push(Sample sample) {
    assert(sample.number == count_ + 1 && "samples are numbered without a gap");
    ++count_;
    if (samples_.size() < kSamplesMax) {
        samples_.push_back(std::move(sample));
    } else {
        samples_.at((count_ - 1) % kSamplesMax) = std::move(sample);
    }
}

std::vector<const Sample*> SampleRing::after(std::uint64_t number) const {
    std::vector<const Sample*> found;
    if (number >= count_) return found;
    const std::uint64_t oldest = count_ - samples_.size();  // the number before the oldest one
    for (std::uint64_t n = std::max(number, oldest) + 1; n <= count_; ++n)
        found.push_back(&samples_.at((n - 1) % kSamplesMax));
    return found;
}

}  // namespace router
