#include "kernels/cuda/step_graphs.h"

#include <algorithm>

#include "kernels/cuda/graph_timer.h"

namespace kernels::cuda {
StepGraphs::Entry& StepGraphs::entry_of(const LaunchList& list, bool& is_new) {
    const auto found = std::ranges::find(entries_, list, &Entry::list);
    is_new = found == entries_.end();
    if (!is_new) return *found;
    if (entries_.size() < kStepGraphsMax) {
        entries_.emplace_back();
        entries_.back().list = list;
        return entries_.back();
    }
    Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_use);
    oldest.exec = GraphExec();
    oldest.list = list;
    return oldest;
}

void StepGraphs::run(LaunchList& list, std::int32_t rows, StreamHandle stream) {
    if (list.empty()) return;
    kernels_.count(list);
    if (rows > kGraphRowsMax) {
        kernels_.enqueue(list, stream);
        return;
    }
    bool is_new = false;
    Entry& entry = entry_of(list, is_new);
    entry.last_use = ++clock_;
    if (is_new) {
        kernels_.enqueue(list, stream);
        return;
    }
    if (entry.exec.get() == nullptr)
        entry.exec = capture_graph(driver_, stream, [&] { kernels_.enqueue(entry.list, stream); });
    check_cuda(driver_, driver_.graph_launch(entry.exec.get(), stream), "graph launch");
    ++replays_;
}

}  // namespace kernels::cuda
