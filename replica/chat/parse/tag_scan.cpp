#include "replica/chat/parse/tag_scan.h"

#include <algorithm>

namespace replica::chat::parse {

namespace {

bool is_tag_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
}

std::string cleaned(std::string_view name) {
    while (!name.empty() && is_space(name.front()))
        name.remove_prefix(1);
    while (!name.empty() && is_space(name.back()))
        name.remove_suffix(1);
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
        name = name.substr(1, name.size() - 2);
    }
    return std::string(name);
}

}  // namespace

std::size_t skip_space(std::string_view text, std::size_t at) {
    while (at < text.size() && is_space(text[at]))
        ++at;
    return at;
}

std::size_t skip_plain(std::string_view text, std::size_t at) {
    while (at < text.size() && !is_space(text[at]) && text[at] != '<')
        ++at;
    return at;
}

Fit Cursor::read(std::string_view literal) {
    const std::string_view rest = text.substr(std::min(at, text.size()));
    if (rest.size() < literal.size()) {
        return literal.starts_with(rest) ? Fit::kPartial : Fit::kNo;
    }
    if (!rest.starts_with(literal)) return Fit::kNo;
    at += literal.size();
    return Fit::kFull;
}

Fit Cursor::read_name(std::string& name) {
    const std::string_view window = text.substr(at, kNameBytesMax + 1);
    const std::size_t end = window.find_first_of(">\n");
    if (end == std::string_view::npos) {
        return window.size() <= kNameBytesMax ? Fit::kPartial : Fit::kNo;
    }
    if (window[end] == '\n') return Fit::kNo;
    name = cleaned(window.substr(0, end));
    if (name.empty()) return Fit::kNo;
    at += end + 1;
    return Fit::kFull;
}

Fit Cursor::read_close_tag() {
    Cursor cursor = *this;
    const Fit opening = cursor.read("</");
    if (opening != Fit::kFull) return opening;
    const std::size_t begin = cursor.at;
    while (!cursor.is_at_end() && is_tag_name_byte(text[cursor.at]))
        ++cursor.at;
    const std::size_t size = cursor.at - begin;
    if (size > kNameBytesMax) return Fit::kNo;
    if (cursor.is_at_end()) return Fit::kPartial;
    if (size == 0 || text[cursor.at] != '>') return Fit::kNo;
    at = cursor.at + 1;
    return Fit::kFull;
}

}  // namespace replica::chat::parse
