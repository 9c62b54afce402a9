// Where a prompt can be resumed from a cache: the ends of its messages, each with a hash of all
// that comes before it.
//
//   h0   = H(model, salt, tools, template arguments, leading system messages)
//   h(i) = H(h(i-1), role, content, reasoning, tool calls, ids and names of message i)
//
// Replicas of models with a recurrent state resume only where they kept it, and they keep it at the
// ends of messages; a match of characters or of a share of the prompt would promise what is not
// there. Hashed are parsed values, so spacing and key order outside of messages do not matter.
// Text completions have a boundary every 4096 bytes, or 1024 ids. Source: spec of the router,
// section 5.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/openai.h"
#include "router/boundaries_hash.h"

namespace router {

/// Shorter beginnings are not worth a place in the table.
inline constexpr std::int64_t kBoundaryTokensMin = 256;
/// Of a long conversation the first two boundaries are kept (what many chats share) and the last
/// ones (where this chat goes on).
inline constexpr std::size_t kBoundariesFirst = 2;
inline constexpr std::size_t kBoundariesLast = 62;
inline constexpr std::size_t kCompletionBoundaryBytes = 4096;
inline constexpr std::size_t kCompletionBoundaryIds = 1024;

struct Boundary {
    std::uint64_t hash = 0;
    std::int64_t tokens = 0;  // estimated length of the prompt up to here
};

/// In the order of the prompt.
struct Boundaries {
    std::vector<Boundary> list;
    std::int64_t prompt_tokens = 1;  // estimated length of the whole prompt
    std::uint64_t cache_key = 0;     // of `prompt_cache_key`, or else `user`: a tie-break; 0: none
};

struct BoundaryOptions {
    SipKey key;
    std::string_view model;          // the served name: all its names share their prefixes
    std::string_view isolate;        // with `affinity_isolate_keys` the API key's name, else empty
    std::int64_t prompt_tokens = 1;  // estimate for the whole prompt
};

[[nodiscard]] Boundaries boundaries_of(const proto::ChatRequest& request,
                                       const BoundaryOptions& options);
/// Of the first prompt; a request with several prompts has none.
[[nodiscard]] Boundaries boundaries_of(const proto::CompletionRequest& request,
                                       const BoundaryOptions& options);

/// Keeps those of at least kBoundaryTokensMin tokens: the first ones and the last ones.
[[nodiscard]] std::vector<Boundary> worth_keeping(std::vector<Boundary> all);

}  // namespace router
