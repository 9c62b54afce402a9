// From a file name to a model that can be served; runs on the loading thread.
//
//   GGUF ─▶ tokenizer, template ─▶ backend ─▶ weights (progress in bytes) ─▶ engine
#pragma once

#include <functional>
#include <optional>

#include <tl/expected.hpp>

#include "replica/chat/template.h"
#include "replica/gguf/reader.h"
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

/// What a model is before its weights: the head of its file, its tokenizer, its template.
struct ModelHead {
    GgufFile file;
    Tokenizer tokenizer;
    std::optional<chat::Template> chat_template;
};

/// Refuses what load_model() would refuse because of the file or of flags that do not go with it,
/// without a device and without weights.
tl::expected<ModelHead, StartFailure> read_model_head(const ServerOptions& options);

/// `head`: as read before; read here where there is none. A vocabulary of 150,000 tokens takes a
/// quarter of a second, so a start that has looked at it hands it on.
tl::expected<Serving, StartFailure> load_model(const ServerOptions& options, const LoadHooks& hooks,
                                               std::optional<ModelHead> head = std::nullopt);

/// What load_model() lays out where memory is no limit; `weight_bytes`, what the backend takes for
/// its steps, and reserves are left out. None for a file that read_model_head() refuses.
std::optional<MemoryPlan> plan_without_limit(const ServerOptions& options, const ModelHead& head);

/// Why a start that demands kernels must be refused: exit 7 with a sentence. None when all that
/// `required` names are armed.
std::optional<StartFailure> check_required_kernels(const std::vector<kernels::KernelEntry>& kernels,
                                                   const std::vector<std::string>& required);

}  // namespace replica::server
