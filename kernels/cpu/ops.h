// The operations behind the backend, as functions over its parts: fast ones (linear.cpp,
// delta_net.cpp, attention.cpp) and the reference in double precision (reference_*.cpp).
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/matrix.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace kernels::cpu {

/// What every operation works with. Owned by the backend.
struct Context {
    ThreadPool* pool = nullptr;
    Scratch* scratch = nullptr;
    const StepDescriptor* step = nullptr;
    RowKernels rows;
    DeltaKernels delta;
    AttentionKernels attention;

    ThreadScratch& thread(const LoopPart& part) const {
        return scratch->threads[static_cast<std::size_t>(part.thread)];
    }
};

/// A linear operation with its rows spelled out: LinearArgs, or the head on chosen rows.
struct LinearJob {
    const Matrix* matrix = nullptr;
    std::int64_t rows = 0;                  // M
    const std::int32_t* row_map = nullptr;  // [M] rows of x to take; null = 0..M-1
    const float* x = nullptr;               // row i at x + i * x_stride
    std::int64_t x_stride = 0;
    const float* norm_weight = nullptr;  // null = no RMSNorm in front
    float norm_eps = 0.0F;
    const float* bias = nullptr;  // null = none
    Epilogue epilogue = Epilogue::kStore;
    float* y = nullptr;  // row i at y + i * y_stride
    std::int64_t y_stride = 0;

    const float* x_row(std::int64_t m) const {
        return x + (row_map != nullptr ? row_map[m] : m) * x_stride;
    }
    float* y_row(std::int64_t m) const { return y + m * y_stride; }
};

/// Loops of less work than this (multiply-adds) stay on the calling thread: a wake-up costs about
/// a microsecond, in which one thread does some 50,000 of them.
inline constexpr std::int64_t kWorkPerWakeUp = std::int64_t{1} << 16;

void linear(const Context& context, const LinearJob& job);
void delta_net(const Context& context, const DeltaNetArgs& args);
void attention(const Context& context, const AttentionArgs& args);

void reference_linear(const Context& context, const LinearJob& job);
void reference_delta_net(const Context& context, const DeltaNetArgs& args);
void reference_attention(const Context& context, const AttentionArgs& args);

// Shared by the fast and the reference forms.

/// Asserts what must hold of arguments and step.
void check_delta_net(const Context& context, const DeltaNetArgs& args);
std::int64_t key_head_of(const DeltaNetArgs& args, std::int32_t head);
/// Value heads of a key head have its key in common; the first one speaks for it.
bool is_first_of_key_head(const DeltaNetArgs& args, std::int32_t head);
/// Descriptor fields of sequence `s`, or what their absence means.
int replay_rows_of(const StepDescriptor& step, std::int32_t s);
bool commits(const StepDescriptor& step, std::int32_t s);

/// Row `index` of the replay buffer of sequence `s`.
struct ReplayRow {
    float* keys;    // [n_k, S]
    float* deltas;  // [n_v, S]
    float* decays;  // [n_v]
};
ReplayRow replay_row(const StepDescriptor& step, const DeltaNetArgs& args, std::int32_t s,
                     std::int64_t index);
/// Where heads leave the unit keys of row `m` of the step [n_k, S] until all have read the old
/// ones: scratch that no other operation holds at that time.
float* unit_keys(const Context& context, std::int64_t m);

/// Rows of u that meet the taps of row `t` of sequence `s`: [conv_kernel], oldest first, null where
/// the sequence had not begun.
void convolution_taps(const StepDescriptor& step, const DeltaNetArgs& args, std::int32_t s,
                      std::int64_t t, const float** taps);
/// Puts the step's inputs into the convolution rings and the unit keys of rows that do not commit
/// into the replay buffer; after all heads are done.
void store_step_inputs(const Context& context, const DeltaNetArgs& args);

/// Rotates the first n_rot values of a head in place; `rope` holds n_rot/2 cosines, then sines.
template <class Real>
void rotate(Real* head, const float* rope, int n_rot, RopePairing pairing) {
    const int pairs = n_rot / 2;
    for (int i = 0; i < pairs; ++i) {
        const int first = pairing == RopePairing::kHalfSplit ? i : 2 * i;
        const int second = pairing == RopePairing::kHalfSplit ? i + pairs : 2 * i + 1;
        const Real cosine = rope[i];
        const Real sine = rope[pairs + i];
        const Real a = head[first];
        const Real b = head[second];
        head[first] = a * cosine - b * sine;
        head[second] = a * sine + b * cosine;
    }
}

/// Where row `row` of the step lies in its sequence's KV, in tokens.
inline std::int64_t kv_position(const StepDescriptor& step, std::int64_t row) {
    const auto s = static_cast<std::size_t>(step.seq_of_row[static_cast<std::size_t>(row)]);
    return step.kv_len_before[s] + row - step.row_begin[s];
}

inline const std::int32_t* block_table_of(const StepDescriptor& step, std::int64_t row) {
    return step.block_table.data() +
           std::int64_t{step.seq_of_row[static_cast<std::size_t>(row)]} * step.blocks_per_seq_max;
}

/// First element of token `token`, head `head` in a K or V pool [blocks, n_kv, block_tokens, D].
inline std::int64_t kv_offset(const TensorView& pool, const std::int32_t* block_table,
                              std::int64_t token, std::int64_t head) {
    const std::int64_t block_tokens = pool.shape[2];
    const std::int64_t block = block_table[token / block_tokens];
    return block * pool.row_stride + (head * block_tokens + token % block_tokens) * pool.shape[3];
}

}  // namespace kernels::cpu
