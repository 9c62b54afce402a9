#include "router/answer_end.h"

#include "proto/json_reader.h"
#include "proto/status.h"

namespace router {
namespace {

using proto::Json;

/// A usage with all its details is a few hundred bytes, and little comes behind it.
constexpr std::size_t kUsageBytesMax = std::size_t{4} << 10;
constexpr std::string_view kUsage = R"("usage":)";

/// False when the member is there and is no count of tokens.
bool read_count(const Json& object, const char* name, std::optional<std::int64_t>& into) {
    const auto at = object.find(name);
    if (at == object.end() || at->is_null()) return true;
    if (!at->is_number_unsigned()) return false;
    const auto value = at->get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(proto::kReportedTokensMax)) return false;
    into = static_cast<std::int64_t>(value);
    return true;
}

bool read_usage(const Json& usage, AnswerEnd& end) {
    if (usage.is_null()) return true;  // in all chunks but the last
    if (!usage.is_object()) return false;
    const auto details = usage.find("prompt_tokens_details");
    const bool has_details = details != usage.end() && details->is_object();
    return read_count(usage, "prompt_tokens", end.prompt_tokens) &&
           read_count(usage, "completion_tokens", end.generated_tokens) &&
           (!has_details || read_count(*details, "cached_tokens", end.cached_tokens));
}

void read_finish_reason(const Json& event, AnswerEnd& end) {
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    const Json& first = choices->front();
    if (!first.is_object()) return;
    const auto reason = first.find("finish_reason");
    if (reason != first.end() && reason->is_string()) end.finish_reason = *reason;
}

/// The object that begins `text`; empty when it does not end within its bound. Braces in strings
/// would end it early or late, and the reader then refuses it.
std::string_view object_at(std::string_view text) {
    text = text.substr(0, kUsageBytesMax);
    int depth = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '{') ++depth;
        if (text[at] == '}' && --depth == 0) return text.substr(0, at + 1);
    }
    return {};
}

}  // namespace

std::optional<AnswerEnd> end_of_stream(const LastEvents& events) {
    AnswerEnd end;
    for (const std::string& event : events) {
        const bool is_none = event.empty() && &event == &events.front();
        if (is_none) continue;  // the stream had one event
        const auto tree = proto::read_json_object(event);
        if (!tree) return std::nullopt;
        const auto usage = tree->find("usage");
        if (usage != tree->end() && !read_usage(*usage, end)) return std::nullopt;
        read_finish_reason(*tree, end);
    }
    return end;
}

std::optional<AnswerEnd> end_of_whole(std::string_view body) {
    // Inside a string its quotes would be escaped, so this is the member.
    const std::size_t at = body.rfind(kUsage);
    if (at == std::string_view::npos) return std::nullopt;
    const std::size_t begin = body.find_first_not_of(" \t\r\n", at + kUsage.size());
    if (begin == std::string_view::npos || body[begin] != '{') return std::nullopt;
    const auto tree = proto::read_json_object(object_at(body.substr(begin)));
    AnswerEnd end;
    if (!tree || !read_usage(*tree, end) || !end.generated_tokens) return std::nullopt;
    return end;
}

}  // namespace router
