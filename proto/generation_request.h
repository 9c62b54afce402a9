// generation_request: the fields that chat and text completions share, as plain typed values.
//
// Filled from the field table (fields.h). An optional without value means "absent": the server's
// configured default applies. Numbers are inside their ranges when a parse has succeeded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/json.h"

namespace proto {

struct LogitBias {
    std::int32_t token = 0;
    double bias = 0;
    bool operator==(const LogitBias&) const = default;
};

enum class ConstraintKind { kJsonObject, kJsonSchema, kRegex, kGrammar, kChoice };

/// What the answer must look like. At most one per request.
struct Constraint {
    ConstraintKind kind = ConstraintKind::kJsonObject;
    std::string text;                  // the pattern or the grammar
    Json schema;                       // kJsonSchema: an object or a bool
    std::string schema_name;           // kJsonSchema
    bool strict = false;               // kJsonSchema
    std::vector<std::string> choices;  // kChoice
    std::string param;                 // where it came from, for errors: "response_format"
};

struct GenerationRequest {
    std::string model;  // empty: the default model
    std::optional<std::int64_t> max_tokens;
    std::string max_tokens_param = "max_tokens";  // the name the client used
    int n = 1;

    std::optional<double> temperature, top_p, min_p;
    std::optional<std::int64_t> top_k;  // -1 and 0 are off
    std::optional<double> frequency_penalty, presence_penalty, repetition_penalty;
    std::optional<std::int64_t> seed;
    std::vector<LogitBias> logit_bias;

    std::vector<std::string> stop;
    std::vector<std::int32_t> stop_token_ids;
    bool ignore_eos = false;
    std::int64_t min_tokens = 0;
    bool include_stop_str_in_output = false;
    bool skip_special_tokens = true;

    bool stream = false;
    bool include_usage = false;

    std::optional<Constraint> constraint;

    std::optional<int> priority;
    std::optional<int> draft_tokens;  // most drafts a step; 0: no speculation
    std::string prompt_cache_key, user, cache_salt;
    bool return_token_ids = false, include_timings = false;

    std::vector<std::string> unknown_fields;  // in the body's order
    /// What was ignored or weakened, one header x-quadriga-warning each (see add_warning).
    std::vector<std::string> warnings;
};

/// Appends a warning, made printable and cut to kWarningBytesMax, unless kWarningsMax are there.
void add_warning(std::vector<std::string>& warnings, std::string_view text);

}  // namespace proto
