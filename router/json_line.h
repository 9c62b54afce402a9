// JSON written straight into a line of text: one record per request goes into the log, and a tree
// built for it would cost more than all other work of a small request.
//
// Names are our own words and need no escaping; text of clients is escaped. Commas are placed here.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/json.h"

namespace router {

class JsonLine {
public:
    explicit JsonLine(std::string& out) : out_(out) {}

    void open(char bracket) {
        separate();
        out_ += bracket;
        is_first_ = true;
    }
    void close(char bracket) {
        out_ += bracket;
        is_first_ = false;
    }
    /// The next value belongs to `name`.
    void name(std::string_view name) {
        separate();
        out_ += '"';
        out_ += name;
        out_ += "\":";
        is_first_ = true;
    }

    void value(std::string_view text) {
        separate();
        proto::append_json_string(out_, text);
    }
    void value(const char* text) { value(std::string_view(text)); }
    void value(const std::string& text) { value(std::string_view(text)); }
    void value(bool is_true) { raw(is_true ? "true" : "false"); }
    void value(std::nullptr_t) { raw("null"); }
    /// The shortest text that reads back as the same number; null for what JSON cannot say.
    void value(double number) {
        if (!std::isfinite(number)) return raw("null");
        digits(number);
    }
    template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>) void value(T number) {
        digits(number);
    }
    template <class T>
    void value(const std::optional<T>& given) {
        if (given) {
            value(*given);
        } else {
            value(nullptr);
        }
    }

    template <class T>
    void member(std::string_view key, const T& given) {
        name(key);
        value(given);
    }

private:
    void separate() {
        if (!std::exchange(is_first_, false)) out_ += ',';
    }
    void raw(std::string_view text) {
        separate();
        out_ += text;
    }
    template <class T>
    void digits(T number) {
        std::array<char, 32> text{};
        const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
        raw({text.data(), static_cast<std::size_t>(end - text.data())});
    }

    std::string& out_;
    bool is_first_ = true;
};

}  // namespace router
