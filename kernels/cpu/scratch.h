// Work memory of a step, reserved once by `prepare`.
//
// Pages are touched on use only, so the sizes may be those of the worst case. What depends on a
// model's head sizes is bounded by its largest matrix input: the heads of an attention or delta-net
// layer together are the inputs of its output projection.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/sampling.h"

namespace kernels::cpu {

/// One thread's own.
struct ThreadScratch {
    std::uint8_t* panel = nullptr;        // [kPanelBytes]
    float* tile[2] = {nullptr, nullptr};  // [kColumnBlock, kTileStride] each: gate and up
    float* work = nullptr;                // [work_values]
    double* work_double = nullptr;        // [work_values], only with the double accumulator
    SampleScratch sampling;
};

struct Scratch {
    std::int64_t rows = 0;            // of a step, at most
    std::int64_t inputs_max = 0;      // a multiple of 32
    std::int64_t work_values = 0;     // floats of a thread's `work`
    std::uint8_t* records = nullptr;  // [rows] records of inputs_max values at most
    float* floats = nullptr;          // [rows, inputs_max]
    double* doubles = nullptr;        // [rows, inputs_max], only with the double accumulator
    std::vector<ThreadScratch> threads;

    void reserve(const StepLimits& limits, int thread_count, bool with_doubles, Arena& arena);
};

}  // namespace kernels::cpu
