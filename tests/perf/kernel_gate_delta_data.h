// Parts of the delta net's cases: forms, inputs and memory, a step on the CPU, steps on the GPU.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/kernel/kernel_support.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {

struct NetForm {
    std::int32_t n_k, n_v, state_size;
    std::int32_t conv_kernel = 4;
    HeadOrder order = HeadOrder::kTiled;
    std::int64_t conv_dim() const { return std::int64_t{2 * n_k + n_v} * state_size; }
    std::int64_t value_dim() const { return std::int64_t{n_v} * state_size; }
    std::int64_t replay_row() const { return std::int64_t{n_k + n_v} * state_size + n_v; }
    std::int32_t ring_spare = 1;  // rows above what the seam asks for
    std::int64_t ring() const { return conv_kernel + kDrafts + ring_spare; }
    std::string text() const;
    /// Sequences of more than 16 rows go to delta_chunk.
    bool has_chunk() const { return state_size == 128 && conv_kernel == 4 && n_v / n_k <= 4; }
    static constexpr std::int64_t kDrafts = 4;
};

inline constexpr std::int64_t kNetSlots = 20;
// State and outputs are f32 on both sides, the reference rounds the state once a row.
inline constexpr double kNetLimit = 1e-5;
// Products in three bfloat16 terms leave 1e-5 each.
inline constexpr double kChunkLimit = 1e-4;

/// Inputs of a step and the memory before it.
struct NetData {
    NetForm form;
    std::int64_t rows;
    std::vector<float> u, z, beta, alpha, conv_w, dt_bias, a, norm, state, conv_ring, replay;

    NetData(const NetForm& f, std::int64_t row_count, std::uint64_t seed);
};

struct NetResult {
    std::vector<float> y, state, conv_ring, replay;
    bool guards_are_intact = true;
};

/// A step and the first row of the inputs it takes.
struct NetPiece {
    test::Step step;
    std::int64_t begin = 0;
};
std::vector<NetPiece> one_piece(const std::vector<test::SequencePart>& parts);
/// One sequence in slot 2, fresh, in steps of so many rows.
std::vector<NetPiece> pieces_of(const std::vector<std::int32_t>& lengths);

NetResult run_cpu(Pair& pair, NetData& data, const test::Step& step);
NetResult run_cuda(Pair& pair, NetData& data, const std::vector<NetPiece>& pieces);

/// Complains where the two differ in any bit.
void compare(const NetResult& a, const NetResult& b, const std::string& what, CaseResult& result);
/// Whether slot `index` of `now`, which holds all slots, is as in `before`.
bool is_same_slot(const std::vector<float>& now, const std::vector<float>& before, int index);
void complain_of_touched(const NetResult& result, const NetData& data, int slot,
                         CaseResult& complaints);

/// One step on both, on the device twice: errors seen, the ring bit for bit, guards intact, slots
/// `untouched` as before, both runs equal.
void check_step(Pair& pair, NetData& data, const std::vector<test::SequencePart>& parts,
                std::initializer_list<int> untouched, CaseResult& result);

}  // namespace kernels::gate
