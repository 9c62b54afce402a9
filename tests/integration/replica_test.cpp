// Proves the program quadriga-replica as it runs in production, with the demo model: from the first
// line on the ready pipe over chats, cancellation and bad input to each way of ending.
#include <future>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "proto/sse.h"
#include "tests/integration/replica_process.h"

namespace replica::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

/// One process for the tests that leave it as they found it.
class ReplicaTest : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        shared_ = std::make_unique<ReplicaProcess>(std::vector<std::string>{
            "--served-name", "foal", "--context", "1024", "--sequences", "2", "--threads", "2"});
        shared_->wait_until_ready();
        ASSERT_TRUE(shared_->is_ready()) << shared_->error_text();
    }
    static void TearDownTestSuite() { shared_.reset(); }
    static ReplicaProcess& replica() { return *shared_; }

    static std::unique_ptr<ReplicaProcess> shared_;
};
std::unique_ptr<ReplicaProcess> ReplicaTest::shared_;

std::string chat(const std::string& question, const std::string& more) {
    return R"({"model":"foal","messages":[{"role":"user","content":")" + question +
           R"("}],"temperature":0,)" + more + "}";
}

struct Streamed {
    std::string content, reasoning, finish_reason;
    Json usage;
    bool is_done = false;
};

Streamed streamed(const std::string& body) {
    Streamed result;
    proto::SseDecoder decoder;
    decoder.feed(body);
    while (const auto event = decoder.next()) {
        result.is_done = event->data == "[DONE]";
        if (result.is_done) break;
        const Json chunk = Json::parse(event->data);
        if (chunk.contains("usage") && !chunk["usage"].is_null()) result.usage = chunk["usage"];
        for (const Json& choice : chunk["choices"]) {
            const Json& delta = choice["delta"];
            result.content += delta.value("content", "");
            result.reasoning += delta.value("reasoning_content", "");
            if (!choice["finish_reason"].is_null()) result.finish_reason = choice["finish_reason"];
        }
    }
    return result;
}

TEST_F(ReplicaTest, AStreamedChatSaysWhatAPlainOneSays) {
    for (const std::string effort : {"none", "medium"}) {
        const std::string fields = R"("max_tokens":64,"reasoning_effort":")" + effort + "\"";
        const auto plain =
            replica().post("/v1/chat/completions", chat("What does a horse do?", fields));
        ASSERT_EQ(plain.status, 200) << plain.body;
        const Json body = Json::parse(plain.body);
        const Json message = body["choices"][0]["message"];
        const auto stream = replica().post(
            "/v1/chat/completions",
            chat("What does a horse do?",
                 fields + R"(,"stream":true,"stream_options":{"include_usage":true})"));
        ASSERT_EQ(stream.status, 200) << stream.body;
        const Streamed sum = streamed(stream.body);
        EXPECT_TRUE(sum.is_done);
        EXPECT_EQ(sum.content, message["content"].is_null() ? "" : message["content"]);
        EXPECT_EQ(sum.reasoning, message.value("reasoning_content", ""));
        EXPECT_EQ(sum.finish_reason, body["choices"][0]["finish_reason"]);
        Json usage = sum.usage;  // but for what the first one left in the cache
        EXPECT_GT(usage["prompt_tokens_details"]["cached_tokens"], 0);
        usage["prompt_tokens_details"] = body["usage"]["prompt_tokens_details"];
        EXPECT_EQ(usage, body["usage"]);
        EXPECT_GT(body["usage"]["completion_tokens"], 0);
        EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"].get<int>() +
                                                     body["usage"]["completion_tokens"].get<int>());
    }
}

TEST_F(ReplicaTest, AStopStringCutsTheAnswerExactly) {
    const std::string fields = R"("max_tokens":64,"reasoning_effort":"none")";
    const auto whole =
        replica().post("/v1/chat/completions", chat("What does a horse do?", fields));
    const std::string text = Json::parse(whole.body)["choices"][0]["message"]["content"];
    ASSERT_GT(text.size(), 6U) << whole.body;
    const std::string stop = text.substr(text.size() / 2, 3);
    const auto cut =
        replica().post("/v1/chat/completions",
                       chat("What does a horse do?", fields + R"(,"stop":)" + Json(stop).dump()));
    const Json choice = Json::parse(cut.body)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], text.substr(0, text.find(stop)));
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["stop_reason"], stop);
}

TEST_F(ReplicaTest, AToolCallNamesTheFunctionAndItsArguments) {
    const std::string tools =
        R"("max_tokens":200,"tools":[{"type":"function","function":{"name":"get_weather",)"
        R"("description":"Weather of a city","parameters":{"type":"object","properties":)"
        R"({"city":{"type":"string"}},"required":["city"]}}}])";
    const auto result =
        replica().post("/v1/chat/completions", chat("What is the weather in Oslo?", tools));
    ASSERT_EQ(result.status, 200) << result.body;
    const Json choice = Json::parse(result.body)["choices"][0];
    ASSERT_EQ(choice["finish_reason"], "tool_calls") << result.body;
    const Json call = choice["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(call["name"], "get_weather");
    EXPECT_EQ(Json::parse(call["arguments"].get<std::string>())["city"], "Oslo");
}

TEST_F(ReplicaTest, AClientThatLeavesInDecodeFreesItsBlocks) {
    std::size_t bytes = 0;
    replica().post(
        "/v1/chat/completions",
        chat("Tell me a long story.", R"("stream":true,"ignore_eos":true,"max_tokens":900)"),
        [&](std::string_view piece) {
            bytes += piece.size();
            return bytes < 2000;
        });
    const auto deadline = std::chrono::steady_clock::now() + kProcessPatience;
    std::string metrics;
    double running = -1;
    do {
        metrics = replica().get("/metrics").body;
        running = metric(metrics, "quadriga_replica_requests_running");
    } while (running != 0 && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(running, 0);
    EXPECT_EQ(metric(metrics, "quadriga_replica_requests_waiting"), 0);
    EXPECT_EQ(metric(metrics, "quadriga_replica_kv_blocks_used"), 0);
    EXPECT_EQ(
        metric(
            metrics,
            R"(quadriga_replica_client_disconnects_total{model="foal",replica="0",phase="decode")"),
        1);
}

TEST_F(ReplicaTest, BadInputGetsTheAnswerItDeserves) {
    const auto code = [&](std::string body) {
        const auto result = replica().post("/v1/chat/completions", std::move(body));
        return std::to_string(result.status) + " " +
               Json::parse(result.body)["error"]["code"].get<std::string>();
    };
    EXPECT_EQ(code("{\"messages\":"), "400 invalid_json");
    EXPECT_EQ(code(chat("Hi", R"("model":"foal")")), "400 duplicate_key");
    EXPECT_EQ(code(R"({"messages":[{"role":"user","content":"Hi"}],"model":"zebra"})"),
              "404 model_not_found");
    EXPECT_EQ(code(chat("Hi", R"("max_tokens":1.5)")), "400 invalid_type");
    EXPECT_EQ(code(R"({"messages":[]})"), "400 invalid_value");
    std::string words;
    for (int i = 0; i < 1100; ++i)
        words += "hay ";
    EXPECT_EQ(code(chat(words, R"("max_tokens":5)")), "400 context_length_exceeded");
}

TEST_F(ReplicaTest, MoreRequestsThanPlacesAreRefusedAndTheRestIsServed) {
    constexpr int kClients = 40;  // 2 run, 8 wait
    std::vector<std::future<int>> answers;
    for (int i = 0; i < kClients; ++i) {
        answers.push_back(std::async(std::launch::async, [&] {
            return replica()
                .post("/v1/chat/completions",
                      chat("Count.", R"("ignore_eos":true,"max_tokens":60)"))
                .status;
        }));
    }
    int served = 0, refused = 0;
    for (auto& answer : answers) {
        const int status = answer.get();
        served += status == 200 ? 1 : 0;
        refused += status == 429 ? 1 : 0;
    }
    EXPECT_EQ(served + refused, kClients);
    EXPECT_GE(served, 10);
    EXPECT_EQ(metric(replica().get("/metrics").body, "quadriga_replica_requests_waiting"), 0);
}

TEST(ReplicaProcessTest, TellsTheLauncherEveryStepInOrder) {
    ReplicaProcess replica(
        {"--context", "512", "--sequences", "1", "--instance", "00112233445566aa"});
    const auto& events = replica.wait_until_ready();
    ASSERT_TRUE(replica.is_ready());
    EXPECT_TRUE(std::holds_alternative<proto::HelloEvent>(events.front().event));
    std::vector<proto::ReplicaState> phases;
    const proto::SelftestEvent* selftest = nullptr;
    bool has_kernels = false;
    for (const proto::PipeEvent& event : events) {
        EXPECT_EQ(event.instance, "00112233445566aa");
        if (const auto* phase = std::get_if<proto::PhaseEvent>(&event.event)) {
            if (phases.empty() || phases.back() != phase->phase) phases.push_back(phase->phase);
        }
        has_kernels |= std::holds_alternative<proto::KernelsEvent>(event.event);
        if (const auto* test = std::get_if<proto::SelftestEvent>(&event.event)) selftest = test;
    }
    EXPECT_THAT(phases,
                ::testing::ElementsAre(proto::ReplicaState::kLoading, proto::ReplicaState::kWarming,
                                       proto::ReplicaState::kSelftest));
    EXPECT_TRUE(has_kernels);
    ASSERT_NE(selftest, nullptr);
    EXPECT_TRUE(selftest->passed);
    EXPECT_EQ(selftest->tokens_sha256.size(), 64U);
    EXPECT_GT(selftest->decode_tokens_per_s, 0);
    EXPECT_EQ(replica.get("/ready").status, 200) << "who hears ready may send at once";
}

TEST(ReplicaProcessTest, ATermLetsARunningStreamFinish) {
    ReplicaProcess replica({"--context", "512", "--sequences", "1"});
    replica.wait_until_ready();
    bool has_signalled = false;
    std::string received;
    replica.post("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"Count."}],"stream":true,)"
                 R"("ignore_eos":true,"max_tokens":200,"temperature":0})",
                 [&](std::string_view piece) {
                     received += piece;
                     if (!std::exchange(has_signalled, true)) replica.signal(SIGTERM);
                     return true;
                 });
    EXPECT_THAT(received, HasSubstr("[DONE]"));
    EXPECT_EQ(replica.wait_for_exit(), 0);
}

TEST(ReplicaProcessTest, ASecondTermEndsARunningStreamWithAnErrorEvent) {
    ReplicaProcess replica({"--context", "4096", "--sequences", "1"});
    replica.wait_until_ready();
    int pieces = 0;
    std::string received;
    replica.post("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"Count."}],"stream":true,)"
                 R"("ignore_eos":true,"temperature":0})",
                 [&](std::string_view piece) {
                     received += piece;
                     if (++pieces == 2 || pieces == 4) replica.signal(SIGTERM);
                     return true;
                 });
    EXPECT_THAT(received, HasSubstr("event: error"));
    EXPECT_THAT(received, HasSubstr("draining"));
    EXPECT_EQ(replica.wait_for_exit(), 0);
}

TEST(ReplicaProcessTest, ALogThatNobodyReadsStopsNeitherServingNorTheEnd) {
    ReplicaProcess replica(
        {"--served-name", "foal", "--context", "512", "--sequences", "1", "--threads", "1"});
    replica.wait_until_ready();
    ASSERT_TRUE(replica.is_ready()) << replica.error_text();
    (void)replica.port();
    replica.fill_error_pipe();
    for (int i = 0; i < 20; ++i) {  // each is a line of the log
        const auto answer = replica.post("/v1/chat/completions", chat("Hi", R"("max_tokens":1)"));
        ASSERT_EQ(answer.status, 200) << answer.body;
    }
    replica.signal(SIGTERM);
    EXPECT_EQ(replica.wait_for_exit(), 0);
}

TEST(ReplicaProcessTest, TheEndOfTheLauncherEndsItAtAnyTime) {
    ReplicaProcess loading({"--context", "512"});
    loading.port();
    loading.close_death_pipe();
    EXPECT_EQ(loading.wait_for_exit(), 1);
    ReplicaProcess ready({"--context", "512"});
    ready.wait_until_ready();
    ready.close_death_pipe();
    EXPECT_EQ(ready.wait_for_exit(), 1);
}

TEST(ReplicaProcessTest, ATakenPortAMissingModelAndAWrongFlagHaveTheirExitCodes) {
    ReplicaProcess first({"--context", "512"});
    ReplicaProcess second({"--context", "512", "--port", std::to_string(first.port())});
    second.wait_until_ready();
    EXPECT_EQ(second.wait_for_exit(), 6);
    EXPECT_THAT(second.error_text(), HasSubstr("Q0600 port"));

    ReplicaProcess missing({"--model", "/no/such/model.gguf"});
    const auto& events = missing.wait_until_ready();
    const auto* fatal = std::get_if<proto::FatalEvent>(&events.back().event);
    ASSERT_NE(fatal, nullptr);
    EXPECT_EQ(fatal->error_class, "model_file");
    EXPECT_THAT(fatal->what, HasSubstr("/no/such/model.gguf"));
    EXPECT_EQ(missing.wait_for_exit(), 4);
    EXPECT_THAT(missing.error_text(), ::testing::Not(HasSubstr("listening on")));

    ReplicaProcess kernel({"--context", "512", "--require-kernels", "matmul_mma"});
    kernel.wait_until_ready();
    EXPECT_EQ(kernel.wait_for_exit(), 7);

    ReplicaProcess network({"--context", "512", "--host", "0.0.0.0"});
    network.wait_until_ready();
    EXPECT_EQ(network.wait_for_exit(), 2);
    EXPECT_THAT(network.error_text(), HasSubstr("--insecure-no-auth"));

    ReplicaProcess flag({"--no-such-flag"});
    EXPECT_EQ(flag.wait_for_exit(), 2);
}

}  // namespace
}  // namespace replica::testing
