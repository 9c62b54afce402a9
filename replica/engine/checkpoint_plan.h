// Where a prompt's recurrent state is worth keeping: a pure choice.
//
//   system, tools | user | reply | user | reply | user | reply begins      | = a boundary
//                 ▲                             ▲      ▲
//                 first                   the last two       and every kCheckpointStride tokens of
//                                                            what lies between
//
// Requests that come later part from this one at a boundary: another user at the first, a changed
// question at the second last, the next turn at the last (the text behind it, the opening of the
// reply, is often rendered otherwise once the reply is history). The end of the reply itself is
// kept when the sequence ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace replica {

/// Less than this is computed again faster than it is looked after.
inline constexpr std::int32_t kCheckpointTokensMin = 8;
/// Closer together than this they are worth one; but the first boundary, which most requests share,
/// and the place of a parting stay whatever follows.
inline constexpr std::int32_t kCheckpointGapMin = 16;
/// So much of a long text is lost at most when a request parts from it between boundaries.
inline constexpr std::int32_t kCheckpointStride = 4096;
/// A boundary so near to the end stands for the end.
inline constexpr std::int32_t kNearEndTokens = 64;

struct CheckpointQuestion {
    std::span<const std::int32_t> boundaries;  // ascending
    std::int32_t prompt_tokens = 0;
    std::int32_t cached_tokens = 0;  // there already
    /// Here another text has parted from this one, boundary or not: others may, too. 0 = nowhere.
    std::int32_t parting_tokens = 0;
    bool shares_prompt = false;  // other choices resume one token before the end
};

/// Positions, ascending, all within (cached_tokens, prompt_tokens - 1].
std::vector<std::int32_t> plan_checkpoints(const CheckpointQuestion& question);

}  // namespace replica
