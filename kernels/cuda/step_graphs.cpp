#include "kernels/cuda/step_graphs.h"

#include <algorithm>

namespace kernels::cuda {
namespace {

constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

}  // namespace

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

void StepGraphs::capture(Entry& entry, StreamHandle stream) {
    GraphHandle handle = nullptr;
    check_cuda(driver_, driver_.stream_begin_capture(stream, kCaptureThreadLocal), "capture");
    kernels_.enqueue(entry.list, stream);
    check_cuda(driver_, driver_.stream_end_capture(stream, &handle), "end of capture");
    const Graph graph(driver_, handle);
    GraphExecHandle exec = nullptr;
    check_cuda(driver_, driver_.graph_instantiate(&exec, graph.get(), 0), "graph");
    entry.exec = GraphExec(driver_, exec);
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
    if (entry.exec.get() == nullptr) capture(entry, stream);
    check_cuda(driver_, driver_.graph_launch(entry.exec.get(), stream), "graph launch");
    ++replays_;
}

}  // namespace kernels::cuda
