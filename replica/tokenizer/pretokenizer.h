// Pre-tokenisers of byte-level BPE: a text is cut into pieces that merges never cross. The
// published definition of each kind is a list of regular expressions; here each expression is a
// hand-written scanner, so the cost is linear for any text and no regex engine is needed.
//
// The first scanner cuts the text into matches and gaps, each further one cuts every piece again.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace replica {

enum class PreTokenizer { kQwen2, kQwen35, kLlamaBpe, kGpt2, kSmollm, kDefault };

/// The kind a file's `tokenizer.ggml.pre` names, aliases included; none when it is not known.
std::optional<PreTokenizer> pre_tokenizer_by_name(std::string_view name);

/// Llama 3 files want bos in front, and take a piece that is a token as it is.
bool is_llama3_family(PreTokenizer kind);

/// Cuts `text` into pieces, in order and without gaps; returns the end offset of each, in bytes.
/// Precondition: `text` is valid UTF-8. O(text).
std::vector<std::size_t> split_pieces(PreTokenizer kind, std::string_view text);

}  // namespace replica
