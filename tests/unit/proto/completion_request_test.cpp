// Validation of /v1/completions: the prompt's forms and the fields of its own.
#include "proto/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace proto_test {
namespace {

using namespace proto;  // NOLINT: every name below is of proto
using testing::ElementsAre;

Result<CompletionRequest> parse(const std::string& members) {
    RequestLimits limits;
    limits.vocabulary = 100;
    return parse_completion_request("{" + members + "}", limits);
}
CompletionRequest good(const std::string& members) {
    Result<CompletionRequest> request = parse(members);
    EXPECT_TRUE(request) << members << ": " << request.error().message;
    return request ? std::move(*request) : CompletionRequest{};
}
std::string refusal_of(const std::string& members) {
    const Result<CompletionRequest> request = parse(members);
    if (request) return "accepted";
    return std::string(error_info(request.error().code).name) + " " + request.error().param;
}

TEST(CompletionRequestTest, ReadsEveryFormOfPrompt) {
    using Ids = std::vector<std::int32_t>;
    EXPECT_THAT(good(R"("prompt":"a")").prompts, ElementsAre(Prompt("a")));
    EXPECT_THAT(good(R"("prompt":["a","b"])").prompts, ElementsAre(Prompt("a"), Prompt("b")));
    EXPECT_THAT(good(R"("prompt":[1,2.0,99])").prompts, ElementsAre(Prompt(Ids{1, 2, 99})));
    EXPECT_THAT(good(R"("prompt":[[1],[2,3]])").prompts,
                ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
}

TEST(CompletionRequestTest, RefusesPromptsWithoutTokensAndMixedOnes) {
    EXPECT_EQ(refusal_of(R"("n":1)"), "missing_required_parameter prompt");
    EXPECT_EQ(refusal_of(R"("prompt":[])"), "invalid_value prompt");
    EXPECT_EQ(refusal_of(R"("prompt":"")"), "invalid_value prompt");
    EXPECT_EQ(refusal_of(R"("prompt":["a",""])"), "invalid_value prompt[1]");
    EXPECT_EQ(refusal_of(R"("prompt":[[1],[]])"), "invalid_value prompt[1]");
    EXPECT_EQ(refusal_of(R"("prompt":[1,100])"), "invalid_value prompt[1]");
    EXPECT_EQ(refusal_of(R"("prompt":[1,-1])"), "invalid_value prompt[1]");
    EXPECT_EQ(refusal_of(R"("prompt":["a",1])"), "invalid_type prompt[1]");
    EXPECT_EQ(refusal_of(R"("prompt":[1,"a"])"), "invalid_type prompt[1]");
    EXPECT_EQ(refusal_of(R"("prompt":5)"), "invalid_type prompt");
    EXPECT_EQ(refusal_of(R"("prompt":{})"), "invalid_type prompt");
    std::string many = "\"a\"";
    for (int i = 0; i < 16; ++i)
        many += ",\"a\"";
    EXPECT_EQ(refusal_of("\"prompt\":[" + many + "]"), "invalid_value prompt");
}

TEST(CompletionRequestTest, HasItsOwnDefaultsAndFields) {
    const CompletionRequest plain = good(R"("prompt":"a")");
    EXPECT_EQ(plain.max_tokens, 16);
    EXPECT_EQ(plain.logprobs, std::nullopt);
    const CompletionRequest full = good(
        R"("prompt":"a","max_tokens":7,"logprobs":0,"n":3,"best_of":3,"suffix":"","stop":"x")");
    EXPECT_EQ(full.max_tokens, 7);
    EXPECT_EQ(full.logprobs, 0);
    EXPECT_EQ(full.n, 3);
    EXPECT_THAT(full.stop, ElementsAre("x"));
    EXPECT_TRUE(good(R"("prompt":"a","echo":true)").echo);
}

TEST(CompletionRequestTest, Case4BestOfMustEqualN) {
    EXPECT_EQ(refusal_of(R"("prompt":"a","best_of":4,"n":3)"), "unsupported_value best_of");
    EXPECT_EQ(refusal_of(R"("prompt":"a","best_of":2)"), "unsupported_value best_of");
}

TEST(CompletionRequestTest, RefusesWhatChatAloneOrNobodyOffers) {
    EXPECT_EQ(refusal_of(R"("prompt":"a","suffix":"b")"), "unsupported_parameter suffix");
    EXPECT_EQ(refusal_of(R"("prompt":"a","echo":true,"logprobs":1)"), "unsupported_parameter echo");
    EXPECT_EQ(refusal_of(R"("prompt":"a","logprobs":true)"), "invalid_type logprobs");
    EXPECT_THAT(good(R"("prompt":"a","tools":[],"messages":1)").unknown_fields,
                ElementsAre("tools", "messages"));
}

}  // namespace
}  // namespace proto_test
