#include "kernels/cuda/graph_timer.h"

namespace kernels::cuda {
namespace {

constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

}  // namespace

GraphExec capture_graph(const Driver& driver, StreamHandle stream,
                        const std::function<void()>& enqueue) {
    GraphHandle handle = nullptr;
    check_cuda(driver, driver.stream_begin_capture(stream, kCaptureThreadLocal), "capture");
    enqueue();
    check_cuda(driver, driver.stream_end_capture(stream, &handle), "end of capture");
    const Graph graph(driver, handle);
    GraphExecHandle exec = nullptr;
    check_cuda(driver, driver.graph_instantiate(&exec, graph.get(), 0), "graph");
    return GraphExec(driver, exec);
}

std::vector<double> time_graph(const Driver& driver, StreamHandle stream,
                               const std::function<void()>& enqueue, GraphRuns runs) {
    const GraphExec exec = capture_graph(driver, stream, enqueue);
    const Event begin = make_event(driver);
    const Event end = make_event(driver);
    std::vector<double> seconds;
    for (int i = 0; i < runs.warmups + runs.repeats; ++i) {
        check_cuda(driver, driver.event_record(begin.get(), stream), "event");
        check_cuda(driver, driver.graph_launch(exec.get(), stream), "graph launch");
        check_cuda(driver, driver.event_record(end.get(), stream), "event");
        check_cuda(driver, driver.event_synchronize(end.get()), "graph");
        float ms = 0.0F;
        check_cuda(driver, driver.event_elapsed_ms(&ms, begin.get(), end.get()), "event");
        if (i >= runs.warmups) seconds.push_back(static_cast<double>(ms) * 1e-3);
    }
    return seconds;
}

}  // namespace kernels::cuda
