// What one rendering may still spend. Every loop, node and produced byte is charged here first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replica/chat/template.h"

namespace replica::chat::jinja {

/// Produced or scanned bytes cost nodes as well, one for this many, so that a cheap expression on a
/// long string is not cheap. With 16 million nodes all strings of a rendering sum up to 256 MB.
inline constexpr std::size_t kBytesPerNode = 16;
/// A list element costs this much, about its size in memory.
inline constexpr std::size_t kElementBytes = 32;
/// Evaluations within each other, over all macro calls: bounds the C++ stack.
inline constexpr int kEvaluationDepthMax = 1500;

class Budget {
public:
    explicit Budget(const TemplateLimits& limits);

    void charge_nodes(std::uint64_t count);  // throws Fault(kLimit)
    void charge_bytes(std::size_t bytes) { charge_nodes(bytes / kBytesPerNode); }
    void charge_elements(std::size_t count) {
        charge_nodes(count * (kElementBytes / kBytesPerNode));
    }
    void charge_iteration();
    /// A string of this size is about to be made; throws before it is.
    void check_text(std::size_t bytes) const;

    const TemplateLimits& limits() const { return limits_; }

private:
    void check_time() const;

    TemplateLimits limits_;
    std::uint64_t nodes_ = 0;
    std::uint64_t nodes_at_next_time_check_ = 0;
    std::uint64_t iterations_ = 0;
    std::int64_t deadline_ns_ = 0;  // of this thread's CPU clock
};

}  // namespace replica::chat::jinja
