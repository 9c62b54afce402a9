// Answers of /v1/completions; the object is text_completion in both forms.
#include <algorithm>

#include "proto/response_parts.h"
#include "proto/responses.h"

namespace proto {
namespace {

/// The best tokens and the sampled one, as this endpoint has always had them: an object with texts
/// as keys. Parts of characters may read alike on the wire; the best of them stays.
void append_alternatives(std::string& out, const TokenLogprob& token) {
    std::vector<std::string> keys;
    const auto add = [&](std::string_view text, double logprob) {
        std::string key = json_string(text);
        if (std::ranges::find(keys, key) != keys.end()) return;
        out += (keys.empty() ? "" : ",") + key + ':';
        append_number(out, logprob);
        keys.push_back(std::move(key));
    };
    out += '{';
    for (const TokenLogprob::Alternative& alternative : token.top)
        add(alternative.token, alternative.logprob);
    add(token.token, token.logprob);
    out += '}';
}

void append_logprobs(std::string& out, const std::optional<CompletionChoice::Logprobs>& logprobs) {
    if (!logprobs) {
        out += "null";
        return;
    }
    std::string tokens, values, tops, offsets;
    for (std::size_t i = 0; i < logprobs->tokens.size(); ++i) {
        const TokenLogprob& token = logprobs->tokens[i];
        const char* const comma = i > 0 ? "," : "";
        tokens += comma;
        append_json_string(tokens, token.token);
        values += comma;
        append_number(values, token.logprob);
        tops += comma;
        append_alternatives(tops, token);
    }
    for (std::size_t i = 0; i < logprobs->text_offset.size(); ++i) {
        if (i > 0) offsets += ',';
        offsets += std::to_string(logprobs->text_offset[i]);
    }
    out += R"({"tokens":[)" + tokens + R"(],"token_logprobs":[)" + values +
           R"(],"top_logprobs":[)" + tops + R"(],"text_offset":[)" + offsets + "]}";
}

void append_choice(std::string& out, std::size_t index, const CompletionChoice& choice) {
    out += '{';
    append_string_member(out, "text", choice.text);
    out += R"(,"index":)" + std::to_string(index) + R"(,"finish_reason":)";
    if (choice.finish_reason.empty()) {
        out += "null";
    } else {
        append_json_string(out, choice.finish_reason);
    }
    out += R"(,"stop_reason":)";
    append_stop_reason(out, choice.stop_reason);
    out += R"(,"logprobs":)";
    append_logprobs(out, choice.logprobs);
    if (choice.token_ids) {
        out += R"(,"token_ids":)";
        append_token_ids(out, *choice.token_ids);
    }
    out += '}';
}

std::string begin_completion(const ResponseHead& head) {
    std::string out = "{";
    append_head_members(out, head, "text_completion");
    return out + R"(,"choices":[)";
}

}  // namespace

std::string text_completion_json(const ResponseHead& head,
                                 const std::vector<CompletionChoice>& choices, const Usage& usage,
                                 const std::optional<Timings>& timings) {
    std::string out = begin_completion(head);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        if (i > 0) out += ',';
        append_choice(out, i, choices[i]);
    }
    out += R"(],"usage":)" + usage_json(usage);
    append_timings(out, timings);
    return out + "}";
}

std::string text_completion_chunk(const ResponseHead& head, int choice_index,
                                  const CompletionChoice& choice, bool include_usage) {
    std::string out = begin_completion(head);
    append_choice(out, static_cast<std::size_t>(choice_index), choice);
    return out + (include_usage ? R"(],"usage":null})" : "]}");
}

std::string text_completion_usage_chunk(const ResponseHead& head, const Usage& usage,
                                        const std::optional<Timings>& timings) {
    std::string out = begin_completion(head) + R"(],"usage":)" + usage_json(usage);
    append_timings(out, timings);
    return out + "}";
}

}  // namespace proto
