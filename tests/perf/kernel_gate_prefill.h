// Times of products of many tokens: the whole operation by either path, cuBLASLt alone on the same
// shapes in the same run, de-quantising alone. Its first table is prefill_table.h's source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/perf/kernel_gate_pair.h"

namespace kernels::gate {

class PrefillBench {
public:
    explicit PrefillBench(Pair& pair);  // packs
    void run();
    /// Nothing may be faster than the product alone.
    bool is_plausible() const;
    void print() const;
    nlohmann::json to_json() const;

private:
    struct Shape {
        std::string name;
        std::vector<MatrixSource> sources;  // blocks are gone after packing
        Epilogue epilogue;
        MatrixView matrix;
        std::int64_t dequantised_bytes = 0;
        double dequantise_seconds = 0.0;
    };
    struct Time {
        const Shape* shape;
        int rows;
        double path, matmul, alone;  // seconds; matmul 0 = not timed; alone: per slice times slices
        double flops() const;
    };
    double seconds_of(const Shape& shape, int rows, std::int64_t rows_min);

    Pair& pair_;
    std::vector<Shape> shapes_;
    std::vector<Time> times_;
};

}  // namespace kernels::gate
