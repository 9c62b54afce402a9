// Measured times from which prefill_plan reads its crossovers: microseconds of a linear operation
// by matmul_mma in passes, and by de-quantising and cuBLASLt, cold weights.
//
// Card: NVIDIA H200, 132 multiprocessors, driver 580.159, cuBLASLt 13.1, 2026-11-30. Made by
// `kernel-gate --only prefill --json FILE`, which prints these rows; to be measured again when
// either path changes.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kernels::cuda {

inline constexpr std::int64_t kPrefillRows[] = {32, 64, 128, 256};

struct PrefillMeasured {
    DType dtype;
    std::int64_t n, k;
    float matmul_us[4];  // at kPrefillRows
    float cublaslt_us[4];
};

inline constexpr PrefillMeasured kPrefillTable[] = {
    {DType::kIQ4_XS,
     34816,
     5120,
     {71.3F, 116.0F, 231.6F, 464.6F},
     {376.6F, 381.6F, 396.5F, 444.2F}},
    {DType::kIQ4_XS, 16384, 5120, {42.4F, 68.8F, 136.2F, 272.7F}, {177.9F, 179.5F, 180.1F, 194.9F}},
    {DType::kIQ4_XS,
     5120,
     17408,
     {61.1F, 101.6F, 202.8F, 427.2F},
     {195.5F, 198.3F, 204.0F, 221.1F}},
    {DType::kIQ4_XS, 14336, 5120, {40.5F, 65.4F, 129.8F, 260.3F}, {160.6F, 160.4F, 162.4F, 179.7F}},
    {DType::kIQ4_XS, 5120, 6144, {45.2F, 79.0F, 155.8F, 312.3F}, {79.0F, 82.6F, 81.6F, 89.8F}},
    {DType::kQ6_K, 5120, 6144, {50.4F, 84.0F, 167.2F, 337.4F}, {77.6F, 81.4F, 77.7F, 87.1F}},
    {DType::kQ5_K, 5120, 6144, {50.5F, 84.4F, 168.9F, 339.0F}, {46.2F, 50.2F, 52.1F, 58.7F}},
    {DType::kQ4_K, 5120, 6144, {46.5F, 80.7F, 161.8F, 324.0F}, {82.0F, 86.1F, 84.8F, 93.4F}},
    {DType::kQ8_0, 5120, 6144, {45.8F, 77.9F, 157.0F, 316.4F}, {62.3F, 67.4F, 68.2F, 74.9F}},
    {DType::kQ4_0, 5120, 6144, {44.4F, 78.1F, 155.0F, 309.7F}, {82.1F, 86.9F, 85.8F, 94.6F}},
    {DType::kIQ4_NL, 5120, 6144, {44.5F, 78.5F, 156.5F, 314.3F}, {82.6F, 87.0F, 86.0F, 94.7F}},
    {DType::kF16, 5120, 6144, {358.0F, 661.4F, 1309.0F, 2606.4F}, {57.0F, 61.6F, 61.7F, 67.6F}},
    {DType::kBF16, 5120, 6144, {355.8F, 659.0F, 1306.4F, 2605.5F}, {57.0F, 61.3F, 61.3F, 67.4F}},
    {DType::kQ4_1, 5120, 6144, {302.7F, 563.6F, 1123.6F, 2260.3F}, {51.4F, 55.9F, 56.6F, 63.0F}},
    {DType::kQ5_0, 5120, 6144, {301.5F, 561.6F, 1127.1F, 2265.8F}, {53.8F, 58.1F, 58.8F, 65.5F}},
    {DType::kQ5_1, 5120, 6144, {306.0F, 570.1F, 1140.4F, 2298.2F}, {55.1F, 59.4F, 60.1F, 66.6F}},
    {DType::kQ2_K, 5120, 6144, {299.0F, 555.6F, 1107.3F, 2209.0F}, {52.6F, 56.9F, 57.7F, 65.1F}},
    {DType::kQ3_K, 5120, 6144, {310.6F, 588.4F, 1161.1F, 2304.8F}, {60.6F, 65.3F, 66.0F, 73.3F}},
};

}  // namespace kernels::cuda
