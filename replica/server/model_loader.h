// From a file name to a model that can be served; runs on the loading thread.
//
//   GGUF ─▶ tokenizer, template ─▶ backend ─▶ weights (progress in bytes) ─▶ engine
#pragma once

#include <functional>

#include <tl/expected.hpp>

#include "replica/model/memory_plan.h"
#include "replica/server/app_state.h"
#include "replica/server/exit_codes.h"

namespace replica::server {

struct LoadHooks {
    /// Loading thread; called a few hundred times at most.
    std::function<void(proto::ReplicaState phase, std::uint64_t done, std::uint64_t total)>
        on_progress;
    // Engine thread.
    std::function<void()> on_engine_change;
    std::function<void(const StepStats&)> on_step;
    std::function<void(const std::string& reason)> on_device_lost;
};

tl::expected<Serving, StartFailure> load_model(const ServerOptions& options,
                                               const LoadHooks& hooks);

/// What load_model() would refuse because of the file or of flags that do not go with it, found
/// from the file's head, without a device and without weights.
std::optional<StartFailure> check_model(const ServerOptions& options);

/// What load_model() lays out where memory is no limit; `weight_bytes`, what the backend takes for
/// its steps, and reserves are left out. None for a file that check_model() refuses.
std::optional<MemoryPlan> plan_without_limit(const ServerOptions& options);

/// Why a start that demands kernels must be refused: exit 7 with a sentence. None when all that
/// `required` names are armed.
std::optional<StartFailure> check_required_kernels(const std::vector<kernels::KernelEntry>& kernels,
                                                   const std::vector<std::string>& required);

}  // namespace replica::server
