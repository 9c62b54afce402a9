// The split rule: the sum of the deltas depends on the text and the way it ended, never on how it
// was cut. Checked on cases split at every byte, at pairs of bytes, byte by byte, for each prefix
// and each finish; and on random tag soup, where also every letter must come out again, in order.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

// Sanitizers make each case some ten times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSoupCount = 5'000;
constexpr std::size_t kPairStride = 7;
#else
constexpr int kSoupCount = 100'000;
constexpr std::size_t kPairStride = 1;
#endif

std::vector<ParseCase> cases() {
    const std::string call(kCall);
    const std::string bare(kCall.substr(kCall.find('\n') + 1));
    std::vector<ParseCase> result;
    for (const ParserState initial :
         {ParserState::kStart, ParserState::kReasoning, ParserState::kContent}) {
        for (const std::string& text :
             {"hm\n</think>\n\nLet me check.\n\n" + call, "Let me check.\n\n" + bare,
              call + "\n</function>\n</think>\n\nDone.", "a <think> b </think> c\n" + call + call,
              std::string("<think>\n<tool_call>\n<function=foo>\n</function>\n</think>ok"),
              std::string(
                  "<tool_call><function=write_file><parameter=text>\r\nuse </tool_call> and "
                  "</function>\nand </parameter> here\r\n</parameter>\n </function>"),
              std::string("<tool_call><function=ping>stray </b> text<parameter=a>1</parameter>"
                          "<parameter=a>2</parameter></function></tool_call>x")}) {
            result.push_back({.text = text, .initial = initial});
        }
        for (
            const char* const text :
            {R"(ok <tool_call>{"name": "ping", "arguments": {"a": "}</tool_call>", "b": [1]}}}</tool_call> x)",
             R"(<tool_call>{"arguments": "{\"a\": \"\\n\u00e9\"}", "name": "ping"}</tool_call>)",
             R"(<tool_call>{"name": "ping", "arguments": nul}</tool_call><tool_call>{"nam)"}) {
            result.push_back({.text = text, .initial = initial, .format = OutputFormat::kHermes});
        }
        result.push_back(
            {.text =
                 R"( <|python_tag|>{"name": "ping", "parameters": {"a": 1}}; {"name": "ping", "arguments": {}} x)",
             .initial = initial,
             .format = OutputFormat::kLlama3Json});
    }
    return result;
}

std::vector<std::string_view> bytes_of(std::string_view text) {
    std::vector<std::string_view> chunks;
    for (std::size_t i = 0; i < text.size(); ++i)
        chunks.push_back(text.substr(i, 1));
    return chunks;
}

TEST(OutputParserSplitTest, GivesTheSameHoweverTheTextIsCut) {
    for (const ParseCase& one : cases()) {
        const std::string_view text = one.text;
        for (const FinishKind finish : {FinishKind::kEnd, FinishKind::kLength}) {
            const std::string whole = to_line(parse(one, finish));
            ASSERT_EQ(to_line(parse_chunks(one, bytes_of(text), finish)), whole) << text;
            for (std::size_t i = 0; i <= text.size(); ++i) {
                ASSERT_EQ(to_line(parse_chunks(one, {text.substr(0, i), text.substr(i)}, finish)),
                          whole)
                    << text << " cut at " << i;
            }
            if (text.size() > 90) continue;
            for (std::size_t i = 0; i <= text.size(); i += kPairStride) {
                for (std::size_t k = i; k <= text.size(); k += kPairStride) {
                    const std::vector<std::string_view> chunks = {
                        text.substr(0, i), text.substr(i, k - i), text.substr(k)};
                    ASSERT_EQ(to_line(parse_chunks(one, chunks, finish)), whole)
                        << text << " cut at " << i << " and " << k;
                }
            }
        }
    }
}

TEST(OutputParserSplitTest, GivesTheSameForEveryPrefix) {
    for (const ParseCase& one : cases()) {
        for (std::size_t size = 0; size <= one.text.size(); ++size) {
            ParseCase prefix = one;
            prefix.text = one.text.substr(0, size);
            for (const FinishKind finish : {FinishKind::kEnd, FinishKind::kLength}) {
                ASSERT_EQ(to_line(parse_chunks(prefix, bytes_of(prefix.text), finish)),
                          to_line(parse(prefix, finish)))
                    << prefix.text;
            }
        }
    }
}

/// Everything the deltas hold, in the order in which it was sent.
std::string joined(const std::vector<OutputDelta>& deltas) {
    std::string text;
    for (const OutputDelta& delta : deltas) {
        if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) text += reasoning->text;
        if (const auto* content = std::get_if<ContentDelta>(&delta)) text += content->text;
        if (const auto* start = std::get_if<ToolCallStart>(&delta)) text += start->name;
        if (const auto* arguments = std::get_if<ToolCallArguments>(&delta)) text += arguments->text;
    }
    return text;
}

/// Without `</name>`: such a tag may be dropped, whatever its name.
std::string without_close_tags(std::string text) {
    for (std::size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at)) {
        std::size_t end = at + 2;
        while (end < text.size() && (std::isalpha(static_cast<unsigned char>(text[end])) != 0 ||
                                     text[end] == '_' || (text[end] >= '0' && text[end] <= '9'))) {
            ++end;
        }
        if (end < text.size() && text[end] == '>') {
            text.erase(at, end + 1 - at);
            at = 0;  // what stood around it may have become a tag
        } else {
            at = end;
        }
    }
    return text;
}

/// The capital letters: the soup has them in its plain words only, never in a tag.
std::string capitals(std::string_view all) {
    const std::string text = without_close_tags(std::string(all));
    std::string result;
    std::copy_if(text.begin(), text.end(), std::back_inserter(result),
                 [](char c) { return c >= 'A' && c <= 'Z'; });
    return result;
}

TEST(OutputParserSplitTest, LosesNothingOfTagSoup) {
    constexpr std::uint32_t kSeed = 20310203;
    std::mt19937 random(kSeed);
    const auto below = [&](std::size_t count) { return random() % count; };
    const std::vector<std::string> pieces = {"<tool_call>",
                                             "</tool_call>",
                                             "<function=ping>",
                                             "<function=get_weather>",
                                             "<function=foo>",
                                             "</function>",
                                             "<parameter=city>",
                                             "<parameter=days>",
                                             "<parameter=text>",
                                             "</parameter>",
                                             "<think>",
                                             "</think>",
                                             "</x>",
                                             "\n",
                                             " ",
                                             "\r\n",
                                             "<",
                                             "</",
                                             ">",
                                             "<tool_",
                                             "</param",
                                             "<func",
                                             "</thin",
                                             "<parameter=",
                                             "<function=",
                                             "=",
                                             "\"",
                                             "{",
                                             "}",
                                             "{\"name\": \"ping\"",
                                             ", \"arguments\": {\"a\": 1}}",
                                             ";",
                                             "null",
                                             "2"};
    for (int i = 0; i < kSoupCount; ++i) {
        ParseCase one;
        one.initial = static_cast<ParserState>(below(3));
        one.format = static_cast<OutputFormat>(1 + below(3));
        char letter = 'A';
        for (std::size_t count = 1 + below(14); count > 0; --count) {
            // Every fourth piece is a letter of its own, so that order shows.
            if (below(4) == 0 && letter <= 'Z') {
                one.text += letter++;
            } else {
                one.text += pieces[below(pieces.size())];
            }
        }
        const FinishKind finish = below(2) == 0 ? FinishKind::kEnd : FinishKind::kLength;
        const std::string whole = to_line(parse(one, finish));
        const std::size_t cut = below(one.text.size() + 1);
        const std::string_view text = one.text;
        ASSERT_EQ(to_line(parse_chunks(one, {text.substr(0, cut), text.substr(cut)}, finish)),
                  whole)
            << "seed " << kSeed << ", case " << i << ": " << text;
        if (one.format != OutputFormat::kQwenXml) continue;

        ParserOptions options;
        options.format = one.format;
        options.initial = one.initial;
        options.tools = one.tools;
        OutputParser parser(options);
        std::vector<OutputDelta> deltas = parser.feed(text);
        const std::vector<OutputDelta> last = parser.finish(finish);
        deltas.insert(deltas.end(), last.begin(), last.end());
        // Repeated parameters go with their text: count only texts without one.
        const bool may_repeat = std::count(text.begin(), text.end(), '=') > 2;
        // A tag that the token limit cut goes as well: it is no text of the call.
        const std::size_t tag = text.rfind('<');
        const bool is_tag_cut = finish == FinishKind::kLength && tag != std::string_view::npos &&
                                text.find('>', tag) == std::string_view::npos;
        if (!may_repeat && !is_tag_cut) {
            ASSERT_EQ(capitals(joined(deltas)), capitals(text)) << "case " << i << ": " << text;
        }
    }
}

}  // namespace
}  // namespace replica::chat
