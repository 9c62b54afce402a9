#include "replica/engine/draft_policy.h"

#include <algorithm>
#include <cassert>

namespace replica {
namespace {

/// What is assumed of a draft before anything was measured, and how many drafts that weighs.
constexpr double kPriorAcceptance = 0.7;
constexpr double kPriorWeight = 8.0;
/// All requests together forget with a half-life of some 350 rounds.
constexpr double kMemory = 0.998;

}  // namespace

void Acceptance::record(std::int32_t drafted_count, std::int32_t accepted_count) {
    assert(accepted_count <= drafted_count && drafted_count <= kDraftTokensMax);
    for (std::size_t i = 0; i < static_cast<std::size_t>(drafted_count); ++i) {
        ++drafted[i];
        if (i < static_cast<std::size_t>(accepted_count)) ++accepted[i];
    }
}

DraftPolicy::DraftPolicy(Bounds bounds)
    : bounds_(bounds), trunk_(bounds.rows_max), drafting_(std::max(bounds.batch_max, 0)) {
    assert(bounds.draft_tokens_max >= 0 && bounds.draft_tokens_max <= kDraftTokensMax);
}

void DraftPolicy::record_drafting(std::int32_t sequences, std::int32_t drafts, Seconds time) {
    if (drafts > 0) drafting_.record(sequences, time / drafts);
}

void DraftPolicy::record_acceptance(std::int32_t drafted, std::int32_t accepted) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(drafted); ++i) {
        const auto place = static_cast<std::int32_t>(i);
        if (place > accepted) break;  // nobody knows whether this one would have come true
        reached_[i] = reached_[i] * kMemory + 1;
        accepted_[i] = accepted_[i] * kMemory + (place < accepted ? 1 : 0);
    }
}

std::int32_t DraftPolicy::choose(std::span<const Acceptance* const> batch) {
    const auto sequences = static_cast<std::int32_t>(batch.size());
    if (batch.empty() || sequences > bounds_.batch_max) return 0;
    const std::int32_t most = std::min(bounds_.draft_tokens_max, bounds_.rows_max / sequences - 1);
    if (most <= 0) return 0;
    if (bounds_.is_always_on) return most;

    ++rounds_;
    // First of all each batch size shows what a plain round takes, and a full one.
    if (trunk_.measured(sequences) < kMeasurementsMin) return 0;
    if (trunk_.measured(sequences * (most + 1)) < kMeasurementsMin) return most;
    if (rounds_ - decided_at_ >= kDecideRounds || decided_for_ != batch.size()) decide(batch);
    const bool probes = rounds_ % kProbeRounds == 0;
    if (probes) return drafts_ == 0 ? 1 : 0;
    return std::min(drafts_, most);
}

void DraftPolicy::decide(std::span<const Acceptance* const> batch) {
    decided_at_ = rounds_;
    decided_for_ = batch.size();
    const auto sequences = static_cast<std::int32_t>(batch.size());
    std::int32_t best = 0;
    double best_gain = 0;
    for (std::int32_t n = 1; n <= bounds_.draft_tokens_max; ++n) {
        double tokens = 0;
        for (const Acceptance* request : batch)
            tokens += yield(*request, n);
        const double gain = tokens / static_cast<double>(sequences) / cost(sequences, n);
        if (gain <= best_gain) continue;
        best_gain = gain;
        best = n;
    }
    gain_ = best_gain;
    cost_ = cost(sequences, best);
    const double threshold = drafts_ > 0 ? kStopGain : kStartGain;
    drafts_ = best_gain >= threshold ? best : 0;
}

double DraftPolicy::cost(std::int32_t sequences, std::int32_t drafts) const {
    const double plain = trunk_.estimate(sequences).value().count();
    const double verify = trunk_.estimate(sequences * (drafts + 1)).value().count();
    const double draft = drafting_.estimate(sequences).value_or(Seconds::zero()).count();
    return (verify + drafts * draft) / plain;
}

double DraftPolicy::yield(const Acceptance& request, std::int32_t drafts) const {
    double tokens = 1;
    double all_true = 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(drafts); ++i) {
        // Given those before it: draft i was put to the test when draft i - 1 came true.
        const double tested =
            i == 0 ? request.drafted[0] : std::min(request.accepted[i - 1], request.drafted[i]);
        const double alpha =
            (request.accepted[i] + kPriorWeight * prior(i)) / (tested + kPriorWeight);
        all_true *= alpha;
        tokens += all_true;
    }
    return tokens;
}

double DraftPolicy::prior(std::size_t position) const {
    return (accepted_[position] + kPriorWeight * kPriorAcceptance) /
           (reached_[position] + kPriorWeight);
}

std::array<double, kDraftTokensMax> DraftPolicy::acceptance() const {
    std::array<double, kDraftTokensMax> alpha{};
    for (std::size_t i = 0; i < alpha.size(); ++i)
        alpha[i] = reached_[i] > 0 ? accepted_[i] / reached_[i] : 0.0;
    return alpha;
}

}  // namespace replica
