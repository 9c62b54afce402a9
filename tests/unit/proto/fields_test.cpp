// Every row of the field table: a good value is accepted, a wrong type and each value just outside
// the range are refused with the right code and param, and refused fields accept their neutral
// value only. Values are made from the table itself, so a new row is tested without a new test; a
// request with every honoured field set checks that each value arrives.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/openai.h"

namespace proto_test {
namespace {

using namespace proto;  // NOLINT: every name below is of proto
using testing::ElementsAre;

class FieldTable : public testing::TestWithParam<FieldSpec> {
protected:
    /// What the endpoints say to a request with this field; they agree where both know it.
    static std::string verdict(std::string_view name, const std::string& value) {
        const FieldSpec& spec = GetParam();
        std::string said;
        if ((spec.endpoints & kChat) != 0) {
            const bool wants_logprobs = name == "top_logprobs";
            const std::string base =
                name == "messages" ? "" : R"("messages":[{"role":"user","content":"x"}],)";
            said = text_of(parse_chat_request("{" + base +
                                              (wants_logprobs ? "\"logprobs\":true," : "") + "\"" +
                                              std::string(name) + "\":" + value + "}"));
        }
        if ((spec.endpoints & kCompletions) != 0) {
            const std::string base = name == "prompt" ? "" : R"("prompt":"x",)";
            const std::string n = name == "best_of" ? R"("n":)" + value + "," : "";
            const std::string other = text_of(parse_completion_request(
                "{" + base + n + "\"" + std::string(name) + "\":" + value + "}"));
            if (!said.empty()) {
                EXPECT_EQ(said, other) << name << " = " << value;
            }
            said = other;
        }
        return said;
    }
    template <class T>
    static std::string text_of(const Result<T>& result) {
        if (result) return "accepted";
        return std::string(error_info(result.error().code).name) + " " + result.error().param;
    }
};

std::string number_text(double value) {
    return json_text(Json(value));
}

TEST_P(FieldTable, NullIsAbsent) {
    const FieldSpec& spec = GetParam();
    if (spec.name == "messages" || spec.name == "prompt") return;
    EXPECT_EQ(verdict(spec.name, "null"), "accepted");
}

TEST_P(FieldTable, HoldsItsTypeAndRange) {
    const FieldSpec& spec = GetParam();
    const std::string name(spec.name);
    const std::string wrong_type = "invalid_type " + name;
    const std::string wrong_value = "invalid_value " + name;
    switch (spec.kind) {
        case FieldKind::kInteger: {
            const std::string low = std::to_string(spec.integer_min);
            EXPECT_EQ(verdict(name, low), "accepted");
            EXPECT_EQ(verdict(name, std::to_string(spec.integer_max)), "accepted");
            EXPECT_EQ(
                verdict(name, std::to_string(std::max<std::int64_t>(1, spec.integer_min)) + ".0"),
                "accepted");
            EXPECT_EQ(verdict(name, "1.5"), name == "best_of" ? "invalid_type n" : wrong_type);
            EXPECT_EQ(verdict(name, "\"5\""), name == "best_of" ? "invalid_type n" : wrong_type);
            if (name == "best_of") return;  // tied to n, which has the same range
            EXPECT_EQ(verdict(name, "[1]"), wrong_type);
            EXPECT_EQ(verdict(name, "1e30"), wrong_value);
            EXPECT_EQ(verdict(name, "9223372036854775808"), wrong_value);
            if (spec.integer_min > std::numeric_limits<std::int64_t>::min()) {
                EXPECT_EQ(verdict(name, std::to_string(spec.integer_min - 1)), wrong_value);
            }
            if (spec.integer_max < std::numeric_limits<std::int64_t>::max()) {
                EXPECT_EQ(verdict(name, std::to_string(spec.integer_max + 1)), wrong_value);
            }
            break;
        }
        case FieldKind::kNumber:
            EXPECT_EQ(verdict(name, number_text(spec.number_min)), "accepted");
            EXPECT_EQ(verdict(name, number_text(spec.number_max)), "accepted");
            EXPECT_EQ(verdict(name, number_text(std::nextafter(spec.number_min, -1e9))),
                      wrong_value);
            EXPECT_EQ(verdict(name, number_text(std::nextafter(spec.number_max, 1e9))),
                      wrong_value);
            EXPECT_EQ(verdict(name, "\"1\""), wrong_type);
            EXPECT_EQ(verdict(name, "true"), wrong_type);
            break;
        case FieldKind::kBool:
            EXPECT_EQ(verdict(name, "false"), "accepted");
            EXPECT_EQ(verdict(name, "0"), wrong_type);
            EXPECT_EQ(verdict(name, "\"true\""), wrong_type);
            break;
        case FieldKind::kString:
            if (spec.size_max > 0 && name != "grammar") {
                EXPECT_EQ(verdict(name, "\"" + std::string(spec.size_max, 'x') + "\""), "accepted");
                EXPECT_EQ(verdict(name, "\"" + std::string(spec.size_max + 1, 'x') + "\""),
                          wrong_value);
            }
            EXPECT_EQ(verdict(name, "5"), wrong_type);
            break;
        case FieldKind::kEnum:
            for (const std::string_view value : spec.values) {
                EXPECT_EQ(verdict(name, "\"" + std::string(value) + "\""), "accepted");
            }
            EXPECT_EQ(verdict(name, "\"other\""), "unsupported_value " + name);
            EXPECT_EQ(verdict(name, "true"), wrong_type);
            break;
        case FieldKind::kObject:
            EXPECT_EQ(verdict(name, "[]"), wrong_type);
            break;
        case FieldKind::kArray:
            EXPECT_EQ(verdict(name, "{}"), wrong_type);
            break;
        case FieldKind::kStringOrArray:
        case FieldKind::kStringOrObject:
            EXPECT_EQ(verdict(name, "5"), wrong_type);
            break;
        case FieldKind::kAny:
            break;  // the marks decide, below, or the field's own reader
    }
}

TEST_P(FieldTable, KeepsItsMark) {
    const FieldSpec& spec = GetParam();
    std::string name(spec.name);
    if (name.ends_with('*')) name.back() = '_';
    if (spec.mark == FieldMark::kIgnored) {
        for (const char* value : {"1", "\"x\"", "{\"a\":[1]}", "true"}) {
            EXPECT_EQ(verdict(name, value), "accepted");
        }
    }
    if (spec.mark != FieldMark::kRefused) return;
    const std::string refused = "unsupported_parameter " + name;
    const auto neutral_or_refused = [&](NeutralValue neutral, const char* value) {
        const bool is_neutral = spec.neutral == neutral || spec.neutral == NeutralValue::kAnyValue;
        EXPECT_EQ(verdict(name, value), is_neutral ? "accepted" : refused) << value;
    };
    neutral_or_refused(NeutralValue::kZero, "0");
    neutral_or_refused(NeutralValue::kZero, "false");
    neutral_or_refused(NeutralValue::kOne, "1.0");
    neutral_or_refused(NeutralValue::kEmpty, "[]");
    neutral_or_refused(NeutralValue::kTextOnly, "[\"text\"]");
    neutral_or_refused(NeutralValue::kAnyValue, "0.5");
    neutral_or_refused(NeutralValue::kAnyValue, "[\"text\",\"audio\"]");
}

std::string test_name(const testing::TestParamInfo<FieldSpec>& info) {
    std::string name;
    for (const char c : info.param.name)
        name += c == '*' ? std::string("star") : std::string(1, c);
    return name + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, FieldTable,
                         testing::ValuesIn(request_fields().begin(), request_fields().end()),
                         test_name);

// --- the cases of the API document

std::string chat(const std::string& members, std::int64_t vocabulary = 1000) {
    RequestLimits limits;
    limits.vocabulary = vocabulary;
    const Result<ChatRequest> request = parse_chat_request(
        R"({"messages":[{"role":"user","content":"x"}],)" + members + "}", limits);
    if (request) return "accepted";
    return std::string(error_info(request.error().code).name) + " " + request.error().param;
}

TEST(FieldCaseTest, Case2MaxTokens) {
    EXPECT_EQ(chat(R"("max_tokens":1000000000)"), "accepted");
    EXPECT_EQ(chat(R"("max_tokens":0)"), "invalid_value max_tokens");
    EXPECT_EQ(chat(R"("max_tokens":-1)"), "invalid_value max_tokens");
    EXPECT_EQ(chat(R"("max_tokens":1.5)"), "invalid_type max_tokens");
    EXPECT_EQ(chat(R"("max_tokens":"5")"), "invalid_type max_tokens");
    EXPECT_EQ(chat(R"("max_tokens":null)"), "accepted");
    EXPECT_EQ(chat(R"("max_tokens":5e0)"), "accepted");
}

TEST(FieldCaseTest, TheNumberThatCameIsNamed) {
    const auto words = [](const std::string& member) {
        const auto request =
            parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + member + "}");
        return request ? std::string("accepted") : request.error().message;
    };
    EXPECT_EQ(words(R"("max_tokens":0)"), "'max_tokens' must be at least 1, not 0.");
    EXPECT_EQ(words(R"("n":17)"), "'n' must be between 1 and 16, not 17.");
    EXPECT_EQ(words(R"("temperature":2.5)"), "'temperature' must be between 0 and 2, not 2.5.");
}

TEST(FieldCaseTest, Case4Choices) {
    EXPECT_EQ(chat(R"("n":16)"), "accepted");
    EXPECT_EQ(chat(R"("n":17)"), "invalid_value n");
    EXPECT_EQ(chat(R"("n":1000000)"), "invalid_value n");
}

TEST(FieldCaseTest, Case14SamplingEdges) {
    EXPECT_EQ(chat(R"("logit_bias":{"999":1})"), "accepted");
    EXPECT_EQ(chat(R"("logit_bias":{"1000":1})"), "invalid_value logit_bias.1000");
    EXPECT_EQ(chat(R"("logit_bias":{"x":1})"), "invalid_value logit_bias.x");
    EXPECT_EQ(chat(R"("logit_bias":{"-1":1})"), "invalid_value logit_bias.-1");
    for (const std::string key : {"01", "00", "-0", "+1", "1 ", "1.0", ""})
        EXPECT_EQ(chat(R"("logit_bias":{")" + key + R"(":1})"), "invalid_value logit_bias." + key);
    EXPECT_EQ(chat(R"("logit_bias":{"0":1,"10":1})"), "accepted");
    EXPECT_EQ(chat(R"("logit_bias":{"5":101})"), "invalid_value logit_bias.5");
    EXPECT_EQ(chat(R"("logit_bias":{"5":"x"})"), "invalid_type logit_bias.5");
    EXPECT_EQ(chat(R"("logit_bias":{"5":-100})"), "accepted");
    EXPECT_EQ(chat(R"("logit_bias":{"99999999999999999999":0})"),
              "invalid_value logit_bias.99999999999999999999");
    EXPECT_EQ(chat(R"("logit_bias":{"2147483648":0})", 0), "invalid_value logit_bias.2147483648");
    EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":21)"), "invalid_value top_logprobs");
    EXPECT_EQ(chat(R"("top_logprobs":5)"), "invalid_value top_logprobs");
    EXPECT_EQ(chat(R"("temperature":-1)"), "invalid_value temperature");
    EXPECT_EQ(chat(R"("temperature":1e-9)"), "accepted");
    EXPECT_EQ(chat(R"("top_p":0)"), "accepted");
    EXPECT_EQ(chat(R"("seed":-1)"), "accepted");
    EXPECT_EQ(chat(R"("seed":9223372036854775808)"), "invalid_value seed");
}

TEST(FieldCaseTest, StopStringsAndIdsAreBounded) {
    EXPECT_EQ(chat(R"("stop":"")"), "invalid_value stop");
    EXPECT_EQ(chat(R"("stop":["a",""])"), "invalid_value stop[1]");
    EXPECT_EQ(chat(R"("stop":["a",5])"), "invalid_type stop[1]");
    EXPECT_EQ(chat(R"("stop":[])"), "accepted");
    EXPECT_EQ(chat(R"("stop":")" + std::string(512, 'x') + "\""), "accepted");
    EXPECT_EQ(chat(R"("stop":")" + std::string(513, 'x') + "\""), "invalid_value stop");
    std::string seventeen = "\"a\"";
    for (int i = 0; i < 16; ++i)
        seventeen += ",\"a\"";
    EXPECT_EQ(chat("\"stop\":[" + seventeen + "]"), "invalid_value stop");
    EXPECT_EQ(chat(R"("stop_token_ids":[1,999])"), "accepted");
    EXPECT_EQ(chat(R"("stop_token_ids":[1,1000])"), "invalid_value stop_token_ids[1]");
    EXPECT_EQ(chat(R"("stop_token_ids":["1"])"), "invalid_type stop_token_ids[0]");
}

TEST(FieldCaseTest, EveryHonouredValueArrives) {
    const Result<ChatRequest> read = parse_chat_request(R"({
        "messages":[{"role":"user","content":"x"}], "model":"m", "max_tokens":3, "n":2,
        "temperature":0.5, "top_p":0.25, "min_p":0.125, "top_k":-1, "frequency_penalty":-1,
        "presence_penalty":1.5, "repetition_penalty":1.25, "seed":-9223372036854775808,
        "stop":["a","b"], "stop_token_ids":[7], "ignore_eos":true, "min_tokens":4,
        "include_stop_str_in_output":true, "skip_special_tokens":false, "logit_bias":{"5":-2.5},
        "logprobs":true, "top_logprobs":20, "stream":true, "parallel_tool_calls":false,
        "priority":-100, "prompt_cache_key":"k", "user":"u", "cache_salt":"s",
        "draft_tokens":2, "return_token_ids":true, "include_timings":true})");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->model, "m");
    EXPECT_EQ(read->max_tokens, 3);
    EXPECT_EQ(read->n, 2);
    EXPECT_EQ(read->temperature, 0.5);
    EXPECT_EQ(read->top_p, 0.25);
    EXPECT_EQ(read->min_p, 0.125);
    EXPECT_EQ(read->top_k, -1);
    EXPECT_EQ(read->frequency_penalty, -1);
    EXPECT_EQ(read->presence_penalty, 1.5);
    EXPECT_EQ(read->repetition_penalty, 1.25);
    EXPECT_EQ(read->seed, std::numeric_limits<std::int64_t>::min());
    EXPECT_THAT(read->stop, ElementsAre("a", "b"));
    EXPECT_THAT(read->stop_token_ids, ElementsAre(7));
    EXPECT_TRUE(read->ignore_eos);
    EXPECT_EQ(read->min_tokens, 4);
    EXPECT_TRUE(read->include_stop_str_in_output);
    EXPECT_FALSE(read->skip_special_tokens);
    EXPECT_THAT(read->logit_bias, ElementsAre(LogitBias{5, -2.5}));
    EXPECT_TRUE(read->logprobs);
    EXPECT_EQ(read->top_logprobs, 20);
    EXPECT_TRUE(read->stream);
    EXPECT_FALSE(read->parallel_tool_calls);
    EXPECT_EQ(read->priority, -100);
    EXPECT_EQ(read->prompt_cache_key, "k");
    EXPECT_EQ(read->user, "u");
    EXPECT_EQ(read->cache_salt, "s");
    EXPECT_EQ(read->draft_tokens, 2);
    EXPECT_TRUE(read->return_token_ids);
    EXPECT_TRUE(read->include_timings);
}

}  // namespace
}  // namespace proto_test
