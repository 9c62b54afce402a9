// Graphs of steps that come again: decode steps of one size differ in nothing but the descriptor,
// which lies at a fixed place, so their launches are equal to the byte.
//
//     first time: launched one by one │ second: captured │ from then on: one graph launch
//     rehearsed: captured ahead of the first time
//
// Whatever a launch depends on is in the list that is compared, so a graph can be missed but never
// be wrong. Writing a list down costs about as much as the device needs for one layer; so a
// program (kernels/backend.h) whose lists for a key were equal twice is known by the key alone.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/launch_list.h"

namespace kernels::cuda {

inline constexpr std::size_t kStepGraphsMax = 256;  // the one not used for longest goes
inline constexpr std::int32_t kGraphRowsMax = 64;  // steps with more rows are prefill: rarely equal

/// Everything that launches of a program depend on.
struct StepKey {
    StepProgram program = StepProgram::kTrunk;
    std::int32_t rows = 0, seqs = 0, logit_rows = 0;
    std::int32_t seq_rows_max = 0;  // of one sequence
    bool draws = false;

    bool operator==(const StepKey&) const = default;
};
/// None: the step's launches depend on more, or the host wants its logits.
std::optional<StepKey> step_key(const StepDescriptor& step, StepProgram program);

class StepGraphs {
public:
    StepGraphs(const Driver& driver, KernelSet& kernels) : driver_(driver), kernels_(kernels) {}

    /// Enqueues the list's launches, in order. With a key: the list is what it stands for.
    void run(LaunchList& list, std::int32_t rows, const std::optional<StepKey>& key,
             StreamHandle stream);
    /// Captures the list, without running it.
    void rehearse(LaunchList& list, const StepKey& key, StreamHandle stream);

    bool knows(const StepKey& key) const { return find_known(key) != nullptr; }
    /// Enqueues what the key stands for, which is known.
    void repeat(const StepKey& key, StreamHandle stream);

    std::uint64_t replays() const { return replays_; }

private:
    struct Entry {
        LaunchList list;
        std::vector<std::pair<KernelId, std::uint64_t>> runs;  // of each kernel in the list
        GraphExec exec;                                        // none: seen once
        std::uint64_t id = 0;                                  // another for another list
        std::uint64_t last_use = 0;
    };
    struct Program {
        StepKey key;
        std::size_t entry = 0;
        std::uint64_t entry_id = 0;
        int seen = 0;
        bool is_ambiguous = false;  // the key does not tell all: never trusted
    };
    std::size_t entry_of(const LaunchList& list, bool& is_new);
    void note(const StepKey& key, std::size_t entry);
    const Program* find_known(const StepKey& key) const;
    void capture(Entry& entry, StreamHandle stream);
    void launch(Entry& entry, StreamHandle stream);

    const Driver& driver_;
    KernelSet& kernels_;
    std::vector<Entry> entries_;
    std::vector<Program> programs_;
    std::uint64_t clock_ = 0;
    std::uint64_t ids_ = 0;
    std::uint64_t replays_ = 0;
};

}  // namespace kernels::cuda
