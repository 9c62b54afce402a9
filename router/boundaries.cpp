#include "router/boundaries.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <variant>

namespace router {
namespace {

using proto::Json;

/// What a template renders of a message; clients send other keys back, and not always the same.
constexpr std::array<const char*, 6> kRenderedFields = {
    "role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"};

/// Hashes a parsed value and counts the bytes of text it will put into the prompt. As deep as the
/// body, whose depth the parser has bounded.
std::size_t add_json(SipHasher& hash, const Json& value) {
    hash.add_number(static_cast<std::uint64_t>(value.type()));
    std::size_t bytes = 0;
    switch (value.type()) {
        case Json::value_t::object:
            hash.add_number(value.size());
            for (const auto& [key, member] : value.items()) {
                hash.add_text(key);
                bytes += key.size() + add_json(hash, member);
            }
            return bytes;
        case Json::value_t::array:
            hash.add_number(value.size());
            for (const Json& element : value)
                bytes += add_json(hash, element);
            return bytes;
        case Json::value_t::string: {
            const auto& text = value.get_ref<const std::string&>();
            hash.add_text(text);
            return text.size();
        }
        default: {
            const std::string text = proto::json_text(value);
            hash.add_text(text);
            return text.size();
        }
    }
}

std::size_t add_message(SipHasher& hash, const Json& message) {
    std::size_t bytes = 0;
    for (const char* field : kRenderedFields) {
        const auto at = message.find(field);
        hash.add_number(at == message.end() ? 0 : 1);
        if (at != message.end()) bytes += add_json(hash, *at);
    }
    return bytes;
}

bool is_system(const Json& message) {
    const auto role = message.find("role");
    return role != message.end() && *role == "system";
}

/// Chat, text and ids never share a boundary, nor a key and a user a tie-break.
enum class PromptKind : std::uint8_t { kChat, kText, kIds, kCacheKey, kUser };

SipHasher first_of(const proto::GenerationRequest& request, const BoundaryOptions& options,
                   PromptKind kind) {
    SipHasher hash(options.key);
    hash.add_number(static_cast<std::uint64_t>(kind));
    hash.add_text(options.model);
    hash.add_text(request.cache_salt);
    hash.add_text(options.isolate);
    return hash;
}

std::uint64_t cache_key_of(const proto::GenerationRequest& request,
                           const BoundaryOptions& options) {
    const bool has_key = !request.prompt_cache_key.empty();
    const std::string& hint = has_key ? request.prompt_cache_key : request.user;
    if (hint.empty()) return 0;
    SipHasher hash =
        first_of(request, options, has_key ? PromptKind::kCacheKey : PromptKind::kUser);
    hash.add_text(hint);
    return std::max<std::uint64_t>(1, hash.value());
}

/// Turns lengths in bytes into tokens, by the estimate of the whole.
void scale_to_tokens(std::vector<Boundary>& list, std::size_t bytes, std::int64_t tokens) {
    const double per_byte =
        static_cast<double>(tokens) / static_cast<double>(std::max<std::size_t>(1, bytes));
    for (Boundary& boundary : list) {
        boundary.tokens =
            static_cast<std::int64_t>(static_cast<double>(boundary.tokens) * per_byte);
    }
}

}  // namespace

std::vector<Boundary> worth_keeping(std::vector<Boundary> all) {
    const auto first = std::find_if(all.begin(), all.end(), [](const Boundary& one) {
        return one.tokens >= kBoundaryTokensMin;
    });
    all.erase(all.begin(), first);
    if (all.size() > kBoundariesFirst + kBoundariesLast) {
        all.erase(all.begin() + kBoundariesFirst,
                  all.end() - static_cast<std::ptrdiff_t>(kBoundariesLast));
    }
    return all;
}

Boundaries boundaries_of(const proto::ChatRequest& request, const BoundaryOptions& options) {
    Boundaries result;
    result.prompt_tokens = options.prompt_tokens;
    result.cache_key = cache_key_of(request, options);
    SipHasher hash = first_of(request, options, PromptKind::kChat);
    std::size_t bytes = add_json(hash, request.tools);
    (void)add_json(hash, request.chat_template_kwargs);
    hash.add_text(request.chat_template.value_or(""));
    hash.add_number(request.enable_thinking ? 1 + (*request.enable_thinking ? 1 : 0) : 0);
    hash.add_number(
        request.reasoning_effort ? 1 + static_cast<std::uint64_t>(*request.reasoning_effort) : 0);

    const Json& messages = request.messages;
    std::size_t i = 0;
    for (; i < messages.size() && is_system(messages[i]); ++i)
        bytes += add_message(hash, messages[i]);
    std::vector<Boundary> list;
    const auto mark = [&] { list.push_back({hash.value(), static_cast<std::int64_t>(bytes)}); };
    if (bytes > 0) mark();
    for (; i < messages.size(); ++i) {
        bytes += add_message(hash, messages[i]);
        mark();
    }
    scale_to_tokens(list, bytes, options.prompt_tokens);
    result.list = worth_keeping(std::move(list));
    return result;
}

Boundaries boundaries_of(const proto::CompletionRequest& request, const BoundaryOptions& options) {
    Boundaries result;
    result.prompt_tokens = options.prompt_tokens;
    result.cache_key = cache_key_of(request, options);
    if (request.prompts.size() != 1) return result;
    const bool is_text = std::holds_alternative<std::string>(request.prompts.front());
    SipHasher hash = first_of(request, options, is_text ? PromptKind::kText : PromptKind::kIds);
    std::vector<Boundary> list;
    if (const auto* text = std::get_if<std::string>(&request.prompts.front())) {
        for (std::size_t end = kCompletionBoundaryBytes; end <= text->size();
             end += kCompletionBoundaryBytes) {
            hash.add_bytes(std::string_view(*text).substr(end - kCompletionBoundaryBytes,
                                                          kCompletionBoundaryBytes));
            list.push_back({hash.value(), static_cast<std::int64_t>(end)});
        }
        scale_to_tokens(list, text->size(), options.prompt_tokens);
    } else {
        const auto& ids = std::get<std::vector<std::int32_t>>(request.prompts.front());
        for (std::size_t end = kCompletionBoundaryIds; end <= ids.size();
             end += kCompletionBoundaryIds) {
            const auto* bytes =
                reinterpret_cast<const char*>(ids.data() + end - kCompletionBoundaryIds);
            hash.add_bytes({bytes, kCompletionBoundaryIds * sizeof(std::int32_t)});
            list.push_back({hash.value(), static_cast<std::int64_t>(end)});
        }
    }
    result.list = worth_keeping(std::move(list));
    return result;
}

}  // namespace router
