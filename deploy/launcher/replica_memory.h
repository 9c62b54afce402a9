// What a replica takes beside its weights, as `quadriga-replica --check-config` tells from the head
// of the model's file: exact where it says something, and not all of it (buffers of the steps and
// what the backend needs are known only at load).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace deploy {

struct ReplicaMemory {
    std::uint64_t context = 0;  // tokens of one sequence
    std::uint64_t sequences = 0;
    // The KV cache: one whole context at least, one for each sequence at most.
    std::uint64_t kv_tokens_least = 0, kv_bytes_least = 0;
    std::uint64_t kv_tokens_most = 0, kv_bytes_most = 0;
    std::uint64_t state_bytes = 0;  // of recurrent layers

    std::uint64_t least_bytes() const { return kv_bytes_least + state_bytes; }
};

/// From the program's words; none where they do not tell.
std::optional<ReplicaMemory> parse_replica_memory(const std::string& text);

/// "KV 12 MiB for a context of 4096 tokens, up to 48 MiB for 4 of them; recurrent states 3.0 MiB"
std::string to_text(const ReplicaMemory& memory);

}  // namespace deploy
