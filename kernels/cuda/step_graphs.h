// Graphs of steps that come again: decode steps of one size differ in nothing but the descriptor,
// which lies at a fixed place, so their launches are equal to the byte.
//
//     first time: launched one by one │ second: captured │ from then on: one graph launch
//
// Whatever a launch depends on is in the list that is compared, so a graph can be missed but never
// be wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/handles.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/launch_list.h"

namespace kernels::cuda {

inline constexpr std::size_t kStepGraphsMax = 48;  // the one not used for longest goes
inline constexpr std::int32_t kGraphRowsMax = 64;  // steps with more rows are prefill: rarely equal

class StepGraphs {
public:
    StepGraphs(const Driver& driver, KernelSet& kernels) : driver_(driver), kernels_(kernels) {}

    /// Enqueues the list's launches, in order.
    void run(LaunchList& list, std::int32_t rows, StreamHandle stream);
    std::uint64_t replays() const { return replays_; }

private:
    struct Entry {
        LaunchList list;
        GraphExec exec;  // none: seen once
        std::uint64_t last_use = 0;
    };
    Entry& entry_of(const LaunchList& list, bool& is_new);

    const Driver& driver_;
    KernelSet& kernels_;
    std::vector<Entry> entries_;
    std::uint64_t clock_ = 0;
    std::uint64_t replays_ = 0;
};

}  // namespace kernels::cuda
