// Everything about the loaded model that answering a request needs. Immutable after load: the I/O
// thread and the worker threads read it without locks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "proto/chat_request.h"
#include "replica/chat/output_parser.h"
#include "replica/chat/template.h"
#include "replica/engine/step_runner.h"
#include "replica/server/prompt_boundaries.h"
#include "replica/server/reasoning_effort.h"
#include "replica/tokenizer/tokenizer.h"

namespace replica::server {

/// What the file says about itself, for /v1/models and /info.
struct ModelFacts {
    std::string arch, quant;
    std::string digest;  // "sha256:…" over metadata and tensor directory
    std::int64_t parameters = 0, size_bytes = 0, context_train = 0;
    std::int64_t created = 0;  // Unix seconds of the file
    std::string file_name;
    bool has_mtp = false;  // it has a block that can draft
};

struct ServedModel {
    std::string name;  // served name
    std::vector<std::string> aliases;
    ModelFacts facts;

    Tokenizer tokenizer;
    /// Control tokens the output parser looks for, spelled out in its input. Sorted.
    std::vector<TokenId> tag_tokens;
    /// The token that opens a tool call, masked when no call may be made.
    std::optional<TokenId> call_tag;

    std::optional<chat::Template> chat_template;
    chat::OutputFormat tool_format = chat::OutputFormat::kNone;
    bool has_think_tags = false;
    EffortTable efforts;
    TurnMarks turn_marks;

    RunnerLimits limits;
    std::string kv_dtype = "f16";
    std::vector<std::pair<std::string, std::uint64_t>> device_memory;  // kind, bytes
    std::string fingerprint;                                           // "q-" and 8 hex digits
    /// Those the model has work for, with their counters of now; called while it is served.
    std::function<std::vector<kernels::KernelEntry>()> kernels = [] {
        return std::vector<kernels::KernelEntry>{};
    };
    std::string gpu_uuid;  // empty on the CPU
    bool is_degraded = false;

    double default_temperature = 1.0;
    proto::ReasoningField reasoning_field = proto::ReasoningField::kReasoningContent;

    bool answers_to(std::string_view model) const;
    std::int32_t max_model_len() const { return limits.max_model_len; }
};

/// Fills the fields that follow from tokenizer and template: tags, tool format, efforts.
/// `tool_format_override` as in OutputFormat's names; empty = what the template shows.
void describe_template(ServedModel& model, std::string_view tool_format_override);

}  // namespace replica::server
