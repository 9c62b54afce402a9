// Proves over real sockets what a client sees of the engine's features: log-probabilities, choices
// that share a prompt, cached tokens, token ids, timings, the bounds of the queue.
#include <cmath>

#include <gmock/gmock.h>

#include "tests/unit/server/test_replica.h"

namespace replica::server {
namespace {

using proto::Json;
using testing::Call;
using testing::chat_body;
using ::testing::ElementsAre;
using testing::error_code;
using testing::events_of;
using ::testing::HasSubstr;
using testing::TestReplica;

/// The entries of all chunks of a stream, by list, and whether each chunk's entries spell its text.
Json streamed_logprobs(const std::string& body) {
    Json joined = {{"content", Json::array()}, {"reasoning_content", Json::array()}};
    for (const std::string& event : events_of(body)) {
        if (event == "[DONE]") continue;
        const Json chunk = Json::parse(event);
        for (const Json& choice : chunk["choices"]) {
            if (choice["logprobs"].is_null()) continue;
            for (const char* list : {"content", "reasoning_content"}) {
                std::string spelled;
                for (const Json& entry : choice["logprobs"].value(list, Json::array())) {
                    joined[list].push_back(entry);
                    spelled += entry["token"].get<std::string>();
                }
                EXPECT_EQ(choice["delta"].value(list, ""), spelled);
            }
        }
    }
    return joined;
}

TEST(AppFeaturesTest, ChatLogprobsAreTheSameStreamedAndWhole) {
    TestReplica replica({.script = "why</think>\n\nA mare."});
    const std::string fields = R"("enable_thinking":true,"logprobs":true,"top_logprobs":3)";
    const auto whole = replica.chat(chat_body(fields));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json logprobs = Json::parse(whole.body)["choices"][0]["logprobs"];
    ASSERT_EQ(logprobs["content"].size(), 7U);
    EXPECT_EQ(logprobs["reasoning_content"].size(), 3U);
    const Json& first = logprobs["content"][0];
    EXPECT_EQ(first["token"], "A");
    EXPECT_EQ(first["bytes"], Json::array({65}));
    EXPECT_NEAR(first["logprob"].get<double>(), std::log(0.5), 1e-6);
    ASSERT_EQ(first["top_logprobs"].size(), 3U);
    EXPECT_EQ(first["top_logprobs"][1]["token"], "B");
    EXPECT_NEAR(first["top_logprobs"][1]["logprob"].get<double>(), std::log(0.25), 1e-6);
    const auto stream = replica.chat(chat_body(fields + R"(,"stream":true)"));
    EXPECT_EQ(streamed_logprobs(stream.body), logprobs);
}

TEST(AppFeaturesTest, PartsOfACharacterHaveTheirBytesAndReadAsReplacements) {
    TestReplica replica({.script = "\xC3\xA4"});
    const Json body = Json::parse(replica.chat(chat_body(R"("logprobs":true)")).body);
    const Json& entries = body["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(entries.size(), 2U);
    EXPECT_EQ(entries[0]["token"], "\uFFFD");
    EXPECT_EQ(entries[0]["bytes"], Json::array({0xC3}));
    EXPECT_EQ(entries[1]["bytes"], Json::array({0xA4}));
    EXPECT_TRUE(entries[0]["top_logprobs"].empty());
}

TEST(AppFeaturesTest, WithoutTheWishThereAreNoLogprobs) {
    TestReplica replica({});
    const Json body = Json::parse(replica.chat(chat_body()).body);
    EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
}

TEST(AppFeaturesTest, CompletionLogprobsHaveFourListsAndNoEcho) {
    TestReplica replica({.script = "A m\xC3\xA4re"});
    const std::string fields = R"({"prompt":"ab","max_tokens":6,"logprobs":1)";
    const Json body = Json::parse(replica.post("/v1/completions", fields + "}").body);
    const Json& logprobs = body["choices"][0]["logprobs"];
    EXPECT_EQ(logprobs["tokens"], Json::array({"A", " ", "m", "\uFFFD", "\uFFFD", "r"}));
    EXPECT_EQ(logprobs["text_offset"], Json::array({0, 1, 2, 3, 3, 4})) << "in characters";
    EXPECT_EQ(logprobs["token_logprobs"].size(), 6U);
    EXPECT_EQ(logprobs["top_logprobs"][0].size(), 1U);
    EXPECT_TRUE(logprobs["top_logprobs"][0].contains("A"));
    Json tokens = Json::array(), offsets = Json::array();
    const auto stream = replica.post("/v1/completions", fields + R"(,"stream":true})");
    for (const std::string& event : events_of(stream.body)) {
        if (event == "[DONE]") continue;
        const Json part = Json::parse(event)["choices"][0]["logprobs"];
        if (part.is_null()) continue;
        for (const Json& token : part["tokens"])
            tokens.push_back(token);
        for (const Json& offset : part["text_offset"])
            offsets.push_back(offset);
    }
    EXPECT_EQ(tokens, logprobs["tokens"]);
    EXPECT_EQ(offsets, logprobs["text_offset"]);
    const auto echoed = replica.post("/v1/completions", fields + R"(,"echo":true})");
    EXPECT_EQ(echoed.status, 400);
    EXPECT_EQ(Json::parse(echoed.body)["error"]["param"], "echo");
}

TEST(AppFeaturesTest, ChoicesAreOneEntryOfTheQueueAndTheirPromptIsComputedOnce) {
    TestReplica replica({.sequences = 4});
    replica.runner.allow(0);
    Call call(replica, chat_body(R"("n":3)"));
    replica.runner.wait_for_step(1);
    ASSERT_TRUE(replica.eventually([&] {
        const Json status = Json::parse(replica.get("/internal/status").body);
        return status["running"].get<int>() + status["waiting"].get<int>() > 0;
    }));
    replica.runner.allow_all();
    ASSERT_EQ(call.finish().status, 200);
    const Json body = Json::parse(call.received());
    ASSERT_EQ(body["choices"].size(), 3U);
    for (const Json& choice : body["choices"])
        EXPECT_EQ(choice["message"]["content"], "A horse neighs.");
    const int prompt = body["usage"]["prompt_tokens"];
    EXPECT_EQ(body["usage"]["completion_tokens"], 48);
    EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    EXPECT_THAT(replica.get("/metrics").body,
                HasSubstr(R"(prompt_tokens_total{model="pony",replica="0"} )" +
                          std::to_string(prompt) + "\n"));
}

TEST(AppFeaturesTest, MoreChoicesThanSequencesAreAllAnswered) {
    TestReplica replica({.sequences = 2});
    const auto result = replica.post("/v1/completions", R"({"prompt":["ab","cd"],"n":5})");
    ASSERT_EQ(result.status, 200) << result.body;
    const Json body = Json::parse(result.body);
    ASSERT_EQ(body["choices"].size(), 10U);
    for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(body["choices"][i]["index"], i);
        EXPECT_EQ(body["choices"][i]["text"], "A horse neighs.");
    }
    EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
}

TEST(AppFeaturesTest, ASecondTurnSaysHowMuchOfItWasCached) {
    TestReplica replica({});
    const auto first = replica.chat(chat_body());
    EXPECT_EQ(first.headers.get("x-quadriga-cached-tokens"), "0");
    const std::string second =
        R"({"messages":[{"role":"user","content":"What does a horse do?"},)"
        R"({"role":"assistant","content":"A horse neighs."},{"role":"user","content":"Why?"}])";
    const auto whole = replica.chat(second + "}");
    const Json usage = Json::parse(whole.body)["usage"];
    const int cached = usage["prompt_tokens_details"]["cached_tokens"];
    EXPECT_GE(cached, 32) << "whole blocks of the first turn: " << whole.body;
    EXPECT_LT(cached, usage["prompt_tokens"].get<int>());
    EXPECT_EQ(whole.headers.get("x-quadriga-cached-tokens"), std::to_string(cached));
    const auto stream =
        replica.chat(second + R"(,"stream":true,"stream_options":{"include_usage":true}})");
    EXPECT_GE(std::stoi(std::string(stream.headers.get("x-quadriga-cached-tokens"))), cached);
    EXPECT_THAT(stream.body, HasSubstr(R"("cached_tokens":)" + std::string(stream.headers.get(
                                                                   "x-quadriga-cached-tokens"))));
    const auto salted = replica.chat(second + R"(,"cache_salt":"other","prompt_cache_key":"k"})");
    EXPECT_EQ(salted.headers.get("x-quadriga-cached-tokens"), "0");
    EXPECT_THAT(replica.get("/metrics").body,
                HasSubstr("quadriga_replica_prefix_hit_tokens_total"));
}

TEST(AppFeaturesTest, MinTokensAndIgnoreEosKeepTheEndAway) {
    TestReplica replica({.script = "Hi"});
    const Json least = Json::parse(replica.chat(chat_body(R"("min_tokens":5)")).body);
    EXPECT_EQ(least["choices"][0]["message"]["content"], "Hi.Hi");
    EXPECT_EQ(least["choices"][0]["finish_reason"], "stop");
    const Json endless =
        Json::parse(replica.chat(chat_body(R"("ignore_eos":true,"max_tokens":9)")).body);
    EXPECT_EQ(endless["choices"][0]["message"]["content"], "Hi.Hi.Hi.");
    EXPECT_EQ(endless["choices"][0]["finish_reason"], "length");
}

TEST(AppFeaturesTest, AStopIdEndsTheAnswerAndIsNamed) {
    TestReplica replica({});
    const Json body = Json::parse(
        replica.chat(chat_body(R"("stop_token_ids":[110],"return_token_ids":true)")).body);
    const Json& choice = body["choices"][0];
    EXPECT_EQ(choice["message"]["content"], "A horse ");
    EXPECT_EQ(choice["stop_reason"], 110);
    EXPECT_EQ(choice["token_ids"], Json::array({65, 32, 104, 111, 114, 115, 101, 32}));
}

TEST(AppFeaturesTest, TimingsComeWhenAskedFor) {
    TestReplica replica({});
    const Json body =
        Json::parse(replica.chat(chat_body(R"("include_timings":true,"draft_tokens":0)")).body);
    const Json& timings = body["timings"];
    EXPECT_GE(timings["queue_ms"].get<double>(), 0.0);
    EXPECT_GE(timings["prefill_ms"].get<double>(), 0.0);
    EXPECT_GE(timings["decode_ms"].get<double>(), 0.0);
    EXPECT_EQ(timings["drafted"], 0);
    EXPECT_EQ(timings["accepted"], 0);
    EXPECT_FALSE(Json::parse(replica.chat(chat_body()).body).contains("timings"));
}

TEST(AppFeaturesTest, ATokenBoundThatIsMetIsNamedWithBothNumbers) {
    TestReplica replica({.sequences = 1, .queued_tokens_max = 250});
    replica.runner.allow(0);
    Call running(replica, chat_body());
    replica.runner.wait_for_step(1);
    const std::string long_prompt(160, 'a');
    const std::string fields = R"({"messages":[{"role":"user","content":")" + long_prompt + "\"}]}";
    Call waiting(replica, fields);
    ASSERT_TRUE(replica.eventually(
        [&] { return Json::parse(replica.get("/internal/status").body)["queued_tokens"] > 200; }));
    const auto refused = replica.chat(fields);
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(error_code(refused), "queue_full");
    EXPECT_THAT(refused.body, HasSubstr("of at most 250 prompt tokens"));
    const int wait_s = std::stoi(std::string(refused.headers.get("retry-after")));
    EXPECT_GE(wait_s, 1);
    EXPECT_LE(wait_s, 60);
    replica.runner.allow_all();
    EXPECT_EQ(running.finish().status, 200);
    EXPECT_EQ(waiting.finish().status, 200);
}

TEST(AppFeaturesTest, InfoTellsDraftsCacheAndLimits) {
    TestReplica replica({});
    const Json info = Json::parse(replica.get("/info").body);
    EXPECT_EQ(info["mtp"]["available"], false);
    EXPECT_EQ(info["mtp"]["draft_tokens_max"], 0);
    EXPECT_EQ(info["kv"]["block_tokens"], 16);
    EXPECT_EQ(info["prefix_cache"]["enabled"], true);
    EXPECT_EQ(info["limits"]["top_logprobs_max"], 20);
    const auto clipped = replica.chat(chat_body(R"("draft_tokens":4)"));
    EXPECT_EQ(clipped.status, 200);
    EXPECT_THAT(clipped.headers.get("x-quadriga-warning"), HasSubstr("draft_tokens_clipped 0"));
}

}  // namespace
}  // namespace replica::server
