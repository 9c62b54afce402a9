// How many tokens to draft: what has been measured decides.
//
//   E(n) = 1 + sum over i of alpha_1 .. alpha_i      tokens a round yields for one sequence
//   C(n) = (t(b (n + 1)) + n t_draft(b)) / t(b)      what it costs, in plain steps of b sequences
//   gain = E / C                                     draft the n that maximises it
//
// t is the trunk's time by rows, t_draft that of one draft of the batch, alpha_j how often draft j
// is accepted given those before it: of the request, leaning on all requests while it is young.
// Every kDecideRounds rounds the choice is made anew; drafting stops below kStopGain and starts
// above kStartGain. What is not in use is probed now and then, so that the choice can change.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "replica/engine/row_times.h"
#include "replica/engine/step_runner.h"

namespace replica {

inline constexpr std::int32_t kDecideRounds = 16;
inline constexpr std::int32_t kProbeRounds = 64;
inline constexpr double kStopGain = 1.05;
inline constexpr double kStartGain = 1.10;
/// Fewer measurements than this decide nothing.
inline constexpr std::int32_t kMeasurementsMin = 3;

/// Drafts of one sequence by position: how many were verified, and how many accepted with all
/// before them.
struct Acceptance {
    std::array<std::int32_t, kDraftTokensMax> drafted{}, accepted{};
    /// `accepted` of `drafted` drafts of one round came true.
    void record(std::int32_t drafted_count, std::int32_t accepted_count);
};

/// Engine thread only. Time enters as an argument.
class DraftPolicy {
public:
    using Seconds = std::chrono::duration<double>;
    struct Bounds {
        std::int32_t draft_tokens_max = 0;  // 0 = never
        std::int32_t batch_max = 0;         // of more sequences none drafts
        std::int32_t rows_max = 0;          // of a step
        bool is_always_on = false;          // without looking at the gain
    };
    explicit DraftPolicy(Bounds bounds);

    /// A step without prompt rows: plain or verifying.
    void record_trunk(std::int32_t rows, Seconds time) { trunk_.record(rows, time); }
    /// `drafts` drafts for each of `sequences`.
    void record_drafting(std::int32_t sequences, std::int32_t drafts, Seconds time);
    void record_acceptance(std::int32_t drafted, std::int32_t accepted);

    /// Drafts for the next round of the sequences that decode now. Called once a round.
    std::int32_t choose(std::span<const Acceptance* const> batch);

    const RowTimes& trunk_times() const { return trunk_; }
    /// Of the last decision; 0 before it.
    double cost_ratio() const { return cost_; }
    double gain_ratio() const { return gain_; }
    /// alpha_j over all requests.
    std::array<double, kDraftTokensMax> acceptance() const;

private:
    void decide(std::span<const Acceptance* const> batch);
    double cost(std::int32_t sequences, std::int32_t drafts) const;
    double yield(const Acceptance& request, std::int32_t drafts) const;
    double prior(std::size_t position) const;

    Bounds bounds_;
    RowTimes trunk_;
    RowTimes drafting_;                                           // of one draft, by sequences
    std::array<double, kDraftTokensMax> reached_{}, accepted_{};  // forgetting sums
    std::int32_t drafts_ = 0;                                     // in use
    std::int32_t rounds_ = 0;
    std::int32_t decided_at_ = -kDecideRounds;
    std::size_t decided_for_ = 0;  // sequences
    double cost_ = 0;
    double gain_ = 0;
};

}  // namespace replica
