// Times of attention in a layer of the 27B: decode at many contexts and numbers of sequences, and
// chunks of prompts.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/perf/kernel_gate_pair.h"

namespace kernels::gate {

struct AttentionTime {
    std::int32_t kv_len = 0, seqs = 0, rows = 0;  // rows of each sequence
    std::int64_t bytes = 0;                       // of keys and values
    double seconds = 0.0;                         // median
    double spread = 0.0;                          // (90th - 10th percentile) / median
    double ceiling = 0.0;  // bytes a second that can be read at this size, in this run
    double rate() const { return static_cast<double>(bytes) / seconds; }
};

/// Rows of one prompt behind tokens that are in the pages.
struct AttentionChunkTime {
    std::int32_t kv_before = 0, rows = 0;
    double flops = 0.0;    // 4 D for each row, query head and token it sees
    double seconds = 0.0;  // median, with the writing of K and V
    double spread = 0.0;
    double rate() const { return flops / seconds; }
};

/// Pages of many layers, cold in turn. Allocates at construction.
class AttentionBench {
public:
    explicit AttentionBench(Pair& pair);
    void run();
    /// Nothing may be faster than the card reads and its tensor cores multiply.
    bool is_plausible() const;
    void print() const;
    nlohmann::json to_json() const;

private:
    double measure_read(std::int64_t bytes);
    void measure(std::int32_t kv_len, std::int32_t seqs, std::int32_t rows);
    void measure_chunk(std::int32_t kv_before, std::int32_t rows);

    Pair& pair_;
    TensorView k_pages_, v_pages_;  // [pages, n_kv, block_tokens, D]
    double best_read_ = 0.0;
    std::vector<AttentionTime> times_;
    std::vector<AttentionChunkTime> chunk_times_;
};

}  // namespace kernels::gate
