// The CPU backend: the reference that runs everywhere, and the one that serves without a GPU.
//
// It computes on the file's own blocks (they are neither copied nor repacked), so replicas of one
// model on one machine share the pages of one file. README.md of this folder walks through it.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace kernels {

enum class CpuAccumulator {
    kFloat,   // serves: activations quantised to int8 per 32 for quantised weights, f32 sums
    kDouble,  // reference: weights decoded exactly, activations not quantised, sums in double
};

struct CpuBackendOptions {
    int threads = 0;         // including the calling one; 0 = the processors this process may use
    std::vector<int> cores;  // processors to pin the threads to, in turn; empty = not pinned
    CpuAccumulator accumulator = CpuAccumulator::kFloat;
};

/// Starts the threads; throws std::runtime_error when a core of the list cannot be had. The first
/// begin_step pins the calling thread (it is thread 0) when `cores` is not empty.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace kernels
