// The shapes every kernel test runs over: edges of the tiles, the demo model, a large real one.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/quant/format.h"
#include "kernels/tensor.h"

namespace kernels::test {

/// Types of weights a linear operation must read.
inline constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,  DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,
                                         DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,  DType::kQ5_K,
                                         DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

inline bool is_float_type(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

struct LinearShape {
    std::int64_t n;
    std::int64_t k;
    int m;
};

/// Rows of a step: every remainder of a column block of 1..8, one more than two blocks of 16 and
/// 32, one more than the 64 columns of a pass.
inline constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 65};

/// Outputs around the tile of 16.
inline constexpr std::int64_t kOutputCounts[] = {1, 8, 12, 15, 16, 17};

/// Shapes legal for the type: K is a whole number of its blocks.
inline std::vector<LinearShape> linear_shapes(DType dtype) {
    const std::int64_t block = format_of(dtype).block_values;
    // One record; widths of SmolLM2 and Qwen2.5-0.5B, which no block of 256 divides.
    std::vector<std::int64_t> inputs = {block};
    for (const std::int64_t k : {576, 896, 960, 256, 768})
        if (k % block == 0) inputs.push_back(k);
    if (block == 1) inputs.push_back(33);  // no whole vector
    std::vector<LinearShape> shapes;
    for (const std::int64_t k : inputs)
        for (const std::int64_t n : kOutputCounts)
            shapes.push_back({n, k, n == 17 ? 5 : 1});
    for (const int m : kRowCounts)
        shapes.push_back({37, 768, m});
    shapes.push_back({2048, 256, 2});  // the demo model's in-projection and its way down
    shapes.push_back({256, 1024, 3});
    shapes.push_back({48, 17408, 2});  // 27B, ffn_down, a slice of its outputs
    return shapes;
}

/// 9B, ffn_gate: whole, for one type.
inline constexpr LinearShape kLargeShape = {12288, 4096, 2};

}  // namespace kernels::test
