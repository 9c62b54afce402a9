#include "replica/tokenizer/pretokenizer.h"

#include <cassert>
#include <cstdint>

#include "replica/tokenizer/utf8.h"

namespace replica {
namespace {

/// The text as code points with their class; scanners work on indices into it.
struct Scan {
    struct Char {
        char32_t code_point;
        CharClass cls;
        std::size_t end;  // byte offset behind the character
    };
    std::vector<Char> chars;

    explicit Scan(std::string_view text) {
        chars.reserve(text.size());
        for (std::size_t position = 0; position < text.size();) {
            const Utf8Step step = decode_utf8(text, position);
            assert(step.status == Utf8Status::kWhole && "the caller made the text valid UTF-8");
            position += step.length;
            chars.push_back({step.code_point, char_class(step.code_point), position});
        }
    }
};

/// A part of the text that one scanner sees as if it were the whole.
struct Range {
    std::size_t begin, end;
};

class Window {
public:
    Window(const Scan& scan, Range range) : scan_(scan), range_(range) {}

    std::size_t begin() const { return range_.begin; }
    std::size_t end() const { return range_.end; }
    /// U+0000 behind the end: no rule asks for it.
    char32_t code_point(std::size_t i) const { return i < end() ? scan_.chars[i].code_point : 0; }
    bool is(std::size_t i, CharClass cls) const { return i < end() && scan_.chars[i].cls == cls; }
    CharClass cls(std::size_t i) const { return scan_.chars[i].cls; }
    bool is_line_break(std::size_t i) const {
        return i < end() && (code_point(i) == U'\r' || code_point(i) == U'\n');
    }
    template <class Predicate>
    std::size_t skip(std::size_t i, Predicate&& wanted) const {
        while (i < end() && wanted(i))
            ++i;
        return i;
    }

private:
    const Scan& scan_;
    Range range_;
};

enum class Contractions { kCaseSensitive, kAnyCase };

char32_t folded(char32_t c, Contractions contractions) {
    if (contractions == Contractions::kCaseSensitive) return c;
    if (c >= U'A' && c <= U'Z') return c + (U'a' - U'A');
    return c == 0x17F ? U's' : c;  // the long s folds to s
}

/// Length of 's 't 're 've 'm 'll 'd at `i`, 0 when there is none.
std::size_t contraction_at(const Window& text, std::size_t i, Contractions contractions) {
    if (text.code_point(i) != U'\'') return 0;
    const char32_t first = folded(text.code_point(i + 1), contractions);
    const char32_t second = folded(text.code_point(i + 2), contractions);
    if (first == U's' || first == U't' || first == U'm' || first == U'd') return 2;
    if ((first == U'r' && second == U'e') || (first == U'v' && second == U'e') ||
        (first == U'l' && second == U'l')) {
        return 3;
    }
    return 0;
}

struct QwenRules {
    bool marks_are_letters;
    std::size_t digits_max;
};

/// The qwen2 expression and its two relatives. Returns the end of the match at `i`, which is
/// always one character further at least: every character is in some alternative.
std::size_t qwen_match(const Window& text, std::size_t i, QwenRules rules) {
    const auto is_letter = [&](std::size_t at) {
        return text.is(at, CharClass::kLetter) ||
               (rules.marks_are_letters && text.is(at, CharClass::kMark));
    };
    const auto is_space = [&](std::size_t at) { return text.is(at, CharClass::kSpace); };
    const auto is_other = [&](std::size_t at) {
        return at < text.end() && !is_space(at) && !is_letter(at) &&
               !text.is(at, CharClass::kNumber);
    };
    if (const std::size_t n = contraction_at(text, i, Contractions::kAnyCase); n > 0) return i + n;
    // A letter run, with any one character in front that is no line break, letter or number.
    if (is_letter(i)) return text.skip(i, is_letter);
    if (!text.is_line_break(i) && !text.is(i, CharClass::kNumber) && is_letter(i + 1)) {
        return text.skip(i + 1, is_letter);
    }
    if (text.is(i, CharClass::kNumber)) {
        std::size_t end = i;
        while (end - i < rules.digits_max && text.is(end, CharClass::kNumber))
            ++end;
        return end;
    }
    // Symbols with an optional space in front and the line breaks behind.
    if (is_other(i) || (text.code_point(i) == U' ' && is_other(i + 1))) {
        const std::size_t symbols_end = text.skip(i + 1, is_other);
        return text.skip(symbols_end, [&](std::size_t at) { return text.is_line_break(at); });
    }
    // Whitespace: up to its last line break; else all but the last one, which belongs to the next
    // word, unless the text ends here.
    const std::size_t run_end = text.skip(i, is_space);
    for (std::size_t at = run_end; at > i; --at) {
        if (text.is_line_break(at - 1)) return at;
    }
    if (run_end == text.end() || run_end - i == 1) return run_end;
    return run_end - 1;
}

std::size_t gpt2_match(const Window& text, std::size_t i) {
    if (const std::size_t n = contraction_at(text, i, Contractions::kCaseSensitive); n > 0) {
        return i + n;
    }
    // A run of one kind (letters, numbers, the rest) with an optional space in front.
    const auto kind_of = [&](std::size_t at) {
        const CharClass cls = text.cls(at);
        const bool named = cls == CharClass::kLetter || cls == CharClass::kNumber;
        return named || cls == CharClass::kSpace ? cls : CharClass::kOther;
    };
    const std::size_t word =
        text.code_point(i) == U' ' && i + 1 < text.end() && kind_of(i + 1) != CharClass::kSpace
            ? i + 1
            : i;
    if (kind_of(word) != CharClass::kSpace) {
        const CharClass kind = kind_of(word);
        return text.skip(word, [&](std::size_t at) { return kind_of(at) == kind; });
    }
    const std::size_t run_end =
        text.skip(i, [&](std::size_t at) { return text.is(at, CharClass::kSpace); });
    if (run_end == text.end() || run_end - i == 1) return run_end;
    return run_end - 1;
}

/// `[\p{P}\$\+<=>\^~\|]+`: the end of the match at `i`, or `i` when there is none.
std::size_t punctuation_match(const Window& text, std::size_t i) {
    return text.skip(i, [&](std::size_t at) {
        constexpr std::u32string_view kSymbols = U"$+<=>^~|";
        return text.is(at, CharClass::kPunctuation) ||
               kSymbols.find(text.code_point(at)) != std::u32string_view::npos;
    });
}

std::size_t numbers_match(const Window& text, std::size_t i, std::size_t count_max) {
    std::size_t end = i;
    while (end - i < count_max && text.is(end, CharClass::kNumber))
        ++end;
    return end;
}

std::size_t three_digits_match(const Window& text, std::size_t i) {
    for (std::size_t at = i; at < i + 3; ++at) {
        if (text.code_point(at) < U'0' || text.code_point(at) > U'9') return i;
    }
    return i + 3;
}

/// Cuts every range by `match(window, i)`, which returns the end of a match at i or i itself;
/// what lies between two matches stays one piece.
template <class Match>
std::vector<Range> cut(const Scan& scan, const std::vector<Range>& ranges, Match&& match) {
    std::vector<Range> pieces;
    for (const Range& range : ranges) {
        const Window window(scan, range);
        std::size_t gap_begin = range.begin;
        for (std::size_t i = range.begin; i < range.end;) {
            const std::size_t end = match(window, i);
            if (end == i) {
                ++i;
                continue;
            }
            if (gap_begin < i) pieces.push_back({gap_begin, i});
            pieces.push_back({i, end});
            gap_begin = i = end;
        }
        if (gap_begin < range.end) pieces.push_back({gap_begin, range.end});
    }
    return pieces;
}

std::vector<Range> cut_by_kind(PreTokenizer kind, const Scan& scan) {
    const std::vector<Range> whole{{0, scan.chars.size()}};
    const auto qwen = [](QwenRules rules) {
        return [rules](const Window& w, std::size_t i) { return qwen_match(w, i, rules); };
    };
    constexpr std::size_t kAnyNumber = SIZE_MAX;
    const auto numbers = [](std::size_t count_max) {
        return
            [count_max](const Window& w, std::size_t i) { return numbers_match(w, i, count_max); };
    };
    switch (kind) {
        case PreTokenizer::kQwen2:
            return cut(scan, whole, qwen({.marks_are_letters = false, .digits_max = 1}));
        case PreTokenizer::kQwen35:
            return cut(scan, whole, qwen({.marks_are_letters = true, .digits_max = 1}));
        case PreTokenizer::kLlamaBpe:
            return cut(scan, whole, qwen({.marks_are_letters = false, .digits_max = 3}));
        case PreTokenizer::kGpt2:
            return cut(scan, whole, gpt2_match);
        case PreTokenizer::kSmollm:
            return cut(scan, cut(scan, whole, numbers(1)), gpt2_match);
        case PreTokenizer::kDefault: {
            const auto words = cut(scan, cut(scan, whole, punctuation_match), gpt2_match);
            return cut(scan, cut(scan, words, numbers(kAnyNumber)), three_digits_match);
        }
    }
    assert(false && "every kind has its case");
    return whole;
}

}  // namespace

std::optional<PreTokenizer> pre_tokenizer_by_name(std::string_view name) {
    struct Known {
        std::string_view name;
        PreTokenizer kind;
    };
    static constexpr Known kKnown[] = {
        {"qwen2", PreTokenizer::kQwen2},
        {"deepseek-r1-qwen", PreTokenizer::kQwen2},
        {"megrez", PreTokenizer::kQwen2},
        {"stablelm2", PreTokenizer::kQwen2},
        {"qwen35", PreTokenizer::kQwen35},
        {"llama-bpe", PreTokenizer::kLlamaBpe},
        {"llama3", PreTokenizer::kLlamaBpe},
        {"llama-v3", PreTokenizer::kLlamaBpe},
        {"falcon3", PreTokenizer::kLlamaBpe},
        {"pixtral", PreTokenizer::kLlamaBpe},
        {"gpt-2", PreTokenizer::kGpt2},
        {"phi-2", PreTokenizer::kGpt2},
        {"mpt", PreTokenizer::kGpt2},
        {"olmo", PreTokenizer::kGpt2},
        {"smollm", PreTokenizer::kSmollm},
        {"starcoder", PreTokenizer::kSmollm},
        {"refact", PreTokenizer::kSmollm},
        {"command-r", PreTokenizer::kSmollm},
        {"codeshell", PreTokenizer::kSmollm},
        {"default", PreTokenizer::kDefault},
    };
    for (const Known& known : kKnown) {
        if (known.name == name) return known.kind;
    }
    return std::nullopt;
}

bool is_llama3_family(PreTokenizer kind) {
    return kind == PreTokenizer::kLlamaBpe;
}

std::vector<std::size_t> split_pieces(PreTokenizer kind, std::string_view text) {
    const Scan scan(text);
    std::vector<std::size_t> ends;
    for (const Range& piece : cut_by_kind(kind, scan)) {
        ends.push_back(scan.chars[piece.end - 1].end);
    }
    return ends;
}

}  // namespace replica
