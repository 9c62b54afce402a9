#include "kernels/cuda/step_timeline.h"

#include <algorithm>

#include "kernels/cuda/graph_timer.h"

namespace kernels::cuda {
namespace {

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

std::vector<CudaLaunchTime> time_launches(const Driver& driver, KernelSet& kernels,
                                          LaunchList& list, StreamHandle stream, int repeats) {
    constexpr int kWarmups = 2;
    std::vector<CudaLaunchTime> times;
    double before = 0.0;
    for (std::size_t count = 1; count <= list.launches().size(); ++count) {
        const double until = median(time_graph(
            driver, stream, [&] { kernels.enqueue(list, stream, count); }, {kWarmups, repeats}));
        const Launch& launch = list.launches()[count - 1];
        times.push_back({.kernel = kernel_names()[static_cast<std::size_t>(launch.id)].symbol,
                         .blocks = launch.grid.x * launch.grid.y,
                         .seconds = until - before});
        before = until;
    }
    return times;
}

}  // namespace kernels::cuda
