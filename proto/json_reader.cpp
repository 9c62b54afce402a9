#include "proto/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "proto/utf8.h"

namespace proto {
namespace {

/// How many bytes at the start of `text` are ASCII and mean themselves in a string. Prompts are
/// long and made of little else, so eight bytes are looked at in one step: a byte is special when
/// its high bit is set, when taking 0x20 from it borrows, or when it equals a quote or a backslash
/// (the exclusive or is then zero, and taking one borrows). A borrow may also mark the byte above,
/// which only ends the fast steps early.
std::size_t plain_length(std::string_view text) {
    constexpr std::uint64_t kOnes = 0x0101010101010101U;
    constexpr std::uint64_t kHighs = 0x8080808080808080U;
    std::size_t length = 0;
    for (; text.size() - length >= sizeof(std::uint64_t); length += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, text.data() + length, sizeof(word));
        const std::uint64_t quote = word ^ (kOnes * '"');
        const std::uint64_t slash = word ^ (kOnes * '\\');
        const std::uint64_t special =
            word | (word - kOnes * 0x20) | (quote - kOnes) | (slash - kOnes);
        if ((special & kHighs) != 0) break;
    }
    const auto is_plain = [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
    };
    while (length < text.size() && is_plain(text[length]))
        ++length;
    return length;
}

/// Recursive descent, one function per kind of value; recursion is bounded by depth_max before it
/// is entered. The first failure is kept and every function returns false from then on.
class Reader {
public:
    Reader(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

    Result<Json> read() {
        Json root;
        skip_space();
        if (at_end()) {
            refuse(ErrorCode::kInvalidJson, text_.empty() ? "the body is empty" : "no value", 0);
        } else if (read_value(root, 0)) {
            skip_space();
            if (!at_end()) refuse(ErrorCode::kInvalidJson, "bytes after the value", position_);
        }
        if (failed_) return tl::unexpected(std::move(error_));
        return root;
    }

private:
    using Member = std::pair<std::string, Json>;

    bool refuse(ErrorCode code, std::string_view what, std::size_t offset) {
        failed_ = true;
        error_.code = code;
        error_.message =
            "Invalid JSON at byte " + std::to_string(offset) + ": " + std::string(what) + ".";
        return false;
    }

    [[nodiscard]] bool at_end() const { return position_ == text_.size(); }
    [[nodiscard]] char peek() const { return text_[position_]; }

    void skip_space() {
        while (!at_end()) {
            const char c = peek();
            if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
            ++position_;
        }
    }

    bool read_value(Json& out, int depth) {
        if (++value_count_ > limits_.values_max) {
            return refuse(ErrorCode::kInvalidValue, "too many values", position_);
        }
        if (at_end()) return refuse(ErrorCode::kInvalidJson, "the text ends early", position_);
        switch (peek()) {
            case '{':
                return read_object(out, depth + 1);
            case '[':
                return read_array(out, depth + 1);
            case '"': {
                std::string text;
                if (!read_string(text)) return false;
                out = std::move(text);
                return true;
            }
            case 't':
                return read_word("true", true, out);
            case 'f':
                return read_word("false", false, out);
            case 'n':
                return read_word("null", nullptr, out);
            default:
                return read_number(out);
        }
    }

    template <class T>
    bool read_word(std::string_view word, T value, Json& out) {
        if (text_.substr(position_, word.size()) != word) {
            return refuse(ErrorCode::kInvalidJson, "unknown word", position_);
        }
        position_ += word.size();
        out = value;
        return true;
    }

    bool enter(int depth) {
        if (depth > limits_.depth_max) {
            return refuse(ErrorCode::kJsonTooDeep,
                          "more than " + std::to_string(limits_.depth_max) + " levels", position_);
        }
        ++position_;
        skip_space();
        return true;
    }

    bool read_array(Json& out, int depth) {
        if (!enter(depth)) return false;
        out = Json::array();
        auto& items = out.get_ref<Json::array_t&>();
        if (!at_end() && peek() == ']') return ++position_, true;
        while (true) {
            if (!read_value(items.emplace_back(), depth)) return false;
            skip_space();
            if (at_end())
                return refuse(ErrorCode::kInvalidJson, "an array is not closed", position_);
            const char c = peek();
            if (c != ',' && c != ']') {
                return refuse(ErrorCode::kInvalidJson, "expected ',' or ']'", position_);
            }
            ++position_;
            if (c == ']') return true;
            skip_space();
        }
    }

    bool read_object(Json& out, int depth) {
        const std::size_t begin = position_;
        if (!enter(depth)) return false;
        out = Json::object();
        if (!at_end() && peek() == '}') return ++position_, true;
        // Members of the objects that are open now, one above the other. They move into their
        // object when all are known: its vector has constant keys, so that growing it would copy
        // every value that is there already.
        const std::size_t first = open_members_.size();
        while (true) {
            if (open_members_.size() - first == limits_.members_max) {
                return refuse(ErrorCode::kInvalidValue, "an object has too many members",
                              position_);
            }
            std::string key;
            if (!read_key(key)) return false;
            Json value;
            if (!read_value(value, depth)) {
                // The value is out of range, so its sender wants to know the field.
                const bool is_field = depth == 1 && error_.code == ErrorCode::kInvalidValue;
                if (is_field) error_.param = printable(key, 64);
                return false;
            }
            open_members_.emplace_back(std::move(key), std::move(value));
            skip_space();
            if (at_end()) {
                return refuse(ErrorCode::kInvalidJson, "an object is not closed", position_);
            }
            const char c = peek();
            if (c != ',' && c != '}') {
                return refuse(ErrorCode::kInvalidJson, "expected ',' or '}'", position_);
            }
            ++position_;
            if (c == '}') break;
            skip_space();
        }
        const std::span<Member> mine = std::span(open_members_).subspan(first);
        if (!keys_are_unique(mine, begin)) return false;
        // The ordered map is a vector of pairs; its own insertion would search the whole of it.
        auto& members =
            static_cast<std::vector<Json::object_t::value_type>&>(out.get_ref<Json::object_t&>());
        members.reserve(mine.size());
        for (auto& [key, value] : mine)
            members.emplace_back(std::move(key), std::move(value));
        open_members_.resize(first);
        return true;
    }

    bool read_key(std::string& key) {
        const std::size_t begin = position_;
        if (at_end() || peek() != '"') {
            return refuse(ErrorCode::kInvalidJson, "expected a key in quotes", position_);
        }
        if (!read_string(key)) return false;
        if (key.size() > limits_.key_bytes_max) {
            return refuse(ErrorCode::kInvalidValue, "a key is too long", begin);
        }
        skip_space();
        if (at_end() || peek() != ':') {
            return refuse(ErrorCode::kInvalidJson, "expected ':'", position_);
        }
        ++position_;
        skip_space();
        return true;
    }

    bool keys_are_unique(std::span<const Member> members, std::size_t object_begin) {
        std::vector<std::string_view> keys;
        keys.reserve(members.size());
        for (const auto& member : members)
            keys.push_back(member.first);
        std::ranges::sort(keys);
        const auto twice = std::ranges::adjacent_find(keys);
        if (twice == keys.end()) return true;
        return refuse(
            ErrorCode::kDuplicateKey,
            "the object that starts here has the key '" + printable(*twice, 64) + "' twice",
            object_begin);
    }

    bool read_string(std::string& out) {
        const std::size_t begin = position_++;
        std::size_t run = position_;  // bytes from here on stand for themselves
        while (true) {
            position_ += plain_length(text_.substr(position_));
            if (at_end()) return refuse(ErrorCode::kInvalidJson, "a string is not closed", begin);
            const char c = peek();
            if (c == '"') {
                out.append(text_, run, position_ - run);
                return ++position_, true;
            }
            if (c == '\\') {
                out.append(text_, run, position_ - run);
                if (!read_escape(out)) return false;
                run = position_;
                continue;
            }
            if (static_cast<unsigned char>(c) < 0x20) {
                return refuse(ErrorCode::kInvalidJson, "a control byte in a string", position_);
            }
            const std::size_t length = utf8_sequence_length(text_.substr(position_, 4));
            if (length == 0) return refuse(ErrorCode::kInvalidJson, "invalid UTF-8", position_);
            position_ += length;
        }
    }

    bool read_escape(std::string& out) {
        const std::size_t begin = position_++;
        if (at_end()) return refuse(ErrorCode::kInvalidJson, "the text ends early", position_);
        const char c = text_[position_++];
        switch (c) {
            case '"':
            case '\\':
            case '/':
                out += c;
                return true;
            case 'b':
                out += '\b';
                return true;
            case 'f':
                out += '\f';
                return true;
            case 'n':
                out += '\n';
                return true;
            case 'r':
                out += '\r';
                return true;
            case 't':
                out += '\t';
                return true;
            case 'u':
                break;
            default:
                return refuse(ErrorCode::kInvalidJson, "unknown escape", begin);
        }
        std::uint32_t code = 0;
        if (!read_hex4(code)) return false;
        if (code >= 0xDC00 && code <= 0xDFFF) {
            return refuse(ErrorCode::kInvalidJson, "a lone surrogate", begin);
        }
        if (code >= 0xD800 && code <= 0xDBFF) {
            std::uint32_t low = 0;
            if (text_.substr(position_, 2) != "\\u") {
                return refuse(ErrorCode::kInvalidJson, "a lone surrogate", begin);
            }
            position_ += 2;
            if (!read_hex4(low)) return false;
            if (low < 0xDC00 || low > 0xDFFF) {
                return refuse(ErrorCode::kInvalidJson, "a lone surrogate", begin);
            }
            code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
        }
        append_utf8(out, code);
        return true;
    }

    bool read_hex4(std::uint32_t& out) {
        const std::string_view digits = text_.substr(position_, 4);
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
        // from_chars takes a '-' for signed types only, so four characters are four digits.
        if (digits.size() != 4 || error != std::errc{} || end != digits.data() + 4) {
            return refuse(ErrorCode::kInvalidJson, "expected four hex digits", position_);
        }
        position_ += 4;
        return true;
    }

    static void append_utf8(std::string& out, std::uint32_t code) {
        const auto tail = [](std::uint32_t bits) {
            return static_cast<char>(0x80U | (bits & 0x3FU));
        };
        if (code < 0x80) {
            out += static_cast<char>(code);
        } else if (code < 0x800) {
            out += static_cast<char>(0xC0U | (code >> 6U));
            out += tail(code);
        } else if (code < 0x10000) {
            out += static_cast<char>(0xE0U | (code >> 12U));
            out += tail(code >> 6U);
            out += tail(code);
        } else {
            out += static_cast<char>(0xF0U | (code >> 18U));
            out += tail(code >> 12U);
            out += tail(code >> 6U);
            out += tail(code);
        }
    }

    std::size_t skip_digits() {
        const std::size_t begin = position_;
        while (!at_end() && peek() >= '0' && peek() <= '9')
            ++position_;
        return position_ - begin;
    }

    bool read_number(Json& out) {
        const std::size_t begin = position_;
        const bool is_negative = peek() == '-';
        if (is_negative) ++position_;
        const std::size_t integer_begin = position_;
        const std::size_t integer_digits = skip_digits();
        if (integer_digits == 0) return refuse(ErrorCode::kInvalidJson, "expected a value", begin);
        if (integer_digits > 1 && text_[integer_begin] == '0') {
            return refuse(ErrorCode::kInvalidJson, "a number with a leading zero", begin);
        }
        bool is_integer = true;
        if (!at_end() && peek() == '.') {
            is_integer = false;
            ++position_;
            if (skip_digits() == 0) {
                return refuse(ErrorCode::kInvalidJson, "a number without fraction digits", begin);
            }
        }
        if (!at_end() && (peek() == 'e' || peek() == 'E')) {
            is_integer = false;
            ++position_;
            if (!at_end() && (peek() == '+' || peek() == '-')) ++position_;
            if (skip_digits() == 0) {
                return refuse(ErrorCode::kInvalidJson, "a number without exponent digits", begin);
            }
        }
        const std::string_view digits = text_.substr(begin, position_ - begin);
        return is_integer ? store_integer(digits, is_negative, begin, out)
                          : store_float(digits, begin, out);
    }

    bool store_integer(std::string_view digits, bool is_negative, std::size_t begin, Json& out) {
        const char* const end = digits.data() + digits.size();
        if (is_negative) {
            std::int64_t value = 0;
            if (std::from_chars(digits.data(), end, value).ec == std::errc{}) {
                out = value;
                return true;
            }
        } else {
            std::uint64_t value = 0;
            if (std::from_chars(digits.data(), end, value).ec == std::errc{}) {
                out = value;
                return true;
            }
        }
        return refuse(ErrorCode::kInvalidValue, "an integer beyond 64 bits", begin);
    }

    bool store_float(std::string_view digits, std::size_t begin, Json& out) {
        double value = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error == std::errc::result_out_of_range) {
            // from_chars reports underflow the same way; a number too small to hold is zero.
            if (!is_tiny(digits)) {
                return refuse(ErrorCode::kInvalidJson, "a number beyond the range of doubles",
                              begin);
            }
            value = 0;
        } else if (error != std::errc{} || end != digits.data() + digits.size()) {
            return refuse(ErrorCode::kInvalidJson, "a malformed number", begin);
        }
        out = value;
        return true;
    }

    /// Whether a number that does not fit a double is too small rather than too large: the decimal
    /// exponent of its first digit that is not zero is negative.
    static bool is_tiny(std::string_view digits) {
        const std::size_t e = std::min(digits.find_first_of("eE"), digits.size());
        const std::string_view mantissa = digits.substr(0, e);
        const std::size_t first = mantissa.find_first_of("123456789");
        if (first == std::string_view::npos) return true;
        const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
        const auto place = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
        std::int64_t exponent = 0;
        if (e < digits.size()) {
            std::string_view text = digits.substr(e + 1);
            if (text.front() == '+') text.remove_prefix(1);
            const bool exponent_is_negative = text.front() == '-';
            if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec !=
                std::errc{}) {
                return exponent_is_negative;
            }
        }
        return exponent < -place;
    }

    std::string_view text_;
    const JsonLimits& limits_;
    std::vector<Member> open_members_;
    std::size_t position_ = 0;
    std::size_t value_count_ = 0;
    bool failed_ = false;
    ApiError error_;
};

}  // namespace

Result<Json> read_json(std::string_view text, const JsonLimits& limits) {
    return Reader(text, limits).read();
}

Result<Json> read_json_object(std::string_view text, const JsonLimits& limits) {
    Result<Json> value = read_json(text, limits);
    if (value && !value->is_object()) {
        return fail(ErrorCode::kInvalidType, "The body must be a JSON object.");
    }
    return value;
}

}  // namespace proto
