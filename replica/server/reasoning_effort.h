// Which reasoning efforts a template knows, and what a request's effort becomes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/chat_request.h"
#include "replica/chat/template.h"

namespace replica::server {

struct EffortTable {
    bool template_reads_effort = false;
    bool template_reads_thinking = false;          // the variable enable_thinking
    std::vector<proto::ReasoningEffort> accepted;  // ascending; of those from minimal on

    /// The accepted effort nearest to `wanted`, the higher one on a tie; none when there is none.
    std::optional<proto::ReasoningEffort> nearest(proto::ReasoningEffort wanted) const;
};

/// Renders a short chat with every effort; those that do not raise are accepted.
EffortTable probe_efforts(const chat::Template& chat_template);

}  // namespace replica::server
