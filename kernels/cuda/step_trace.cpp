#include "kernels/cuda/step_trace.h"

namespace kernels::cuda {

void StepTrace::record(StreamHandle stream) {
    if (recorded_ == events_.size()) events_.push_back(make_event(driver_));
    check_cuda(driver_, driver_.event_record(events_[recorded_].get(), stream), "event");
    ++recorded_;
}

void StepTrace::begin(StreamHandle stream) {
    recorded_ = 0;
    names_.clear();
    record(stream);
}

void StepTrace::after(std::string_view name, StreamHandle stream) {
    names_.push_back(name);
    record(stream);
}

std::vector<TracedLaunch> StepTrace::end() {
    std::vector<TracedLaunch> launches;
    if (recorded_ == 0) return launches;
    check_cuda(driver_, driver_.event_synchronize(events_[recorded_ - 1].get()), "event");
    for (std::size_t i = 0; i < names_.size(); ++i) {
        float ms = 0.0F;
        check_cuda(driver_, driver_.event_elapsed_ms(&ms, events_[i].get(), events_[i + 1].get()),
                   "event");
        launches.push_back({names_[i], static_cast<double>(ms) * 1e3});
    }
    recorded_ = 0;
    names_.clear();
    return launches;
}

}  // namespace kernels::cuda
