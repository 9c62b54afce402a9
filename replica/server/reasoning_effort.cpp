#include "replica/server/reasoning_effort.h"

#include <array>
#include <cstdlib>

#include "replica/chat/messages.h"

namespace replica::server {
namespace {

using proto::ReasoningEffort;

constexpr std::array kEfforts = {ReasoningEffort::kMinimal, ReasoningEffort::kLow,
                                 ReasoningEffort::kMedium,  ReasoningEffort::kHigh,
                                 ReasoningEffort::kXhigh,   ReasoningEffort::kMax};

}  // namespace

std::optional<ReasoningEffort> EffortTable::nearest(ReasoningEffort wanted) const {
    std::optional<ReasoningEffort> best;
    const auto distance = [&](ReasoningEffort effort) {
        return std::abs(static_cast<int>(effort) - static_cast<int>(wanted));
    };
    for (const ReasoningEffort effort : accepted) {
        // Ascending order: on a tie the later one is the higher one.
        if (!best || distance(effort) <= distance(*best)) best = effort;
    }
    return best;
}

EffortTable probe_efforts(const chat::Template& chat_template) {
    EffortTable table{.template_reads_effort = chat_template.reads("reasoning_effort"),
                      .template_reads_thinking = chat_template.reads("enable_thinking"),
                      .accepted = {}};
    if (!table.template_reads_effort) return table;
    for (const ReasoningEffort effort : kEfforts) {
        chat::ChatInput input;
        input.messages = {{{"role", "user"}, {"content", "Hi"}}};
        input.variables["reasoning_effort"] = proto::reasoning_effort_name(effort);
        if (chat::render_chat(chat_template, input)) table.accepted.push_back(effort);
    }
    return table;
}

}  // namespace replica::server
