// The output parser, fed as the server feeds it: bytes of tokens through the stream decoder.
//
//   byte 0: seed of the cuts   byte 1: format and first state   byte 2: flags   byte 3: the limit
//   of undecided text, 0 is the usual one   rest: the bytes of the tokens
//
// Holds: the message does not depend on how the text was cut, neither by the decoder nor by the
// parser; deltas are not empty and come in order; undecided text is bounded; reasoning and content
// are copies of the bytes that the origins say; without calls and tags all is content; the
// arguments of an XML-like call are a JSON object, or begin one when the token limit cut it; string
// arguments that were sent before such a cut begin those of the whole.
#include <algorithm>
#include <cassert>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/utf8.h"
#include "replica/chat/output_parser.h"
#include "replica/tokenizer/stream_decoder.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using replica::chat::FinishKind;
using replica::chat::Json;
using replica::chat::OutputDelta;
using replica::chat::OutputFormat;
using replica::chat::OutputParser;
using replica::chat::ParsedMessage;
using replica::chat::ParserOptions;
using replica::chat::ParserState;

const Json& tools() {
    static const Json declared = Json::parse(R"([
        {"type": "function", "function": {"name": "ping"}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
            "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
            "a": {"type": "array"}, "o": {"type": "object"}, "z": {"type": ["null", "integer", "string"]},
            "u": {"anyOf": [{"type": "boolean"}, {"type": "object"}]}}}}}])");
    return declared;
}

const Json& tools_of_strings() {
    static const Json declared =
        Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    return declared;
}

std::string decode_pieces(std::string_view bytes, std::uint64_t seed) {
    replica::StreamDecoder decoder;
    std::string text;
    fuzz::in_pieces(bytes, seed, [&](std::string_view piece) {
        decoder.feed(piece, text);
        assert(decoder.pending().size() <= 3);
    });
    decoder.finish(text);
    assert(proto::find_broken_utf8(text) == std::string::npos);
    return text;
}

/// The deltas of one generation, checked as they come.
class Generation {
public:
    explicit Generation(const ParserOptions& options)
        : undecided_max_(options.undecided_max), parser_(options) {}

    void feed(std::string_view text) {
        fed_ += text;
        take(parser_.feed(text));
        assert(parser_.decided_bytes() <= fed_.size());
        assert(fed_.size() - parser_.decided_bytes() <= undecided_max_);
    }
    ParsedMessage finish(FinishKind kind) {
        take(parser_.finish(kind));
        assert(parser_.decided_bytes() == fed_.size() && "nothing is left");
        assert(parser_.tool_call_count() == static_cast<int>(message_.tool_calls.size()));
        return message_;
    }

private:
    void take(const std::vector<OutputDelta>& deltas) {
        for (const OutputDelta& delta : deltas)
            std::visit([&](const auto& one) { check(one); }, delta);
        replica::chat::accumulate(message_, deltas);
        for (const replica::chat::TextOrigin& origin : parser_.take_origins())
            copy(origin);
        assert(copied_.reasoning == message_.reasoning && copied_.content == message_.content);
    }
    void copy(const replica::chat::TextOrigin& origin) {
        assert(origin.bytes.begin >= origins_end_ && origin.bytes.begin < origin.bytes.end);
        origins_end_ = origin.bytes.end;
        assert(origins_end_ <= parser_.decided_bytes());
        const bool is_reasoning = origin.kind == replica::chat::TextOrigin::Kind::kReasoning;
        std::string& into = is_reasoning ? copied_.reasoning : copied_.content;
        into.append(fed_, origin.bytes.begin, origin.bytes.end - origin.bytes.begin);
    }
    void check(const replica::chat::ReasoningDelta& delta) { assert(!delta.text.empty()); }
    void check(const replica::chat::ContentDelta& delta) { assert(!delta.text.empty()); }
    void check(const replica::chat::ToolCallStart& delta) {
        assert(delta.index == calls_++ && !delta.id.empty());
    }
    void check(const replica::chat::ToolCallArguments& delta) {
        assert(delta.index == calls_ - 1 && !delta.text.empty());
    }

    std::size_t undecided_max_;
    OutputParser parser_;
    ParsedMessage message_, copied_;
    std::string fed_;
    std::size_t origins_end_ = 0;
    int calls_ = 0;
};

ParsedMessage parse(std::string_view text, const ParserOptions& options, FinishKind kind) {
    Generation generation(options);
    if (!text.empty()) generation.feed(text);
    return generation.finish(kind);
}

ParsedMessage parse_pieces(std::string_view text, const ParserOptions& options, FinishKind kind,
                           std::uint64_t seed) {
    Generation generation(options);
    fuzz::in_pieces(text, seed, [&](std::string_view piece) { generation.feed(piece); });
    return generation.finish(kind);
}

bool is_same(const ParsedMessage& a, const ParsedMessage& b) {
    if (a.reasoning != b.reasoning || a.content != b.content) return false;
    const auto is_same_call = [](const auto& x, const auto& y) {
        return x.id == y.id && x.name == y.name && x.arguments == y.arguments;
    };
    return std::equal(a.tool_calls.begin(), a.tool_calls.end(), b.tool_calls.begin(),
                      b.tool_calls.end(), is_same_call);
}

/// The arguments of complete calls are an object; those of the last, cut one begin one.
void check_arguments(const ParsedMessage& message, FinishKind kind) {
    for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
        const std::string& arguments = message.tool_calls[i].arguments;
        const bool may_be_cut = kind == FinishKind::kLength && i + 1 == message.tool_calls.size();
        const Json value = Json::parse(arguments, nullptr, false);
        assert(value.is_object() || (may_be_cut && (arguments.empty() || arguments[0] == '{')));
    }
}

/// Sent is sent: what a generation has given when the token limit cuts it is the beginning of what
/// it gives without that limit. True of arguments that are strings; other values are written
/// complete, and a cut one is completed as well as it can be.
void check_cut(const ParsedMessage& cut, const ParsedMessage& whole) {
    assert(cut.tool_calls.size() <= whole.tool_calls.size());
    for (std::size_t i = 0; i < cut.tool_calls.size(); ++i) {
        assert(cut.tool_calls[i].name == whole.tool_calls[i].name);
        assert(whole.tool_calls[i].arguments.starts_with(cut.tool_calls[i].arguments));
    }
}

std::size_t character_border(std::string_view text, std::size_t at) {
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U)
        ++at;
    return std::min(at, text.size());
}

ParserOptions options_of(unsigned kinds, unsigned flags) {
    ParserOptions options;
    options.format = static_cast<OutputFormat>(kinds & 3U);
    options.initial = static_cast<ParserState>((kinds >> 2U) % 3U);
    options.calls_enabled = (flags & 1U) == 0;
    options.calls_in_reasoning = (flags & 2U) == 0;
    options.think_tags = (flags & 4U) == 0;
    if ((flags & 8U) == 0) options.tools = tools();
    if ((flags & 32U) != 0) options.tools = tools_of_strings();
    options.make_id = [] { return std::string("call_0"); };
    options.reports_origins = true;
    return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint64_t seed = input.byte();
    const unsigned kinds = input.byte();
    const unsigned flags = input.byte();
    ParserOptions options = options_of(kinds, flags);
    if (const std::size_t limit = input.byte(); limit != 0) options.undecided_max = limit;
    const std::string_view bytes = input.rest();
    const FinishKind kind = (flags & 16U) == 0 ? FinishKind::kEnd : FinishKind::kLength;

    const std::string text = decode_pieces(bytes, 0);
    assert(decode_pieces(bytes, seed + 1) == text);

    const ParsedMessage whole = parse(text, options, kind);
    assert(is_same(parse_pieces(text, options, kind, 0), whole));
    assert(is_same(parse_pieces(text, options, kind, seed + 1), whole));

    const bool has_calls =
        options.calls_enabled && !options.tools.empty() && options.format != OutputFormat::kNone;
    assert(has_calls || whole.tool_calls.empty());
    if (!has_calls && (options.initial == ParserState::kContent ||
                       (options.initial == ParserState::kStart && !options.think_tags))) {
        assert(whole.reasoning.empty() && whole.content == text);
    }
    if (options.format != OutputFormat::kQwenXml) return 0;
    check_arguments(whole, kind);
    if ((flags & 32U) == 0) return 0;
    const std::size_t cut = character_border(text, static_cast<std::size_t>(seed) * 2);
    check_cut(parse(std::string_view(text).substr(0, cut), options, FinishKind::kLength), whole);
    return 0;
}
