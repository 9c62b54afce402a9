// Times, only worth printing when the checks have passed: what the card can read, and how much of
// it a linear operation of the 27B reaches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/perf/kernel_gate_pair.h"

namespace kernels::gate {

struct ReadRate {
    std::int64_t bytes = 0;
    double seconds = 0.0;  // median
    double rate() const { return static_cast<double>(bytes) / seconds; }
};

struct LinearTime {
    std::string name;
    std::string type;
    std::int64_t n = 0, k = 0;
    int rows = 0;
    std::int64_t bytes = 0;  // of weights
    double seconds = 0.0;    // median
    double spread = 0.0;     // (90th - 10th percentile) / median
    double ceiling = 0.0;    // B(bytes), measured in this run
    double rate() const { return static_cast<double>(bytes) / seconds; }
};

/// Copies of the 27B's large matrices, cold in turn. Packs at construction.
class LinearBench {
public:
    explicit LinearBench(Pair& pair);
    void run();
    /// Nothing may be faster than the card reads.
    bool is_plausible() const;
    void print() const;
    nlohmann::json to_json() const;

private:
    struct Shape {
        std::string name;
        DType dtype;
        std::int64_t n, k;
        std::vector<MatrixView> copies;  // together at least 200 MB
    };
    std::int64_t bytes_read(const Shape& shape) const;
    void measure_reads();
    void measure_linear(const Shape& shape, int rows);

    Pair& pair_;
    TensorView memory_;  // what read_stream reads
    std::vector<Shape> shapes_;
    std::vector<ReadRate> reads_;
    std::vector<LinearTime> times_;
};

}  // namespace kernels::gate
