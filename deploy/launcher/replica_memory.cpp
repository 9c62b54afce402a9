#include "deploy/launcher/replica_memory.h"

#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "deploy/launcher/device_monitor.h"

namespace deploy {
namespace {

using nlohmann::json;

/// Beyond it a number is no number of bytes or tokens of this world, and sums stay exact.
constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 62;

std::optional<ReplicaMemory> read(const json& object) {
    ReplicaMemory memory;
    for (const auto& [key, field] : {std::pair{"context", &ReplicaMemory::context},
                                     std::pair{"sequences", &ReplicaMemory::sequences},
                                     std::pair{"kv_tokens_least", &ReplicaMemory::kv_tokens_least},
                                     std::pair{"kv_bytes_least", &ReplicaMemory::kv_bytes_least},
                                     std::pair{"kv_tokens_most", &ReplicaMemory::kv_tokens_most},
                                     std::pair{"kv_bytes_most", &ReplicaMemory::kv_bytes_most},
                                     std::pair{"state_bytes", &ReplicaMemory::state_bytes}}) {
        const auto value = object.find(key);
        if (value == object.end() || !value->is_number_unsigned()) return std::nullopt;
        memory.*field = value->get<std::uint64_t>();
        if (memory.*field > kNumberMax) return std::nullopt;
    }
    return memory;
}

}  // namespace

std::optional<ReplicaMemory> parse_replica_memory(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const json read_line = json::parse(line, nullptr, false);
        if (!read_line.is_object() || !read_line.contains("memory")) continue;
        const json& object = read_line["memory"];
        if (object.is_object()) return read(object);
    }
    return std::nullopt;
}

std::string to_text(const ReplicaMemory& memory) {
    std::string text = "KV " + bytes_text(memory.kv_bytes_least) + " for ";
    const bool is_fixed = memory.kv_tokens_least == memory.kv_tokens_most;
    text += is_fixed && memory.sequences > 1
                ? std::to_string(memory.kv_tokens_least) + " tokens in all"
                : "a context of " + std::to_string(memory.context) + " tokens";
    if (!is_fixed) {
        text += ", up to " + bytes_text(memory.kv_bytes_most) + " for " +
                std::to_string(memory.sequences) + " of them";
    }
    if (memory.state_bytes > 0) {
        text += "; recurrent states " + bytes_text(memory.state_bytes);
    }
    return text;
}

}  // namespace deploy
