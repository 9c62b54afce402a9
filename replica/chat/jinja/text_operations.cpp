// Splitting, replacing and case mapping of texts, as Python's str does them.
#include <algorithm>
#include <string>

#include "replica/chat/jinja/text.h"
#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja {

namespace {

class Pieces {
public:
    Pieces(Budget& budget, const TextPtr& text) : budget_(&budget), text_(&text) {}

    void add(std::size_t begin, std::size_t end) {
        budget_->charge_elements(4);  // a small allocation each
        pieces_.push_back(slice_bytes(*budget_, *text_, {begin, end}));
    }
    std::int64_t splits() const { return static_cast<std::int64_t>(pieces_.size()); }
    std::vector<TextPtr> take() { return std::move(pieces_); }
    std::vector<TextPtr> take_reversed() {
        std::reverse(pieces_.begin(), pieces_.end());
        return std::move(pieces_);
    }

private:
    Budget* budget_;
    const TextPtr* text_;
    std::vector<TextPtr> pieces_;
};

std::size_t skip_spaces(std::string_view bytes, std::size_t at, bool while_space) {
    while (at < bytes.size()) {
        const CodePoint point = decode_at(bytes, at);
        if (is_space(point.value) != while_space) break;
        at += point.bytes;
    }
    return at;
}

std::size_t skip_spaces_back(std::string_view bytes, std::size_t end, bool while_space) {
    while (end > 0) {
        const std::size_t begin = previous_character(bytes, end);
        if (is_space(decode_at(bytes, begin).value) != while_space) break;
        end = begin;
    }
    return end;
}

bool is_line_break(char32_t value) {
    return (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) || value == 0x85 ||
           value == 0x2028 || value == 0x2029;
}

}  // namespace

std::vector<TextPtr> split(Budget& budget, const TextPtr& text, const Text* separator,
                           std::int64_t splits_max) {
    const std::string_view bytes = text->bytes;
    budget.charge_bytes(bytes.size());
    Pieces pieces(budget, text);
    const auto may_split = [&] { return splits_max < 0 || pieces.splits() < splits_max; };
    if (separator == nullptr) {
        std::size_t at = skip_spaces(bytes, 0, true);
        while (at < bytes.size()) {
            if (!may_split()) {
                pieces.add(at, bytes.size());
                break;
            }
            const std::size_t end = skip_spaces(bytes, at, false);
            pieces.add(at, end);
            at = skip_spaces(bytes, end, true);
        }
        return pieces.take();
    }
    std::size_t begin = 0;
    while (may_split()) {
        const std::size_t found = find_bytes(bytes, separator->bytes, begin);
        if (found == std::string_view::npos) break;
        pieces.add(begin, found);
        begin = found + separator->bytes.size();
    }
    pieces.add(begin, bytes.size());
    return pieces.take();
}

std::vector<TextPtr> split_from_right(Budget& budget, const TextPtr& text, const Text* separator,
                                      std::int64_t splits_max) {
    const std::string_view bytes = text->bytes;
    budget.charge_bytes(bytes.size());
    Pieces pieces(budget, text);
    const auto may_split = [&] { return splits_max < 0 || pieces.splits() < splits_max; };
    if (separator == nullptr) {
        std::size_t end = skip_spaces_back(bytes, bytes.size(), true);
        while (end > 0) {
            if (!may_split()) {
                pieces.add(0, end);
                break;
            }
            const std::size_t begin = skip_spaces_back(bytes, end, false);
            pieces.add(begin, end);
            end = skip_spaces_back(bytes, begin, true);
        }
        return pieces.take_reversed();
    }
    const std::string_view mark = separator->bytes;
    std::size_t end = bytes.size();
    std::size_t at = bytes.size();
    while (may_split() && at >= mark.size()) {
        budget.charge_nodes(1 + mark.size() / kBytesPerNode);
        if (bytes.substr(at - mark.size(), mark.size()) == mark) {
            pieces.add(at, end);
            end = at - mark.size();
            at = end;
        } else {
            --at;
        }
    }
    pieces.add(0, end);
    return pieces.take_reversed();
}

std::vector<TextPtr> split_lines(Budget& budget, const TextPtr& text) {
    const std::string_view bytes = text->bytes;
    budget.charge_bytes(bytes.size());
    Pieces pieces(budget, text);
    std::size_t begin = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = decode_at(bytes, at);
        std::size_t next = at + point.bytes;
        if (is_line_break(point.value)) {
            if (point.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
            pieces.add(begin, at);
            begin = next;
        }
        at = next;
    }
    if (begin < bytes.size()) pieces.add(begin, bytes.size());
    return pieces.take();
}

TextPtr replace(Budget& budget, const TextPtr& text, const Text& from, const Text& to,
                std::int64_t count_max) {
    const std::string_view bytes = text->bytes;
    budget.charge_bytes(bytes.size());
    TextBuilder builder(budget);
    std::size_t begin = 0;
    std::int64_t count = 0;
    const auto may_replace = [&] { return count_max < 0 || count < count_max; };
    if (from.bytes.empty()) {  // before every character and at the end
        while (may_replace()) {
            budget.charge_nodes(1);
            builder.append(to);
            ++count;
            if (begin == bytes.size()) return builder.finish();
            const std::size_t end = begin + decode_at(bytes, begin).bytes;
            builder.append_slice(*text, {begin, end});
            begin = end;
        }
    }
    while (!from.bytes.empty() && may_replace()) {
        const std::size_t found = find_bytes(bytes, from.bytes, begin);
        if (found == std::string_view::npos) break;
        budget.charge_nodes(1);
        builder.append_slice(*text, {begin, found});
        builder.append(to);
        begin = found + from.bytes.size();
        ++count;
    }
    if (count == 0) return text;
    builder.append_slice(*text, {begin, bytes.size()});
    return builder.finish();
}

TextPtr map_case(Budget& budget, const Text& text, Case to) {
    TextBuilder builder(budget);
    OriginCursor origin(text);
    bool in_word = false;
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = decode_at(text.bytes, at);
        budget.charge_nodes(1);
        char32_t mapped = point.value;
        const bool continues = to == Case::kCapitalized ? at > 0 : in_word;
        if (to == Case::kUpper) {
            mapped = to_upper(point.value);
        } else if (to == Case::kLower || continues) {
            mapped = to_lower(point.value);
        } else {
            mapped = to_title(point.value);
        }
        in_word = is_cased(point.value);
        if (mapped == point.value) {  // also keeps a byte that is no character as it is
            builder.append_slice(text, {at, at + point.bytes});
        } else {
            builder.append_character(mapped, origin.at(at));
        }
        at += point.bytes;
    }
    return builder.finish();
}

}  // namespace replica::chat::jinja
