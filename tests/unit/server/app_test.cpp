// Proves the HTTP face over real sockets with a scripted model: both endpoints, streamed and whole,
// errors and their status, keys, instances, cancellation, admission, drain and the status stream.
#include "replica/server/app.h"

#include <array>
#include <future>
#include <map>

#include <gmock/gmock.h>

#include "proto/fields.h"
#include "tests/unit/server/test_replica.h"

namespace replica::server {
namespace {

using proto::Json;
using testing::Call;
using testing::chat_body;
using testing::error_code;
using testing::events_of;
using ::testing::HasSubstr;
using testing::kInstance;
using testing::kPatience;
using testing::streamed_content;
using testing::TestReplica;

TEST(AppTest, AWholeChatAnswerHasTextUsageAndHeaders) {
    TestReplica replica({});
    const auto result = replica.chat(chat_body());
    ASSERT_EQ(result.status, 200) << result.body;
    const Json body = Json::parse(result.body);
    EXPECT_EQ(body["object"], "chat.completion");
    EXPECT_EQ(body["model"], "pony");
    EXPECT_EQ(body["choices"][0]["message"]["content"], "A horse neighs.");
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
    EXPECT_TRUE(body["choices"][0]["stop_reason"].is_null());
    EXPECT_EQ(body["usage"]["completion_tokens"], 16) << "15 bytes and the end token";
    EXPECT_EQ(result.headers.get("x-quadriga-instance"), kInstance);
    EXPECT_EQ(result.headers.get("x-quadriga-cached-tokens"), "0");
    EXPECT_EQ(result.headers.get("x-quadriga-prompt-tokens"),
              std::to_string(body["usage"]["prompt_tokens"].get<int>()));
    EXPECT_FALSE(result.headers.get("x-request-id").empty());
}

TEST(AppTest, AStreamSaysTheSameAsAWholeAnswerAndEndsInOrder) {
    TestReplica replica({});
    const auto result =
        replica.chat(chat_body(R"("stream":true,"stream_options":{"include_usage":true})"));
    ASSERT_EQ(result.status, 200) << result.body;
    EXPECT_EQ(result.headers.get("content-type"), "text/event-stream");
    EXPECT_EQ(streamed_content(result.body), "A horse neighs.");
    const auto events = events_of(result.body);
    ASSERT_GE(events.size(), 5U);
    EXPECT_EQ(Json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
    EXPECT_EQ(events.back(), "[DONE]");
    const Json usage = Json::parse(events[events.size() - 2]);
    EXPECT_TRUE(usage["choices"].empty());
    EXPECT_EQ(usage["usage"]["completion_tokens"], 16);
    const Json finish = Json::parse(events[events.size() - 3]);
    EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
    EXPECT_TRUE(finish["usage"].is_null());
}

TEST(AppTest, SeveralChoicesHaveOneRoleAndOneFinishEachAndThePromptIsCountedOnce) {
    TestReplica replica({});
    const auto result =
        replica.chat(chat_body(R"("n":3,"stream":true,"stream_options":{"include_usage":true})"));
    ASSERT_EQ(result.status, 200) << result.body;
    std::array<int, 3> roles{}, finishes{};
    int usages = 0;
    for (const std::string& event : events_of(result.body)) {
        if (event == "[DONE]") continue;
        const Json chunk = Json::parse(event);
        if (chunk["choices"].empty()) {
            ++usages;
            EXPECT_EQ(chunk["usage"]["completion_tokens"], 48);
            continue;
        }
        const Json& choice = chunk["choices"][0];
        const auto index = choice["index"].get<std::size_t>();
        if (choice["delta"].contains("role")) ++roles.at(index);
        if (!choice["finish_reason"].is_null()) ++finishes.at(index);
    }
    EXPECT_THAT(roles, ::testing::Each(1));
    EXPECT_THAT(finishes, ::testing::Each(1));
    EXPECT_EQ(usages, 1);
}

TEST(AppTest, TextCompletionsTakeSeveralPromptsAndEcho) {
    TestReplica replica({});
    const auto result = replica.post("/v1/completions",
                                     R"({"prompt":["ab","cd"],"max_tokens":7,"echo":true,"n":2})");
    ASSERT_EQ(result.status, 200) << result.body;
    const Json body = Json::parse(result.body);
    ASSERT_EQ(body["choices"].size(), 4U);
    EXPECT_EQ(body["choices"][0]["text"], "abA horse");
    EXPECT_EQ(body["choices"][3]["text"], "cdA horse");
    EXPECT_EQ(body["choices"][3]["index"], 3);
    EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
    const auto stream = replica.post("/v1/completions",
                                     R"({"prompt":"ab","max_tokens":7,"echo":true,"stream":true})");
    std::string text;
    for (const std::string& event : events_of(stream.body)) {
        if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(text, "abA horse");
}

TEST(AppTest, ReasoningAndToolCallsAreTheSameStreamedAndWhole) {
    TestReplica replica(
        {.script = "The tool fits.\n</think>\n\n<tool_call>\n<function=feed>\n<parameter=what>\n"
                   "h\xC3\xA4y</tool_call>\n</parameter>\n</function>\n</tool_call>"});
    const std::string tools =
        R"("enable_thinking":true,"tools":[{"type":"function","function":{"name":"feed","parameters":)"
        R"({"type":"object","properties":{"what":{"type":"string"}}}}}])";
    const auto whole = replica.chat(chat_body(tools));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json message = Json::parse(whole.body)["choices"][0]["message"];
    EXPECT_EQ(message["reasoning_content"], "The tool fits.");
    EXPECT_TRUE(message["content"].is_null());
    EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "feed");
    const std::string arguments = message["tool_calls"][0]["function"]["arguments"];
    EXPECT_EQ(Json::parse(arguments)["what"], "h\xC3\xA4y</tool_call>");
    std::string reasoning, streamed;
    const auto stream = replica.chat(chat_body(tools + R"(,"stream":true)"));
    for (const std::string& event : events_of(stream.body)) {
        if (event == "[DONE]") continue;
        const Json choice = Json::parse(event)["choices"][0];
        const Json& delta = choice["delta"];
        if (delta.contains("reasoning_content")) {
            reasoning += delta["reasoning_content"].get<std::string>();
        }
        if (delta.contains("tool_calls")) {
            const Json& function = delta["tool_calls"][0]["function"];
            streamed += function.value("arguments", "");
        }
        if (!choice["finish_reason"].is_null()) {
            EXPECT_EQ(choice["finish_reason"], "tool_calls");
        }
    }
    EXPECT_EQ(reasoning, "The tool fits.");
    EXPECT_EQ(streamed, arguments);
}

TEST(AppTest, WhatIsNotOfferedIsRefusedWithItsParameter) {
    TestReplica replica({});
    const std::string tool = R"("tools":[{"type":"function","function":{"name":"f"}}])";
    const std::vector<std::array<std::string, 3>> cases = {
        {R"("top_logprobs":2)", "invalid_value", "top_logprobs"},
        {R"("logprobs":true,"top_logprobs":21)", "invalid_value", "top_logprobs"},
        {R"("draft_tokens":9)", "invalid_value", "draft_tokens"},
        {R"("response_format":{"type":"json_object"})", "unsupported_parameter", "response_format"},
        {tool + R"(,"tool_choice":"required")", "unsupported_value", "tool_choice"},
        {R"("thinking_token_budget":100)", "unsupported_parameter", "thinking_token_budget"},
        {R"("model":"zebra")", "model_not_found", "model"},
        {R"("max_tokens":"5")", "invalid_type", "max_tokens"},
        {R"("top_p":-1)", "invalid_value", "top_p"},
        {R"("stream_options":{"include_usage":true})", "unsupported_parameter", "stream_options"},
    };
    for (const auto& [field, code, param] : cases) {
        const auto result = replica.chat(chat_body(field));
        EXPECT_EQ(result.status, code == "model_not_found" ? 404 : 400) << field;
        EXPECT_EQ(error_code(result), code) << field;
        EXPECT_EQ(Json::parse(result.body)["error"]["param"], param) << field;
    }
    // Whatever the API document leaves out as not offered is refused indeed, and by its name.
    const std::map<std::string, std::string, std::less<>> samples = {
        {"structured_outputs", R"({"regex":"a"})"},
        {"json_schema", R"({"type":"object"})"},
        {"regex", R"("a")"},
        {"grammar", R"("root ::= \"a\"")"},
        {"continue_final_message", "true"},
        {"chat_template", R"("x")"}};
    for (const proto::FieldSpec& spec : proto::request_fields()) {
        if (spec.mark != proto::FieldMark::kUnoffered) continue;
        const std::string name(spec.name);
        ASSERT_TRUE(samples.contains(name)) << name;
        const std::string field = "\"" + name + "\":" + samples.at(name);
        const auto result = replica.chat(
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],)" +
            field + "}");
        EXPECT_EQ(result.status, 400) << name;
        EXPECT_EQ(error_code(result), "unsupported_parameter") << name;
        EXPECT_THAT(Json::parse(result.body)["error"]["param"].get<std::string>(),
                    ::testing::StartsWith(name));
    }
    EXPECT_EQ(error_code(replica.chat("{")), "invalid_json");
    EXPECT_EQ(error_code(replica.post("/v1/responses", "{}")), "unknown_url");
    EXPECT_EQ(error_code(replica.get("/v1/chat/completions")), "method_not_allowed");
    EXPECT_EQ(replica.chat(chat_body(), {{"Content-Type", "text/plain"}}).status, 415);
}

TEST(AppTest, AnOverlongPromptIsRefusedWithBothNumbers) {
    TestReplica replica({});
    const auto tokens_of = [&](int count) {
        std::string ids = "[";
        for (int i = 0; i < count; ++i)
            ids += i == 0 ? "97" : ",97";
        return replica.post("/v1/completions", R"({"prompt":)" + ids + "]}");
    };
    const auto fits = tokens_of(testing::kContext - 1);
    ASSERT_EQ(fits.status, 200) << fits.body;
    EXPECT_EQ(Json::parse(fits.body)["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(Json::parse(fits.body)["usage"]["completion_tokens"], 1);
    const auto too_long = tokens_of(testing::kContext);
    EXPECT_EQ(error_code(too_long), "context_length_exceeded");
    EXPECT_THAT(too_long.body, HasSubstr("512 tokens, but the prompt has 512 tokens"));
    EXPECT_THAT(too_long.body, HasSubstr("exceeds the available context size"));
}

TEST(AppTest, TokensAndTemplatesAnswer) {
    TestReplica replica({});
    const Json tokens = Json::parse(
        replica.post("/tokenize", R"({"content":"a<|im_end|>","with_pieces":true})").body);
    EXPECT_EQ(tokens["tokens"], Json::array({97, 257}));
    EXPECT_EQ(tokens["pieces"][1]["piece"], "<|im_end|>");
    EXPECT_EQ(Json::parse(replica.post("/detokenize", R"({"tokens":[97,226,98]})").body)["content"],
              "a\uFFFDb");
    EXPECT_EQ(error_code(replica.post("/detokenize", R"({"tokens":[262]})")), "invalid_value");
    EXPECT_EQ(error_code(replica.post("/detokenize", R"({"tokens":[-1]})")), "invalid_value");
    EXPECT_EQ(error_code(replica.post("/tokenize", "{}")), "missing_required_parameter");
    const Json prompt = Json::parse(
        replica.post("/apply-template", R"({"messages":[{"role":"user","content":"Hi"}]})").body);
    EXPECT_EQ(prompt["prompt"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(prompt["data_spans"].size(), 2U) << "role and content came from the request";
}

TEST(AppTest, RequestTextNeverMakesAControlToken) {
    TestReplica replica({});
    const Json tokens = Json::parse(
        replica.post("/tokenize", R"({"messages":[{"role":"user","content":"<|im_end|>"}]})").body);
    int ends = 0;
    for (const Json& id : tokens["tokens"])
        ends += id == testing::kImEnd ? 1 : 0;
    EXPECT_EQ(ends, 1) << "the template's own";
}

TEST(AppTest, ModelsInfoPropsHealthReadyAndMetricsAnswer) {
    TestReplica replica({});
    const Json models = Json::parse(replica.get("/v1/models").body);
    ASSERT_EQ(models["data"].size(), 2U);
    EXPECT_EQ(models["data"][1]["id"], "little-horse");
    EXPECT_EQ(replica.get("/v1/models/pony").status, 200);
    EXPECT_EQ(error_code(replica.get("/v1/models/zebra")), "model_not_found");
    EXPECT_EQ(Json::parse(replica.get("/info").body)["tool_format"], "qwen_xml");
    EXPECT_EQ(Json::parse(replica.get("/props").body)["total_slots"], 2);
    EXPECT_EQ(replica.get("/health").body, R"({"status":"ok"})");
    EXPECT_EQ(replica.get("/ready").body, R"({"status":"ready"})");
    const Json document = Json::parse(replica.get("/openapi.json").body);
    EXPECT_EQ(document["openapi"], "3.1.0");
    for (const char* path : {"/v1/chat/completions", "/apply-template", "/props", "/metrics"})
        EXPECT_TRUE(document["paths"].contains(path)) << path;
    for (const auto& [path, methods] : document["paths"].items()) {
        for (const auto& [method, operation] : methods.items())
            EXPECT_NE(operation["summary"], "") << method << " " << path;
    }
    replica.chat(chat_body());
    const auto metrics = replica.get("/metrics");
    EXPECT_THAT(metrics.headers.get("content-type"), HasSubstr("text/plain"));
    for (const char* line :
         {R"(quadriga_replica_ready{model="pony",replica="0"} 1)",
          R"(quadriga_replica_requests_finished_total{model="pony",replica="0",reason="stop"} 1)",
          "quadriga_replica_time_to_first_token_seconds_count", "quadriga_replica_kv_blocks_total",
          "process_resident_memory_bytes"}) {
        EXPECT_THAT(metrics.body, HasSubstr(line));
    }
}

TEST(AppTest, WhileLoadingItIsHealthyNotReadyAndRefusesWork) {
    TestReplica replica({.is_loaded = false});
    EXPECT_EQ(replica.get("/health").status, 200);
    const auto ready = replica.get("/ready");
    EXPECT_EQ(ready.status, 503);
    EXPECT_EQ(ready.body, R"({"status":"loading"})");
    EXPECT_THAT(replica.get("/internal/status").body, HasSubstr(R"("state":"LOADING")"));
    const auto chat = replica.chat(chat_body());
    EXPECT_EQ(chat.status, 503);
    EXPECT_EQ(error_code(chat), "loading");
    EXPECT_FALSE(chat.headers.get("retry-after").empty());
    EXPECT_EQ(error_code(replica.post("/tokenize", R"({"content":"a"})")), "loading");
    EXPECT_EQ(replica.get("/v1/models").status, 503);
    EXPECT_EQ(replica.get("/metrics").status, 200);
}

TEST(AppTest, WithAKeyOnlyHealthReadyAndMetricsAreOpen) {
    TestReplica replica({.internal_key = "secret"});
    EXPECT_EQ(replica.get("/health").status, 200);
    EXPECT_EQ(replica.get("/ready").status, 200);
    EXPECT_EQ(replica.get("/metrics").status, 200);
    EXPECT_EQ(error_code(replica.get("/internal/status")), "invalid_api_key");
    EXPECT_EQ(error_code(replica.chat(chat_body())), "invalid_api_key");
    EXPECT_EQ(replica.chat(chat_body(), {{"Authorization", "Bearer secreT"}}).status, 401);
    EXPECT_EQ(replica.chat(chat_body(), {{"Authorization", "Bearer secret"}}).status, 200);
}

TEST(AppTest, AnotherInstanceIsMisdirected) {
    TestReplica replica({});
    const proto::Headers right{{"x-quadriga-instance", std::string(kInstance)}};
    EXPECT_EQ(replica.chat(chat_body(), right).status, 200);
    const proto::Headers wrong{{"x-quadriga-instance", "0000000000000000"}};
    EXPECT_EQ(replica.chat(chat_body(), wrong).status, 421);
}

TEST(AppTest, AClientThatLeavesFreesEverythingWithinAStep) {
    TestReplica replica({.script = std::string(300, 'x')});
    replica.runner.allow(5);  // then the engine stands
    Call call(replica, chat_body(R"("stream":true)"));
    ASSERT_TRUE(
        replica.eventually([&] { return call.received().find("xx") != std::string::npos; }));
    call.leave();
    replica.runner.allow(2);
    call.finish();
    replica.runner.allow_all();
    EXPECT_TRUE(replica.eventually([&] { return replica.inside() == 0; }));
    const Json status = Json::parse(replica.get("/internal/status").body);
    EXPECT_EQ(status["running"], 0);
    EXPECT_EQ(status["waiting"], 0);
    EXPECT_EQ(status["kv_blocks_free"], status["kv_blocks_total"]);
    EXPECT_THAT(
        replica.get("/metrics").body,
        HasSubstr(R"(client_disconnects_total{model="pony",replica="0",phase="decode"} 1)"));
}

TEST(AppTest, BeyondRunningAndWaitingPlacesTheAnswerIs429) {
    TestReplica replica({.sequences = 1});
    replica.runner.allow(0);
    std::vector<std::unique_ptr<Call>> inside;
    for (int i = 0; i < 5; ++i)
        inside.push_back(std::make_unique<Call>(replica, chat_body()));
    ASSERT_TRUE(replica.eventually([&] { return replica.inside() == 5; }));
    const auto refused = replica.chat(chat_body());
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(error_code(refused), "queue_full");
    EXPECT_FALSE(refused.headers.get("retry-after").empty());
    replica.runner.allow_all();
    for (const auto& call : inside)
        EXPECT_EQ(call->finish().status, 200);
}

TEST(AppTest, DrainingLetsRunningRequestsFinishAndRefusesNewOnes) {
    TestReplica replica({});
    replica.runner.allow(3);
    Call running(replica, chat_body());
    replica.runner.wait_for_step(4);
    std::promise<void> stopped;
    replica.on_io([&] { replica.app().drain(kPatience, [&] { stopped.set_value(); }); });
    EXPECT_EQ(replica.get("/ready").body, R"({"status":"draining"})");
    const auto refused = replica.chat(chat_body());
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(error_code(refused), "draining");
    replica.runner.allow_all();
    const auto result = running.finish();
    EXPECT_EQ(result.status, 200);
    EXPECT_THAT(running.received(), HasSubstr("A horse neighs."));
    stopped.get_future().wait();
}

TEST(AppTest, TheDeadlineOfADrainEndsStreamsWithAnErrorEvent) {
    TestReplica replica({.script = std::string(300, 'x')});
    replica.runner.allow(5);
    Call call(replica, chat_body(R"("stream":true)"));
    ASSERT_TRUE(
        replica.eventually([&] { return call.received().find("xx") != std::string::npos; }));
    replica.on_io([&] { replica.app().drain(std::chrono::milliseconds{0}, [] {}); });
    call.finish();
    EXPECT_THAT(call.received(), HasSubstr("event: error"));
    EXPECT_THAT(call.received(), HasSubstr(R"("code":"draining")"));
    EXPECT_EQ(call.received().find("[DONE]"), std::string::npos);
}

TEST(AppTest, ALostDeviceEndsRequestsWithAnEngineError) {
    TestReplica replica({});
    replica.runner.lose_device();
    const auto before_any_token = replica.chat(chat_body(R"("stream":true)"));
    EXPECT_EQ(before_any_token.status, 500);
    EXPECT_EQ(error_code(before_any_token), "engine_error");
}

TEST(AppTest, TheStatusStreamReportsAtOnceAndTellsHowADispatchEnded) {
    TestReplica replica({});
    std::promise<void> first, done;
    std::string received;
    bool has_first = false, has_done = false;
    proto::BlockingRequest request;
    request.url = replica.url("/internal/status/stream");
    request.timeout = kPatience;
    request.on_body = [&](int, std::string_view bytes) {
        received.append(bytes);
        if (!std::exchange(has_first, true)) first.set_value();
        has_done = received.find("event: done") != std::string::npos;
        if (has_done) done.set_value();
        return !has_done;
    };
    auto reader = std::async(std::launch::async, [&] { return proto::http_call(request); });
    first.get_future().wait();
    replica.chat(chat_body(), {{"x-quadriga-dispatch", "a91c-1"}, {"x-quadriga-hop", "router"}});
    done.get_future().wait();
    reader.get();
    EXPECT_THAT(received, HasSubstr(R"("state":"READY")"));
    EXPECT_THAT(received, HasSubstr(R"("dispatch":"a91c-1")"));
    EXPECT_THAT(received, HasSubstr(R"("generated":16,"reason":"stop")"));
}

TEST(AppTest, BehindARouterTheHeadWaitsForTheFirstTokenAndCarriesThePromptTokens) {
    TestReplica replica({});
    const auto result = replica.chat(chat_body(R"("stream":true)"), {{"x-quadriga-hop", "router"}});
    EXPECT_EQ(result.status, 200);
    EXPECT_FALSE(result.headers.get("x-quadriga-prompt-tokens").empty());
    EXPECT_EQ(streamed_content(result.body), "A horse neighs.");
}

}  // namespace
}  // namespace replica::server
