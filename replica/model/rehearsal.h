// Steps made ready before the first request, so that none of the first ones pays for it: on a GPU a
// step's launches become a graph, which takes milliseconds each.
//
//     decoding      1 .. n sequences, a row each
//     speculation   1 .. m sequences: verify 1 + d rows each; drafts behind 1 .. 1 + d accepted
//                   rows; drafts behind drafts
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace replica {

/// `sequences` with `rows` each, all of which draw in the trunk; in a draft the last of each does.
struct Rehearsal {
    kernels::StepProgram program = kernels::StepProgram::kTrunk;
    std::int32_t sequences = 0;
    std::int32_t rows = 0;
    bool operator==(const Rehearsal&) const = default;
};

struct RehearsalQuery {
    std::int32_t sequences = 0;         // that decode at once
    std::int32_t draft_tokens_max = 0;  // 0 = no speculation
    std::int32_t draft_batch_max = 0;
    std::int32_t rows_max = 64;    // of a step
    std::int32_t logit_rows = 64;  // of a step
    std::int32_t steps_max = 0;
};
/// In order of likelihood: plain decoding, few sequences first, then speculation.
std::vector<Rehearsal> plan_rehearsals(const RehearsalQuery& query);

/// The descriptor of a rehearsal, whose counts mean something and whose contents do not.
class RehearsedStep {
public:
    explicit RehearsedStep(const Rehearsal& rehearsal);
    kernels::StepDescriptor descriptor() const;

private:
    std::int32_t logit_rows_ = 0;
    std::vector<std::int32_t> rows_, seqs_, row_begin_;  // zeros, zeros, rows of each in order
    std::vector<std::uint8_t> commit_;
    std::vector<kernels::SamplingRow> sampling_;
};

}  // namespace replica
