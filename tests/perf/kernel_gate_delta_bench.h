// Times of the delta net, beside what the card can copy: the layers of the 9B and 27B for decode,
// verify and prefill.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/perf/kernel_gate_pair.h"

namespace kernels::gate {

struct DeltaNetTime {
    std::string model;
    std::string work;        // decode, verify, prefill
    int seqs = 0, rows = 0;  // rows of a sequence
    std::int64_t bytes = 0;  // states, read and written once; prefill: inputs and outputs too
    double products = 0.0;   // floating-point operations of delta_chunk's products, all terms
    double chained = 0.0;    // seconds, one launch behind the other, overlapping as they may
    double alone = 0.0;      // seconds, between launches that do not overlap it; 0 = not taken
    double spread = 0.0;     // of chained: (90th - 10th percentile) / median
};

class DeltaNetBench {
public:
    explicit DeltaNetBench(Pair& pair);
    void run();
    /// States cannot move faster than a copy.
    bool is_plausible() const;
    void print() const;
    nlohmann::json to_json() const;

private:
    struct Model {
        std::string name;
        std::int32_t n_k, n_v;
    };
    struct Work {
        std::string name;
        int seqs, rows, replays;
        bool commits;
    };
    void measure_copy();
    void measure(const Model& model, const Work& work);

    Pair& pair_;
    TensorView memory_;  // states of all layers and sequences; halves for the copy
    double copy_rate_ = 0.0;
    std::vector<DeltaNetTime> times_;
};

}  // namespace kernels::gate
