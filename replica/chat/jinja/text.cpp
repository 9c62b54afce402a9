#include "replica/chat/jinja/text.h"

#include <algorithm>
#include <cstring>

#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja {

void TextBuilder::append(std::string_view bytes, Origin origin) {
    budget_->check_text(bytes_.size() + bytes.size());
    budget_->charge_bytes(bytes.size());
    const std::size_t begin = bytes_.size();
    bytes_.append(bytes);
    if (origin == Origin::kRequest) mark({begin, bytes_.size()});
}

void TextBuilder::append_slice(const Text& text, ByteSpan slice) {
    const std::size_t begin = bytes_.size();
    append(text.view().substr(slice.begin, slice.end - slice.begin));
    auto span = std::lower_bound(
        text.data.begin(), text.data.end(), slice.begin,
        [](const ByteSpan& candidate, std::size_t at) { return candidate.end <= at; });
    for (; span != text.data.end() && span->begin < slice.end; ++span) {
        mark({begin + std::max(span->begin, slice.begin) - slice.begin,
              begin + std::min(span->end, slice.end) - slice.begin});
    }
}

void TextBuilder::append_character(char32_t value, Origin origin) {
    std::string bytes;
    append_utf8(bytes, value);
    append(bytes, origin);
}

TextPtr TextBuilder::finish() {
    auto text = std::make_shared<Text>();
    text->ascii = is_ascii(bytes_);
    text->bytes = std::move(bytes_);
    text->data = std::move(data_);
    return text;
}

void TextBuilder::mark(ByteSpan span) {
    if (span.begin == span.end) return;
    if (!data_.empty() && data_.back().end == span.begin) {
        data_.back().end = span.end;
    } else {
        data_.push_back(span);
    }
}

TextPtr make_text(std::string bytes, Origin origin) {
    auto text = std::make_shared<Text>();
    text->ascii = is_ascii(bytes);
    text->bytes = std::move(bytes);
    if (origin == Origin::kRequest && !text->bytes.empty()) text->data = {{0, text->bytes.size()}};
    return text;
}

const TextPtr& empty_text() {
    static const TextPtr empty = std::make_shared<const Text>();
    return empty;
}

Origin OriginCursor::at(std::size_t position) {
    while (index_ < spans_->size() && (*spans_)[index_].end <= position)
        ++index_;
    const bool is_data = index_ < spans_->size() && (*spans_)[index_].begin <= position;
    return is_data ? Origin::kRequest : Origin::kTemplate;
}

std::size_t length_in_characters(const Text& text) {
    return text.ascii ? text.bytes.size() : count_code_points(text.bytes);
}

std::size_t byte_of_character(const Text& text, std::size_t index) {
    if (text.ascii) return std::min(index, text.bytes.size());
    std::size_t at = 0;
    for (; index > 0 && at < text.bytes.size(); --index)
        at += decode_at(text.bytes, at).bytes;
    return at;
}

TextPtr slice_bytes(Budget& budget, const TextPtr& text, ByteSpan slice) {
    if (slice.begin == 0 && slice.end == text->bytes.size()) return text;
    TextBuilder builder(budget);
    builder.append_slice(*text, slice);
    return builder.finish();
}

TextPtr reversed(Budget& budget, const Text& text) {
    TextBuilder builder(budget);
    for (std::size_t end = text.bytes.size(); end > 0;) {
        const std::size_t begin = previous_character(text.bytes, end);
        builder.append_slice(text, {begin, end});
        end = begin;
        budget.charge_nodes(1);
    }
    return builder.finish();
}

std::vector<TextPtr> characters(Budget& budget, const TextPtr& text) {
    std::vector<TextPtr> result;
    for (std::size_t at = 0; at < text->bytes.size();) {
        const std::size_t end = at + decode_at(text->bytes, at).bytes;
        budget.charge_elements(4);  // a small allocation each
        result.push_back(slice_bytes(budget, text, {at, end}));
        at = end;
    }
    return result;
}

TextPtr trim(Budget& budget, const TextPtr& text, TrimSides sides,
             std::optional<std::string_view> set) {
    const std::string_view bytes = text->bytes;
    const auto goes = [&](std::size_t at, std::size_t size) {
        if (!set) return is_space(decode_at(bytes, at).value);
        budget.charge_bytes(set->size());
        // UTF-8 is self-synchronising: a whole character is found at character borders only.
        return set->find(bytes.substr(at, size)) != std::string_view::npos;
    };
    ByteSpan kept{0, bytes.size()};
    while (sides.left && kept.begin < kept.end) {
        const std::size_t size = decode_at(bytes, kept.begin).bytes;
        if (!goes(kept.begin, size)) break;
        kept.begin += size;
    }
    while (sides.right && kept.end > kept.begin) {
        const std::size_t begin = previous_character(bytes, kept.end);
        if (!goes(begin, kept.end - begin)) break;
        kept.end = begin;
    }
    budget.charge_bytes(bytes.size());
    return slice_bytes(budget, text, kept);
}

std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t begin) {
    if (begin > text.size()) return std::string_view::npos;
    if (needle.empty()) return begin;
    // std::string_view::find is quadratic in bad cases; memmem of glibc is not.
    const void* found =
        memmem(text.data() + begin, text.size() - begin, needle.data(), needle.size());
    if (found == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace replica::chat::jinja
