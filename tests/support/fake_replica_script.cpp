// The deterministic part of the fake: what a request asks for, and the bytes it gets.
#include <array>
#include <charconv>
#include <functional>
#include <string_view>

#include "proto/json.h"
#include "proto/sse.h"
#include "tests/support/fake_replica.h"

namespace fake {
namespace {

/// As many bytes a token as the router assumes before it has learned better: the tests are about
/// balance, not about estimates.
constexpr double kBytesPerToken = 3.5;

std::int64_t tokens_of(const std::string& text) {
    return 1 + static_cast<std::int64_t>(static_cast<double>(text.size()) / kBytesPerToken);
}

std::string content_json(int n) {
    return proto::json_string(token_text(n));
}

}  // namespace

std::optional<std::int64_t> directive(const std::string& text, const std::string& name) {
    const std::size_t at = text.find(name + "=");
    if (at == std::string::npos) return std::nullopt;
    const char* begin = text.data() + at + name.size() + 1;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    return value;
}

Script read_script(const Options& options, const std::string& path, const std::string& body) {
    const proto::Json tree = proto::Json::parse(body);
    Script script;
    script.is_chat = path == "/v1/chat/completions";
    script.is_stream = tree.value("stream", false);
    std::string text;
    std::optional<std::int64_t> prompt_tokens;
    if (script.is_chat) {
        for (const auto& message : tree.at("messages")) {
            if (message.at("content").is_string()) text += message.at("content").get<std::string>();
            script.ends.push_back({std::hash<std::string>{}(text), tokens_of(text)});
        }
    } else if (const auto& prompt = tree.at("prompt"); prompt.is_string()) {
        text = prompt.get<std::string>();
    } else {
        prompt_tokens = static_cast<std::int64_t>(prompt.size());
    }
    script.prompt_tokens = prompt_tokens.value_or(tokens_of(text));
    script.ttft =
        std::chrono::milliseconds(directive(text, "ttft_ms").value_or(options.ttft.count()));
    script.token =
        std::chrono::milliseconds(directive(text, "token_ms").value_or(options.token.count()));
    script.hold_after = directive(text, "hold_after");
    script.tokens = static_cast<int>(directive(text, "tokens").value_or(options.tokens));
    if (tree.contains("max_tokens")) {
        script.tokens = std::min(script.tokens, tree.at("max_tokens").get<int>());
    }
    script.has_fault_text =
        options.events_on.empty() || text.find(options.events_on) != std::string::npos;
    script.has_die_text = !options.die_on.empty() && text.find(options.die_on) != std::string::npos;
    return script;
}

std::string token_text(int n) {
    static constexpr std::array<std::string_view, 6> kTexts = {
        "horse ", "四頭の馬", "🐎", "naïve ", "말", "👩‍🌾 "};
    return std::string(kTexts.at(static_cast<std::size_t>(n) % kTexts.size()));
}

std::string chunk_event(const Script& script, int n) {
    if (!script.is_chat) {
        return proto::sse_data(
            R"({"id":"cmpl-fake","object":"text_completion","choices":[{"text":)" +
            content_json(n) + R"(,"index":0,"finish_reason":null}]})");
    }
    return proto::sse_data(
        R"({"id":"chatcmpl-fake","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":)" +
        content_json(n) + R"(},"finish_reason":null}]})");
}

std::string finish_event(const Script& script) {
    return proto::sse_data(
        script.is_chat
            ? R"({"id":"chatcmpl-fake","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})"
            : R"({"id":"cmpl-fake","object":"text_completion","choices":[{"text":"","index":0,"finish_reason":"stop"}]})");
}

std::string whole_answer(const Script& script) {
    std::string text;
    for (int i = 0; i < script.tokens; ++i)
        text += token_text(i);
    const std::string usage = R"("usage":{"prompt_tokens":)" +
                              std::to_string(script.prompt_tokens) + R"(,"completion_tokens":)" +
                              std::to_string(script.tokens) + "}";
    if (!script.is_chat) {
        return R"({"id":"cmpl-fake","object":"text_completion","choices":[{"text":)" +
               proto::json_string(text) + R"(,"index":0,"finish_reason":"stop"}],)" + usage + "}";
    }
    return R"({"id":"chatcmpl-fake","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":)" +
           proto::json_string(text) + R"(},"finish_reason":"stop"}],)" + usage + "}";
}

}  // namespace fake
