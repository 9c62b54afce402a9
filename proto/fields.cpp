#include "proto/fields.h"

#include <array>
#include <limits>

#include "proto/limits.h"

namespace proto {
namespace {

using enum FieldKind;
using enum FieldMark;

constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                      "high", "xhigh",   "max"};
constexpr std::array<std::string_view, 4> kReasoningFields = {"reasoning_content", "reasoning",
                                                              "both", "inline"};

constexpr FieldSpec integer(std::string_view name, std::int64_t min, std::int64_t max,
                            std::string_view note, unsigned endpoints = kBoth) {
    FieldSpec spec{.name = name, .kind = kInteger, .endpoints = endpoints};
    spec.integer_min = min;
    spec.integer_max = max;
    spec.note = note;
    return spec;
}

constexpr FieldSpec number(std::string_view name, double min, double max, std::string_view note) {
    FieldSpec spec{.name = name, .kind = kNumber};
    spec.number_min = min;
    spec.number_max = max;
    spec.note = note;
    return spec;
}

constexpr FieldSpec honoured(std::string_view name, FieldKind kind, std::string_view note,
                             unsigned endpoints = kBoth, std::size_t size_max = 0) {
    FieldSpec spec{.name = name, .kind = kind, .endpoints = endpoints};
    spec.size_max = size_max;
    spec.note = note;
    return spec;
}

constexpr FieldSpec one_of(std::string_view name, std::span<const std::string_view> values,
                           std::string_view note, unsigned endpoints) {
    FieldSpec spec{.name = name, .kind = kEnum, .endpoints = endpoints};
    spec.values = values;
    spec.note = note;
    return spec;
}

constexpr FieldSpec unoffered(std::string_view name, FieldKind kind, std::string_view note,
                              unsigned endpoints = kBoth, std::size_t size_max = 0) {
    FieldSpec spec = honoured(name, kind, note, endpoints, size_max);
    spec.mark = kUnoffered;
    return spec;
}

constexpr FieldSpec ignored(std::string_view name, std::string_view note) {
    FieldSpec spec{.name = name, .kind = kAny, .mark = kIgnored};
    spec.note = note;
    return spec;
}

constexpr FieldSpec refused(std::string_view name, NeutralValue neutral, std::string_view note,
                            unsigned endpoints = kBoth) {
    FieldSpec spec{.name = name, .kind = kAny, .mark = kRefused, .endpoints = endpoints};
    spec.neutral = neutral;
    spec.note = note;
    return spec;
}

constexpr std::string_view kNotStored = "nothing is stored, billed or moderated here";
constexpr std::string_view kHint = "a hint without a local meaning; the answer is the same";
constexpr std::string_view kNotOffered = "not offered, and ignoring it would change the answer";
constexpr std::string_view kTextHere = "only text is served here";
constexpr std::string_view kUseTools = "use 'tools' and 'tool_choice' instead";
constexpr std::string_view kOfCompletions = "it belongs to /v1/completions";

constexpr auto kFields = std::to_array<FieldSpec>({
    honoured("messages", kArray, "the conversation; content that is null or absent is empty text",
             kChat, kMessagesMax),
    honoured("prompt", kAny, "text, texts, token ids or lists of token ids", kCompletions),
    honoured("model", kString, "served name or alias; absent: the default model", kBoth, 256),
    integer("max_completion_tokens", 1, kInt64Max,
            "bound on generated tokens, reasoning included; more than the context leaves is cut to "
            "that"),
    integer("max_tokens", 1, kInt64Max, "older name of max_completion_tokens, cut in the same way"),
    integer("n", 1, kChoicesMax, "choices; the prompt is computed once"),
    number("temperature", 0, 2, "below 1e-5 is greedy"),
    number("top_p", 0, 1, "0 keeps the single best token"),
    number("min_p", 0, 1, "least probability relative to the best token"),
    integer("top_k", -1, 1'000'000, "-1 and 0 are off"),
    number("frequency_penalty", -2, 2, "over generated tokens"),
    number("presence_penalty", -2, 2, "over generated tokens"),
    number("repetition_penalty", 0.01, 10, "over prompt and generated tokens"),
    integer("seed", kInt64Min, kInt64Max, "random when absent"),
    honoured("stop", kStringOrArray, "up to 16 strings of 1 to 512 bytes"),
    honoured("stop_token_ids", kArray, "these ids end the answer anywhere", kBoth,
             kStopTokenIdsMax),
    honoured("ignore_eos", kBool, "end tokens are masked"),
    integer("min_tokens", 0, kInt64Max, "end tokens are masked until then"),
    honoured("include_stop_str_in_output", kBool, "keeps the stop string in the text"),
    honoured("skip_special_tokens", kBool, "leaves special tokens out of the text"),
    honoured("logit_bias", kObject, "token id to a bias of -100 to 100; -100 bans", kBoth,
             kLogitBiasMax),
    honoured("logprobs", kBool, "log-probabilities of content tokens", kChat),
    integer("logprobs", 0, 20, "alternatives per token", kCompletions),
    integer("top_logprobs", 0, 20, "alternatives per token; wants logprobs", kChat),
    honoured("stream", kBool, "server-sent events"),
    honoured("stream_options", kObject, "include_usage; wants stream"),
    honoured("response_format", kObject, "text; other formats are not offered yet"),
    unoffered("structured_outputs", kObject, "one of json, regex, choice, grammar, json_object"),
    unoffered("json_schema", kAny, "a schema"),
    unoffered("regex", kString, "a pattern"),
    unoffered("grammar", kString, "a grammar", kBoth, kSchemaBytesMax),
    honoured("tools", kArray, "functions the model may call", kChat, kToolsMax),
    honoured("tool_choice", kStringOrObject,
             "none or auto; forcing or restricting calls is not offered yet", kChat),
    honoured("parallel_tool_calls", kBool, "false ends the answer after the first call", kChat),
    one_of("reasoning_effort", kEfforts, "how much to think", kChat),
    integer("thinking_token_budget", -1, kInt64Max,
            "bound on reasoning tokens; -1: none, 0: no reasoning; above 0 not offered yet", kChat),
    integer("reasoning_budget", -1, kInt64Max, "the same as thinking_token_budget", kChat),
    integer("thinking_budget", -1, kInt64Max, "the same as thinking_token_budget", kChat),
    honoured("chat_template_kwargs", kObject, "variables for the template", kChat,
             kTemplateKwargsMax),
    honoured("enable_thinking", kBool, "the same as in chat_template_kwargs", kChat),
    one_of("reasoning_field", kReasoningFields, "where reasoning goes", kChat),
    honoured("include_reasoning", kBool, "false: generated and counted, not returned", kChat),
    honoured("add_generation_prompt", kBool, "ends the prompt with the assistant's turn", kChat),
    unoffered("continue_final_message", kBool, "goes on with the last assistant message", kChat),
    integer("priority", -100, 100, "lower runs earlier; no lower than the API key's priority_min"),
    honoured("prompt_cache_key", kString, "a hint for routing", kBoth, 256),
    honoured("user", kString, "a hint for routing", kBoth, 256),
    honoured("cache_salt", kString, "different salts share no prefix", kBoth, 256),
    integer("draft_tokens", 0, 8, "most drafts a step, 0 is off; changes the speed only"),
    honoured("return_token_ids", kBool, "adds token_ids to choices"),
    honoured("include_timings", kBool, "adds timings to the body or the usage chunk"),
    honoured("echo", kBool, "the prompt's text before the answer", kCompletions),
    integer("best_of", 1, kChoicesMax, "only equal to n", kCompletions),
    ignored("metadata", kNotStored),
    ignored("store", kNotStored),
    ignored("safety_identifier", kNotStored),
    ignored("service_tier", kNotStored),
    ignored("moderation", kNotStored),
    ignored("verbosity", kHint),
    ignored("prediction", kHint),
    ignored("prompt_cache_retention", kHint),
    refused("typical_p", NeutralValue::kOne, kNotOffered),
    refused("mirostat", NeutralValue::kZero, kNotOffered),
    refused("mirostat_tau", NeutralValue::kAnyValue, kNotOffered),
    refused("mirostat_eta", NeutralValue::kAnyValue, kNotOffered),
    refused("dry_multiplier", NeutralValue::kZero, kNotOffered),
    refused("dry_base", NeutralValue::kAnyValue, kNotOffered),
    refused("dry_allowed_length", NeutralValue::kAnyValue, kNotOffered),
    refused("dry_penalty_last_n", NeutralValue::kAnyValue, kNotOffered),
    refused("dry_sequence_breakers", NeutralValue::kAnyValue, kNotOffered),
    refused("xtc_probability", NeutralValue::kZero, kNotOffered),
    refused("xtc_threshold", NeutralValue::kAnyValue, kNotOffered),
    refused("dynatemp_range", NeutralValue::kZero, kNotOffered),
    refused("dynatemp_exponent", NeutralValue::kAnyValue, kNotOffered),
    refused("mirostat*", NeutralValue::kNone, kNotOffered),
    refused("dry_*", NeutralValue::kNone, kNotOffered),
    refused("xtc_*", NeutralValue::kNone, kNotOffered),
    refused("dynatemp_*", NeutralValue::kNone, kNotOffered),
    refused("bad_words", NeutralValue::kEmpty, kNotOffered),
    refused("allowed_token_ids", NeutralValue::kEmpty, kNotOffered),
    refused("prompt_logprobs", NeutralValue::kZero, kNotOffered),
    refused("truncate_prompt_tokens", NeutralValue::kNone, kNotOffered),
    refused("modalities", NeutralValue::kTextOnly, kTextHere),
    refused("audio", NeutralValue::kNone, kTextHere),
    refused("web_search_options", NeutralValue::kNone, "nothing is ever fetched"),
    refused("functions", NeutralValue::kEmpty, kUseTools, kChat),
    refused("function_call", NeutralValue::kNone, kUseTools, kChat),
    unoffered("chat_template", kString, "a template of the request, where the operator allows it",
              kChat),
    refused("best_of", NeutralValue::kOne, kOfCompletions, kChat),
    refused("echo", NeutralValue::kZero, kOfCompletions, kChat),
    refused("suffix", NeutralValue::kEmpty, kOfCompletions, kChat),
    refused("suffix", NeutralValue::kEmpty, "the model cannot fill in the middle", kCompletions),
});

}  // namespace

std::span<const FieldSpec> request_fields() {
    return kFields;
}

const FieldSpec* find_field(std::string_view name, FieldEndpoint endpoint) {
    for (const FieldSpec& spec : kFields) {
        if ((spec.endpoints & endpoint) == 0) continue;
        const bool is_prefix = spec.name.ends_with('*');
        const std::string_view stem = spec.name.substr(0, spec.name.size() - (is_prefix ? 1 : 0));
        if (is_prefix ? name.starts_with(stem) : name == stem) return &spec;
    }
    return nullptr;
}

}  // namespace proto
