// Where another request is likely to part from a chat prompt: hints for the prefix cache.
//
//   <|im_start|>system … <|im_end|>\n <|im_start|>user … <|im_start|>assistant … <|im_start|>user …
//   <|im_start|>assistant\n
//                                     ▲ end of system + tools                    ▲ a user turn ▲
//                                     the reply
//
// What opens a turn is learned from the template itself, by rendering a short chat; the opening
// counts when it begins with a control token, which nothing in a request can forge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replica/chat/template.h"
#include "replica/tokenizer/tokenizer.h"

namespace replica::server {

/// More hints than this are of no use: the cache keeps fewer states of one prompt.
inline constexpr std::size_t kBoundariesMax = 64;

/// The tokens that open a turn, the role's name included; empty when there is no such mark.
struct TurnMarks {
    std::vector<TokenId> user, assistant;
};

TurnMarks find_turn_marks(const chat::Template& chat_template, const Tokenizer& tokenizer);

/// Token positions, ascending, at most kBoundariesMax: the start of each user turn (the first is
/// the end of system message and tools) and, when the prompt ends in the assistant's turn, of that.
/// With too many turns the first and the latest stay.
std::vector<std::int32_t> prompt_boundaries(std::span<const TokenId> prompt, const TurnMarks& marks,
                                            bool ends_in_assistant_turn);

}  // namespace replica::server
