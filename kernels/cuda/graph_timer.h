// What a stream is given as a graph; and timed so: captured once, launched many times, so that the
// host is out of the picture.
#pragma once

#include <functional>
#include <vector>

#include "kernels/cuda/handles.h"

namespace kernels::cuda {

/// What `enqueue` puts into the stream, as a graph. Throws CudaError.
GraphExec capture_graph(const Driver& driver, StreamHandle stream,
                        const std::function<void()>& enqueue);

struct GraphRuns {
    int warmups = 0;
    int repeats = 0;
};

/// Seconds of each repeat, in order. Throws CudaError.
std::vector<double> time_graph(const Driver& driver, StreamHandle stream,
                               const std::function<void()>& enqueue, GraphRuns runs);

}  // namespace kernels::cuda
