// What each launch of a step takes, in the company it has there.
//
// The first n launches as one graph, for every n: launch n takes what the graph grows by. Launches
// overlap by programmatic dependent launch, so a kernel alone between events would take longer than
// it adds to a step; these times add up to the step.
#pragma once

#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/launch_list.h"

namespace kernels::cuda {

/// Runs each prefix `repeats` times: what the launches change is changed that often. A time may be
/// below zero by the noise of two medians.
std::vector<CudaLaunchTime> time_launches(const Driver& driver, KernelSet& kernels,
                                          LaunchList& list, StreamHandle stream, int repeats);

}  // namespace kernels::cuda
