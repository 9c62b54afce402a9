// Where the time of a step goes, kernel by kernel: an event behind every launch.
//
//     event │ launch │ event │ launch │ event      a launch's time = from the event in front of it
//
// Launches then stand alone: none overlaps the one in front of it and none is part of a graph. So a
// trace tells shares of steps whose kernels are long (prefill), not what a captured step takes.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "kernels/cuda/handles.h"

namespace kernels::cuda {

struct TracedLaunch {
    std::string_view name;  // of static storage
    double us = 0.0;
};

/// Engine thread only, like the backend. Events are kept for the next step.
class StepTrace {
public:
    explicit StepTrace(const Driver& driver) : driver_(driver) {}

    void begin(StreamHandle stream);
    void after(std::string_view name, StreamHandle stream);
    /// Waits for the last event; the launches since `begin`, in order.
    std::vector<TracedLaunch> end();

private:
    void record(StreamHandle stream);

    const Driver& driver_;
    std::vector<Event> events_;
    std::size_t recorded_ = 0;
    std::vector<std::string_view> names_;  // of what lies in front of event i + 1
};

}  // namespace kernels::cuda
