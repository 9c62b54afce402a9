#include "proto/generation_request.h"

#include <charconv>
#include <limits>

#include "proto/field_check.h"
#include "proto/limits.h"

namespace proto {
namespace {

/// The end of valid ids; an unknown vocabulary still bounds them by their type.
std::int64_t id_end(std::int64_t vocabulary) {
    return vocabulary > 0 ? vocabulary : std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
}

Result<void> take_stop_string(const Json& value, const std::string& param,
                              std::vector<std::string>& out) {
    if (!value.is_string()) return wrong_type(param, "a string");
    const std::string& text = value.get_ref<const std::string&>();
    if (text.empty() || text.size() > kStopStringBytesMax) {
        return fail(ErrorCode::kInvalidValue,
                    "A stop string has 1 to " + std::to_string(kStopStringBytesMax) + " bytes.",
                    param);
    }
    out.push_back(text);
    return {};
}

Result<void> read_stop(const Json& body, std::vector<std::string>& out) {
    const Json* const stop = find_member(body, "stop");
    if (stop == nullptr) return {};
    if (stop->is_string()) return take_stop_string(*stop, "stop", out);
    if (stop->size() > kStopStringsMax) {
        return fail(ErrorCode::kInvalidValue,
                    "At most " + std::to_string(kStopStringsMax) + " stop strings are accepted.",
                    "stop");
    }
    for (std::size_t i = 0; i < stop->size(); ++i) {
        if (Result<void> taken = take_stop_string((*stop)[i], indexed("stop", i), out); !taken) {
            return taken;
        }
    }
    return {};
}

Result<void> read_logit_bias(const Json& body, std::int64_t vocabulary,
                             std::vector<LogitBias>& out) {
    const Json* const biases = find_member(body, "logit_bias");
    if (biases == nullptr) return {};
    for (const auto& [key, value] : biases->get_ref<const Json::object_t&>()) {
        const std::string param = member_of("logit_bias", printable(key, 64));
        std::int64_t id = -1;
        const char* const end = key.data() + key.size();
        const auto [last, error] = std::from_chars(key.data(), end, id);
        // One spelling per id, so that the same one cannot stand there twice.
        const bool is_spelt_well = error == std::errc{} && last == end && std::to_string(id) == key;
        if (!is_spelt_well || id < 0 || id >= id_end(vocabulary)) {
            return fail(ErrorCode::kInvalidValue,
                        "'" + printable(key, 64) + "' is not a token id of this model.", param);
        }
        if (!value.is_number()) return wrong_type(param, "a number");
        const auto bias = value.get<double>();
        if (!(bias >= -100 && bias <= 100)) {
            return fail(ErrorCode::kInvalidValue, "A bias must be between -100 and 100.", param);
        }
        out.push_back({static_cast<std::int32_t>(id), bias});
    }
    return {};
}

Result<void> read_stream_options(const Json& body, GenerationRequest& request) {
    const Json* const options = find_member(body, "stream_options");
    if (options == nullptr) return {};
    if (!request.stream) {
        return fail(ErrorCode::kUnsupportedParameter,
                    "'stream_options' is only meant together with \"stream\": true.",
                    "stream_options");
    }
    for (const auto& [name, value] : options->get_ref<const Json::object_t&>()) {
        const std::string param = member_of("stream_options", name);
        if (name != "include_usage" && name != "include_obfuscation") {
            add_warning(request.warnings, "unknown_fields " + param);
            request.unknown_fields.push_back(param);
            continue;
        }
        if (value.is_null()) continue;
        if (!value.is_boolean()) return wrong_type(param, "true or false");
        if (name == "include_usage") request.include_usage = value.get<bool>();
    }
    return {};
}

void read_optional(const Json& body, std::string_view name, std::optional<int>& out) {
    std::optional<std::int64_t> value;
    read_member(body, name, value);
    if (value) out = static_cast<int>(*value);  // the table's range fits
}

void read_plain_members(const Json& body, GenerationRequest& request) {
    read_member(body, "model", request.model);
    read_member(body, "max_completion_tokens", request.max_tokens);
    if (request.max_tokens) {
        request.max_tokens_param = "max_completion_tokens";
    } else {
        read_member(body, "max_tokens", request.max_tokens);
    }
    read_member(body, "n", request.n);
    read_member(body, "temperature", request.temperature);
    read_member(body, "top_p", request.top_p);
    read_member(body, "min_p", request.min_p);
    read_member(body, "top_k", request.top_k);
    read_member(body, "frequency_penalty", request.frequency_penalty);
    read_member(body, "presence_penalty", request.presence_penalty);
    read_member(body, "repetition_penalty", request.repetition_penalty);
    read_member(body, "seed", request.seed);
    read_member(body, "ignore_eos", request.ignore_eos);
    read_member(body, "min_tokens", request.min_tokens);
    read_member(body, "include_stop_str_in_output", request.include_stop_str_in_output);
    read_member(body, "skip_special_tokens", request.skip_special_tokens);
    read_member(body, "stream", request.stream);
    read_member(body, "prompt_cache_key", request.prompt_cache_key);
    read_member(body, "user", request.user);
    read_member(body, "cache_salt", request.cache_salt);
    read_member(body, "return_token_ids", request.return_token_ids);
    read_member(body, "include_timings", request.include_timings);
    read_optional(body, "priority", request.priority);
    read_optional(body, "draft_tokens", request.draft_tokens);
}

}  // namespace

Result<std::vector<std::int32_t>> read_token_ids(const Json& array, std::int64_t vocabulary,
                                                 const std::string& param) {
    std::vector<std::int32_t> ids;
    ids.reserve(array.size());
    for (std::size_t i = 0; i < array.size(); ++i) {
        const std::optional<IntegerValue> id = integer_value(array[i]);
        if (!id) return wrong_type(indexed(param, i), "a token id");
        if (!id->is_in_range || id->value < 0 || id->value >= id_end(vocabulary)) {
            return fail(ErrorCode::kInvalidValue, "This is not a token id of this model.",
                        indexed(param, i));
        }
        ids.push_back(static_cast<std::int32_t>(id->value));
    }
    return ids;
}

Result<void> read_generation_fields(const Json& body, std::int64_t vocabulary,
                                    GenerationRequest& request) {
    read_plain_members(body, request);
    if (Result<void> read = read_stop(body, request.stop); !read) return read;
    if (const Json* ids = find_member(body, "stop_token_ids")) {
        Result<std::vector<std::int32_t>> read = read_token_ids(*ids, vocabulary, "stop_token_ids");
        if (!read) return tl::unexpected(read.error());
        request.stop_token_ids = std::move(*read);
    }
    if (Result<void> read = read_logit_bias(body, vocabulary, request.logit_bias); !read) {
        return read;
    }
    if (Result<void> read = read_stream_options(body, request); !read) return read;
    Result<std::optional<Constraint>> constraint = read_constraint(body);
    if (!constraint) return tl::unexpected(constraint.error());
    request.constraint = std::move(*constraint);
    if (request.constraint && (request.ignore_eos || request.min_tokens > 0)) {
        const std::string param = request.ignore_eos ? "ignore_eos" : "min_tokens";
        return fail(ErrorCode::kConflictingConstraints,
                    "'" + param + "' cannot hold together with '" + request.constraint->param +
                        "': a constraint decides where the answer ends.",
                    param);
    }
    return {};
}

}  // namespace proto
