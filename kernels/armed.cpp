#include "kernels/armed.h"

#include <algorithm>

namespace kernels {

std::string_view name_of(KernelState state) {
    switch (state) {
        case KernelState::kArmed:
            return "armed";
        case KernelState::kNotBuilt:
            return "not_built";
        case KernelState::kWrongArch:
            return "wrong_arch";
        case KernelState::kDisabled:
            return "disabled";
        case KernelState::kFailed:
            return "failed";
    }
    return "failed";
}

std::string full_name(const KernelEntry& entry) {
    return entry.variant.empty() ? entry.name : entry.name + "/" + entry.variant;
}

void mark_wrong_arch(KernelEntry& entry, std::string_view needed, std::string_view code) {
    entry.state = KernelState::kWrongArch;
    entry.reason = "needs " + std::string(needed) + ", the code is for " + std::string(code);
}

bool is_missing(const KernelEntry& entry) {
    return entry.is_wanted && entry.state != KernelState::kArmed;
}

bool is_named(const KernelEntry& entry, std::string_view pattern) {
    const std::size_t slash = pattern.find('/');
    if (slash == std::string_view::npos) return pattern == entry.name;
    return pattern.substr(0, slash) == entry.name && pattern.substr(slash + 1) == entry.variant;
}

bool is_named_by_any(const KernelEntry& entry, std::span<const std::string> patterns) {
    return std::ranges::any_of(patterns, [&](const std::string& p) { return is_named(entry, p); });
}

std::vector<std::string> absent(std::span<const KernelEntry> entries,
                                std::span<const std::string> patterns) {
    std::vector<std::string> sentences;
    for (const std::string& pattern : patterns) {
        const bool is_all = pattern == "*";
        bool is_known = is_all;
        for (const KernelEntry& entry : entries) {
            if (!is_all && !is_named(entry, pattern)) continue;
            is_known = true;
            if (is_all ? !is_missing(entry) : entry.state == KernelState::kArmed) continue;
            sentences.push_back("kernel " + full_name(entry) + " is " +
                                std::string(name_of(entry.state)) +
                                (entry.reason.empty() ? "" : ": " + entry.reason));
        }
        if (!is_known) sentences.push_back("no kernel is called " + pattern);
    }
    return sentences;
}

}  // namespace kernels
