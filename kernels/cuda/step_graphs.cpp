#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <cassert>

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/graph_timer.h"

namespace kernels::cuda {
namespace {

constexpr int kSeenMin = 2;                 // equal lists of a key before it is trusted
constexpr std::size_t kProgramsMax = 1024;  // more keys are forgotten together

std::vector<std::pair<KernelId, std::uint64_t>> runs_of(const LaunchList& list) {
    std::vector<std::pair<KernelId, std::uint64_t>> runs;
    for (const Launch& launch : list.launches()) {
        const auto found =
            std::ranges::find(runs, launch.id, [](const auto& r) { return r.first; });
        if (found == runs.end())
            runs.emplace_back(launch.id, 1);
        else
            ++found->second;
    }
    return runs;
}

}  // namespace

std::optional<StepKey> step_key(const StepDescriptor& step, StepProgram program) {
    if (step.wants_logits || step.rows > kGraphRowsMax) return std::nullopt;
    StepKey key{.program = program,
                .rows = step.rows,
                .seqs = step.seqs,
                .logit_rows = step.logit_rows,
                .draws = !step.sampling.empty()};
    for (std::size_t s = 0; s < static_cast<std::size_t>(step.seqs); ++s)
        key.seq_rows_max = std::max(key.seq_rows_max, step.row_begin[s + 1] - step.row_begin[s]);
    // Longer sequences are cut into launches one by one.
    if (key.seq_rows_max > kAttentionStepRowsMax) return std::nullopt;
    return key;
}

std::size_t StepGraphs::entry_of(const LaunchList& list, bool& is_new) {
    auto found = std::ranges::find(entries_, list, &Entry::list);
    is_new = found == entries_.end();
    if (is_new) {
        if (entries_.size() < kStepGraphsMax) {
            entries_.emplace_back();
            found = std::prev(entries_.end());
        } else {
            found = std::ranges::min_element(entries_, {}, &Entry::last_use);
            found->exec = GraphExec();
        }
        found->list = list;
        found->runs = runs_of(list);
        found->id = ++ids_;
    }
    found->last_use = ++clock_;
    return static_cast<std::size_t>(found - entries_.begin());
}

void StepGraphs::note(const StepKey& key, std::size_t entry) {
    const std::uint64_t id = entries_[entry].id;
    const auto found = std::ranges::find(programs_, key, &Program::key);
    if (found == programs_.end()) {
        if (programs_.size() == kProgramsMax) programs_.clear();
        programs_.push_back({.key = key, .entry = entry, .entry_id = id, .seen = 1});
        return;
    }
    if (found->entry_id == id) {
        ++found->seen;
        return;
    }
    found->is_ambiguous |= entries_[found->entry].id == found->entry_id;
    found->entry = entry;
    found->entry_id = id;
    found->seen = 1;
}

const StepGraphs::Program* StepGraphs::find_known(const StepKey& key) const {
    const auto found = std::ranges::find(programs_, key, &Program::key);
    if (found == programs_.end() || found->is_ambiguous || found->seen < kSeenMin) return nullptr;
    const Entry& entry = entries_[found->entry];
    return entry.id == found->entry_id && entry.exec.get() != nullptr ? &*found : nullptr;
}

void StepGraphs::capture(Entry& entry, StreamHandle stream) {
    entry.exec = capture_graph(driver_, stream, [&] { kernels_.enqueue(entry.list, stream); });
}

void StepGraphs::launch(Entry& entry, StreamHandle stream) {
    for (const auto& [id, runs] : entry.runs)
        kernels_.count(id, runs);
    check_cuda(driver_, driver_.graph_launch(entry.exec.get(), stream), "graph launch");
    ++replays_;
}

void StepGraphs::run(LaunchList& list, std::int32_t rows, const std::optional<StepKey>& key,
                     StreamHandle stream) {
    if (list.empty()) return;
    if (rows > kGraphRowsMax) {
        for (const auto& [id, runs] : runs_of(list))
            kernels_.count(id, runs);
        kernels_.enqueue(list, stream);
        return;
    }
    bool is_new = false;
    const std::size_t index = entry_of(list, is_new);
    Entry& entry = entries_[index];
    if (key) note(*key, index);
    if (is_new) {
        for (const auto& [id, runs] : entry.runs)
            kernels_.count(id, runs);
        kernels_.enqueue(list, stream);
        return;
    }
    if (entry.exec.get() == nullptr) capture(entry, stream);
    launch(entry, stream);
}

void StepGraphs::rehearse(LaunchList& list, const StepKey& key, StreamHandle stream) {
    if (list.empty()) return;
    bool is_new = false;
    const std::size_t index = entry_of(list, is_new);
    note(key, index);
    Entry& entry = entries_[index];
    if (entry.exec.get() != nullptr) return;
    capture(entry, stream);
    check_cuda(driver_, driver_.graph_upload(entry.exec.get(), stream), "graph upload");
}

void StepGraphs::repeat(const StepKey& key, StreamHandle stream) {
    const Program* program = find_known(key);
    assert(program != nullptr && "the caller asked");
    Entry& entry = entries_[program->entry];
    entry.last_use = ++clock_;
    launch(entry, stream);
}

}  // namespace kernels::cuda
