#include "proto/response_parts.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <sys/random.h>

namespace proto {

std::string make_id(std::string_view prefix) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::array<unsigned char, 12> bytes{};
    static_cast<void>(::getrandom(bytes.data(), bytes.size(), 0));
    std::string id(prefix);
    for (const unsigned char byte : bytes) {
        id += kHex[byte >> 4U];
        id += kHex[byte & 0xFU];
    }
    return id;
}

void append_string_member(std::string& out, std::string_view key, std::string_view text) {
    if (!out.empty() && out.back() != '{') out += ',';
    append_json_string(out, key);
    out += ':';
    append_json_string(out, text);
}

void append_head_members(std::string& out, const ResponseHead& head, std::string_view object) {
    append_string_member(out, "id", head.id);
    append_string_member(out, "object", object);
    out += ",\"created\":" + std::to_string(head.created);
    append_string_member(out, "model", head.model);
    append_string_member(out, "system_fingerprint", head.system_fingerprint);
}

void append_stop_reason(std::string& out, const StopReason& reason) {
    if (const auto* text = std::get_if<std::string>(&reason)) {
        append_json_string(out, *text);
    } else if (const auto* id = std::get_if<std::int64_t>(&reason)) {
        out += std::to_string(*id);
    } else {
        out += "null";
    }
}

void append_token_ids(std::string& out, const std::vector<std::int32_t>& ids) {
    out += '[';
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) out += ',';
        out += std::to_string(ids[i]);
    }
    out += ']';
}

void append_number(std::string& out, double value) {
    constexpr double kLeast = -9999.0;  // JSON has no infinity; a probability of zero reads so
    if (!std::isfinite(value)) value = kLeast;
    std::array<char, 32> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
    out.append(text.data(), end);
}

void append_timings(std::string& out, const std::optional<Timings>& timings) {
    if (!timings) return;
    out += R"(,"timings":{"queue_ms":)";
    append_number(out, timings->queue_ms);
    out += R"(,"prefill_ms":)";
    append_number(out, timings->prefill_ms);
    out += R"(,"decode_ms":)";
    append_number(out, timings->decode_ms);
    out += R"(,"drafted":)" + std::to_string(timings->drafted);
    out += R"(,"accepted":)" + std::to_string(timings->accepted) + "}";
}

std::string usage_json(const Usage& usage) {
    const auto number = [](std::int64_t value) { return std::to_string(value); };
    return R"({"prompt_tokens":)" + number(usage.prompt_tokens) + R"(,"completion_tokens":)" +
           number(usage.completion_tokens) + R"(,"total_tokens":)" +
           number(usage.prompt_tokens + usage.completion_tokens) +
           R"(,"prompt_tokens_details":{"cached_tokens":)" + number(usage.cached_tokens) +
           R"(},"completion_tokens_details":{"reasoning_tokens":)" +
           number(usage.reasoning_tokens) +
           R"(,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}})";
}

std::string model_json(const ModelInfo& model) {
    const Json json = {
        {"id", model.id},
        {"object", "model"},
        {"created", model.created},
        {"owned_by", "quadriga"},
        {"max_model_len", model.max_model_len},
        {"meta",
         {{"n_ctx_train", model.n_ctx_train},
          {"n_params", model.n_params},
          {"size_bytes", model.size_bytes},
          {"arch", model.arch}}},
    };
    return json_text(json);
}

std::string models_json(const std::vector<ModelInfo>& models) {
    std::string out = R"({"object":"list","data":[)";
    for (std::size_t i = 0; i < models.size(); ++i) {
        if (i > 0) out += ',';
        out += model_json(models[i]);
    }
    return out + "]}";
}

}  // namespace proto
