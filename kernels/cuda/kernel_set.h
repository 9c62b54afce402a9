// Our kernels on a device: which are loaded, launching them, how often each was launched.
//
// The set refuses to load when a kernel that its code should have is missing, so nothing falls back
// in silence.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/kernel_names.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/step_trace.h"

namespace kernels::cuda {

class KernelSet {
public:
    /// Loads the code into the current context. Throws CudaError.
    KernelSet(const Driver& driver, const DeviceCode& code);

    CodeKind kind() const { return kind_; }

    /// Whether the code holds this kernel.
    bool has(KernelId id) const { return functions_[static_cast<std::size_t>(id)] != nullptr; }

    /// Enqueues a launch; while a step is written down (`record`), adds it to the list instead.
    template <class Params>
    void launch(KernelId id, const GridShape& grid, StreamHandle stream, Params params) {
        if (list_ != nullptr) {
            list_->add(id, grid, &params, sizeof(params));
            return;
        }
        count(id, 1);
        launch_raw(id, grid, stream, &params);
        trace(kernel_names()[static_cast<std::size_t>(id)].symbol, stream);
    }
    /// Where launches go from now on; null = to the device.
    void record(LaunchList* list) { list_ = list; }
    bool is_recording() const { return list_ != nullptr; }
    /// Who is told of every launch made from now on; null = nobody.
    void set_trace(StepTrace* trace) { trace_ = trace; }
    /// Work of a library just enqueued.
    void trace(std::string_view name, StreamHandle stream) {
        if (trace_ != nullptr) trace_->after(name, stream);
    }
    /// Makes the first `count` launches of a list, or all; does not count them.
    void enqueue(LaunchList& list, StreamHandle stream, std::size_t count = SIZE_MAX);
    void count(KernelId id, std::uint64_t runs) {
        std::atomic<std::uint64_t>& counter = runs_[static_cast<std::size_t>(id)];
        counter.store(counter.load(std::memory_order_relaxed) + runs, std::memory_order_relaxed);
    }
    // Any thread.
    std::uint64_t runs(std::size_t index) const {
        return runs_[index].load(std::memory_order_relaxed);
    }
    std::uint64_t runs(KernelId id) const { return runs(static_cast<std::size_t>(id)); }
    /// Lets a kernel take this much dynamic shared memory.
    Status allow_shared_bytes(KernelId id, int bytes) {
        assert(has(id) && "a kernel that is loaded");
        return driver_.function_attribute(functions_[static_cast<std::size_t>(id)],
                                          FunctionAttribute::kSharedBytesMax, bytes);
    }

private:
    void launch_raw(KernelId id, const GridShape& grid, StreamHandle stream, void* params);

    const Driver& driver_;
    CodeKind kind_;
    std::vector<Module> modules_;
    std::vector<FunctionHandle> functions_;
    std::vector<std::atomic<std::uint64_t>> runs_;  // one writer
    LaunchList* list_ = nullptr;
    StepTrace* trace_ = nullptr;
};

}  // namespace kernels::cuda
