// How rows of logits are drawn from on the device: what host and kernel share.
//
// A cluster of blocks owns a row and keeps its logits in shared memory, a contiguous stretch of ids
// a block, a contiguous run of ids a thread.
#pragma once

#include <cstdint>

namespace kernels::cuda {

inline constexpr int kSampleBlocks = 8;      // of a cluster
inline constexpr int kSampleThreads = 1024;  // of a block; also the bins of its histogram
inline constexpr int kSampleListMax = 4096;  // candidates that one block sorts
inline constexpr int kSampleIdsMax = 41;     // of a thread: what shared memory holds beside lists
inline constexpr int kSampleEditsMax = 1 << 18;  // of a step: changed logits of all rows

/// Ids of a thread: odd, so that threads reading their own do not meet in a bank.
constexpr std::int64_t sample_ids(std::int64_t vocabulary) {
    constexpr std::int64_t kThreads = std::int64_t{kSampleBlocks} * kSampleThreads;
    return (vocabulary + kThreads - 1) / kThreads | 1;
}
/// Dynamic shared memory: logits, then 40 bytes of lists and bins for each thread and list entry.
constexpr std::int64_t sample_shared_bytes(std::int64_t vocabulary) {
    return sample_ids(vocabulary) * kSampleThreads * 4 + std::int64_t{kSampleListMax} * 8 +
           std::int64_t{kSampleThreads} * 24 + 1024;
}

/// One row's rules (kernels/sampling.h), flattened.
struct SampleRow {
    double uniform;             // of the draw
    float inverse_temperature;  // 0 = greedy
    float top_p;                // 1 and above = off
    float min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    std::int32_t top_k;  // 0 = off
    std::int32_t edit_begin, edit_count;
};

/// What bias, penalties and bans do to one token of one row; a row's tokens differ.
struct LogitEdit {
    std::int32_t token;
    float bias;              // minus infinity bans
    std::int32_t generated;  // times the token was generated
    std::int32_t occurred;   // and those in the prompt
};

/// Rules of a step: SampleRow [logit_rows], then LogitEdit [kSampleEditsMax].
constexpr std::int64_t sample_edits_at(std::int64_t logit_rows) {
    return logit_rows * static_cast<std::int64_t>(sizeof(SampleRow));
}
constexpr std::int64_t sample_rules_bytes(std::int64_t logit_rows) {
    return sample_edits_at(logit_rows) +
           std::int64_t{kSampleEditsMax} * static_cast<std::int64_t>(sizeof(LogitEdit));
}
/// What comes back: tokens [logit_rows], statuses [logit_rows].
constexpr std::int64_t sample_drawn_bytes(std::int64_t logit_rows) {
    return 2 * logit_rows * static_cast<std::int64_t>(sizeof(std::int32_t));
}

enum class SampleStatus : std::int32_t {
    kDrawn,
    kNoLogit,  // none is finite
    kHost      // too many candidates to sort here: the host draws by the same rules
};

struct SampleParams {
    const SampleRow* rows;
    const LogitEdit* edits;
    const float* logits;  // [rows, *]
    std::int64_t logits_stride;
    std::int32_t vocabulary;  // ids that may be drawn
    std::int32_t ids;         // of a thread
    std::int32_t* tokens;     // [rows]
    std::int32_t* statuses;   // [rows] SampleStatus
};

}  // namespace kernels::cuda
