// What the end of an answer says about its tokens: the fallback for accounts.
//
// A replica tells the end of each dispatch on its status stream. One that is only polled, or that
// is no server of ours, does not; then the answer itself is read: the usage and the finish reason
// in the last events of a stream, or the usage behind a whole answer. Every number is checked;
// what cannot be read is counted and changes nothing of the answer. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace router {

/// The data of the last two events of a stream, the older one first: a chunk with the finish
/// reason and, where the client asked for it, one with the usage.
using LastEvents = std::array<std::string, 2>;

/// A longer event is not kept, and so not understood.
inline constexpr std::size_t kLastEventBytesMax = std::size_t{8} << 10;

struct AnswerEnd {
    // Empty where it does not say.
    std::optional<std::int64_t> prompt_tokens;
    std::optional<std::int64_t> cached_tokens;
    std::optional<std::int64_t> generated_tokens;
    std::string finish_reason = "stop";
};

/// Nothing when an event is no JSON object, or a number none.
[[nodiscard]] std::optional<AnswerEnd> end_of_stream(const LastEvents& events);
/// Nothing when there is no usage near the end that can be read.
[[nodiscard]] std::optional<AnswerEnd> end_of_whole(std::string_view body);

}  // namespace router
