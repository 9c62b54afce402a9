// Strings that know which of their bytes came from the request.
//
//   bytes  <|im_start|>user\nHi <|im_end|> there<|im_end|>
//   data                    ├────────────────────┤            one ByteSpan
//
// Text is immutable and shared. TextBuilder makes it; every operation of the language goes through
// the builder, so no operation can lose a mark. Positions here are bytes unless a name says
// characters.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/chat/jinja/budget.h"
#include "replica/chat/template.h"

namespace replica::chat::jinja {

struct Text {
    std::string bytes;
    std::vector<ByteSpan> data;  // sorted, disjoint, not touching, not empty
    bool ascii = true;

    std::string_view view() const { return bytes; }
};
using TextPtr = std::shared_ptr<const Text>;

enum class Origin { kTemplate, kRequest };

/// Collects a Text and charges the budget for it. Throws Fault(kLimit) when it grows too long.
class TextBuilder {
public:
    explicit TextBuilder(Budget& budget) : budget_(&budget) {}

    void append(std::string_view bytes, Origin origin = Origin::kTemplate);
    void append(const Text& text) { append_slice(text, {0, text.bytes.size()}); }
    void append_slice(const Text& text, ByteSpan slice);
    void append_character(char32_t value, Origin origin);
    std::size_t size() const { return bytes_.size(); }
    TextPtr finish();
    Rendered finish_rendered() { return {std::move(bytes_), std::move(data_)}; }

private:
    void mark(ByteSpan span);

    Budget* budget_;
    std::string bytes_;
    std::vector<ByteSpan> data_;
};

TextPtr make_text(std::string bytes, Origin origin = Origin::kTemplate);
const TextPtr& empty_text();

/// Walks a text and says for each byte position whether it is data. Positions must not go back.
class OriginCursor {
public:
    explicit OriginCursor(const Text& text) : spans_(&text.data) {}
    Origin at(std::size_t position);

private:
    const std::vector<ByteSpan>* spans_;
    std::size_t index_ = 0;
};

std::size_t length_in_characters(const Text& text);
/// The byte where character `index` begins; text.bytes.size() for the one past the last.
std::size_t byte_of_character(const Text& text, std::size_t index);

TextPtr slice_bytes(Budget& budget, const TextPtr& text, ByteSpan slice);
TextPtr reversed(Budget& budget, const Text& text);
std::vector<TextPtr> characters(Budget& budget, const TextPtr& text);

struct TrimSides {
    bool left = true;
    bool right = true;
};
/// Without `set`: whitespace. With it: any of its characters, as str.strip does.
TextPtr trim(Budget& budget, const TextPtr& text, TrimSides sides,
             std::optional<std::string_view> set = std::nullopt);

/// str.split: at whitespace runs without a separator (which is not empty); at most `splits_max`
/// splits, -1 for all.
std::vector<TextPtr> split(Budget& budget, const TextPtr& text, const Text* separator,
                           std::int64_t splits_max);
std::vector<TextPtr> split_from_right(Budget& budget, const TextPtr& text, const Text* separator,
                                      std::int64_t splits_max);
std::vector<TextPtr> split_lines(Budget& budget, const TextPtr& text);
TextPtr replace(Budget& budget, const TextPtr& text, const Text& from, const Text& to,
                std::int64_t count_max);

enum class Case { kUpper, kLower, kTitle, kCapitalized };
TextPtr map_case(Budget& budget, const Text& text, Case to);

/// The first place of `needle` in `text` from `begin`; npos when there is none. Linear time.
std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t begin = 0);

}  // namespace replica::chat::jinja
