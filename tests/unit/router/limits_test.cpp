// Estimates, the retry budget, what is forwarded and how failures are read.
#include <limits>

#include <gtest/gtest.h>

#include "router/estimator.h"
#include "router/handlers.h"
#include "router/retry_budget.h"
#include "router/status_follower.h"
#include "router/upstream.h"

namespace router {
namespace {

using std::chrono::seconds;

TEST(EstimatorTest, FollowsReportedPromptsAndAnswers) {
    Estimator estimator;
    EXPECT_EQ(estimator.prompt_tokens("m", 3500), 1000);
    EXPECT_EQ(estimator.prompt_tokens("m", 0), 1);
    for (int i = 0; i < 200; ++i)
        estimator.on_prompt("m", 8000, 1000);
    EXPECT_NEAR(static_cast<double>(estimator.prompt_tokens("m", 8000)), 1000, 2);
    for (int i = 0; i < 200; ++i)
        estimator.on_output("m", 0, 10);
    EXPECT_EQ(estimator.output_tokens("m", 0, std::nullopt, 1), 10);
    EXPECT_EQ(estimator.output_tokens("m", 0, 4, 3), 12) << "capped, times n";
    EXPECT_EQ(estimator.output_tokens("m", 1, std::nullopt, 1), 256) << "another key's are its own";
    EXPECT_EQ(estimator.prompt_tokens("other", 3500), 1000) << "and another model's";
}

TEST(EstimatorTest, OddReportsDoNotSpoilIt) {
    Estimator estimator;
    estimator.on_prompt("m", 1'000'000, 1);
    estimator.on_prompt("m", 100, 0);
    estimator.on_prompt("m", 0, 100);
    estimator.on_output("m", 0, -5);
    EXPECT_GT(estimator.prompt_tokens("m", 3500), 400);
    EXPECT_GE(estimator.output_tokens("m", 0, std::nullopt, 1), 1);
    for (int i = 0; i < 100; ++i)
        estimator.on_output("m", 0, std::numeric_limits<std::int64_t>::max());
    EXPECT_GT(estimator.output_tokens("m", 0, std::nullopt, 16), 0) << "sums of it stay numbers";
    EXPECT_LT(estimator.output_tokens("m", 0, std::nullopt, 16), std::int64_t{1} << 32);
}

TEST(RetryBudgetTest, IsATenthOfTheLastTenSecondsAndAtLeastThree) {
    RetryBudget budget;
    const Clock::time_point start{seconds(1000)};
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(budget.take(start));
    EXPECT_FALSE(budget.take(start));
    for (int i = 0; i < 50; ++i)
        budget.on_request(start + seconds(5));
    EXPECT_TRUE(budget.take(start + seconds(5)));
    EXPECT_TRUE(budget.take(start + seconds(5)));
    EXPECT_FALSE(budget.take(start + seconds(5)));
    EXPECT_TRUE(budget.take(start + seconds(10))) << "the first three are past";
}

TEST(UpstreamTest, ForwardsOnlyWhatIsOnTheListAndItsOwnHeaders) {
    Config config;
    config.internal_key = "secret";
    proto::HttpRequestHead head;
    head.request_id = "req-1";
    for (const char* name : {"Authorization", "Cookie", "X-Quadriga-Instance", "X-Forwarded-For",
                             "Connection", "Transfer-Encoding", "traceparent", "Content-Type"}) {
        head.headers.add(name, std::string("client-") + name);
    }
    head.headers.add("tracestate", std::string(513, 'x'));
    const proto::Headers headers =
        forward_headers(config, head, {.instance = "abc", .dispatch = "r-1", .priority = -20});
    EXPECT_EQ(headers.get("authorization"), "Bearer secret");
    EXPECT_EQ(headers.get("x-quadriga-instance"), "abc");
    EXPECT_EQ(headers.get("x-quadriga-dispatch"), "r-1");
    EXPECT_EQ(headers.get("x-quadriga-priority"), "-20");
    EXPECT_EQ(headers.get("x-quadriga-hop"), "router");
    EXPECT_EQ(headers.get("x-request-id"), "req-1");
    EXPECT_FALSE(headers.contains("traceparent")) << "trace_context.h adds it";
    EXPECT_EQ(headers.get("content-type"), "client-Content-Type");
    EXPECT_EQ(headers.size(), 7U);
}

TEST(UpstreamTest, ReadsFailuresByWhetherTheRequestMayHaveRun) {
    using Kind = proto::ClientErrorKind;
    EXPECT_EQ(judge({.kind = Kind::kRefused}), AttemptResult::kRefused);
    EXPECT_EQ(judge({.kind = Kind::kReset, .was_sent = false}), AttemptResult::kRefused);
    EXPECT_EQ(judge({.kind = Kind::kReset, .was_sent = true}), AttemptResult::kLost);
    EXPECT_EQ(judge({.kind = Kind::kMalformed, .was_sent = true}), AttemptResult::kLost);
    EXPECT_EQ(judge_status(421), AttemptResult::kRefused);
    EXPECT_EQ(judge_status(429), AttemptResult::kBusy);
    EXPECT_EQ(judge_status(503), AttemptResult::kBusy);
    EXPECT_EQ(judge_status(502), AttemptResult::kLost);
    for (const int status : {200, 400, 404, 413}) {
        EXPECT_EQ(judge_status(status), AttemptResult::kAnswer) << status;
    }
}

TEST(UpstreamTest, HeaderNumbersAreNumbersOrNothing) {
    const auto number = [](const char* text) {
        return header_number(proto::Headers{{"n", text}}, "n", {.fallback = -7, .most = 100});
    };
    EXPECT_EQ(number("12"), 12);
    EXPECT_EQ(number("0"), 0);
    for (const char* bad : {"", "-1", "+1", "1.5", "x", "1 "}) {
        EXPECT_EQ(number(bad), -7) << bad;
    }
    for (const char* high : {"100", "101", "9223372036854775807", "99999999999999999999"}) {
        EXPECT_EQ(number(high), 100) << high;
    }
    EXPECT_EQ(header_number({}, "n", {.fallback = 3}), 3);
}

TEST(UpstreamTest, ARetryAfterReachesTheClientWithinItsLimitOrNotAtAll) {
    const auto passed_on = [](const char* text) {
        return std::string(answer_headers({{"Retry-After", text}}).get("retry-after"));
    };
    EXPECT_EQ(passed_on("7"), "7");
    EXPECT_EQ(passed_on("9223372036854775807"), "3600");
    EXPECT_EQ(passed_on("-5"), "");
    EXPECT_EQ(passed_on("soon"), "");
    EXPECT_TRUE(answer_headers({}).empty());
}

TEST(HandlersTest, ThePriorityHeaderIsANumberOrAName) {
    const auto parse = [](const char* text) {
        return parse_priority_header(proto::Headers{{"X-Quadriga-Priority", text}});
    };
    EXPECT_EQ(parse("interactive").value(), -20);
    EXPECT_EQ(parse("bulk").value(), 20);
    EXPECT_EQ(parse("-100").value(), -100);
    EXPECT_EQ(parse_priority_header({}).value(), 0);
    for (const char* bad : {"101", "-101", "1.5", "high", "1 "}) {
        EXPECT_FALSE(parse(bad)) << bad;
    }
}

TEST(HandlersTest, AJobHasWhatRoutingDependsOn) {
    const Estimator estimator;
    proto::HttpRequest request;
    request.path = "/v1/completions";
    request.body = R"({"model":"m","prompt":[[1,2,3],[4,5]],"n":2,"max_tokens":7,"priority":3})";
    const auto job = parse_job(request, estimator);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->prompt_tokens, 5) << "token ids are exact";
    EXPECT_EQ(job->sequences, 4);
    EXPECT_EQ(job->output_tokens, 28);
    EXPECT_EQ(job->priority, 3);
    request.headers.add("x-quadriga-priority", "bulk");
    EXPECT_EQ(parse_job(request, estimator)->priority, 3) << "the body comes first";
    request.body = R"({"prompt":"x")";
    EXPECT_FALSE(parse_job(request, estimator));
}

TEST(HandlersTest, AKeyBoundsHowUrgentItsRequestsMayBe) {
    const Estimator estimator;
    const auto caller = std::make_shared<const Caller>(Caller{3, "alice", -5});
    proto::HttpRequest request;
    request.path = "/v1/completions";
    const auto priority_of = [&](const char* body) {
        request.body = body;
        const auto job = parse_job(request, estimator, {.caller = caller});
        EXPECT_EQ(job->key, 3U);
        return job->priority;
    };
    EXPECT_EQ(priority_of(R"({"prompt":"x","priority":-100})"), -5);
    EXPECT_EQ(priority_of(R"({"prompt":"x","priority":-5})"), -5);
    EXPECT_EQ(priority_of(R"({"prompt":"x","priority":7})"), 7);
    EXPECT_EQ(priority_of(R"({"prompt":"x"})"), 0);
    request.headers.add("x-quadriga-priority", "interactive");
    EXPECT_EQ(priority_of(R"({"prompt":"x"})"), -5) << "the header no more than the body";
}

TEST(HandlersTest, PromptsOfTwoKeysMatchUnlessKeysAreIsolated) {
    const Estimator estimator;
    proto::HttpRequest request;
    request.path = "/v1/completions";
    request.body = R"({"prompt":")" + std::string(8192, 'x') + R"("})";
    const auto hash_of = [&](const char* name, bool isolates) {
        const auto caller = std::make_shared<const Caller>(Caller{1, name, -100});
        const auto job =
            parse_job(request, estimator, {.caller = caller, .isolates_keys = isolates});
        return job->boundaries->list.at(0).hash;
    };
    EXPECT_EQ(hash_of("alice", false), hash_of("bob", false));
    EXPECT_NE(hash_of("alice", true), hash_of("bob", true));
    EXPECT_EQ(hash_of("alice", true), hash_of("alice", true));
}

TEST(HandlersTest, OnlyProbesThePageAndMetricsOfThisMachineNeedNoKey) {
    Config config;
    const auto needs = [&config](const char* method, const char* path, const char* peer) {
        proto::HttpRequestHead head;
        head.method = method;
        head.path = path;
        head.peer = peer;
        return needs_key(config, head);
    };
    for (const char* open : {"/health", "/ready", "/dashboard"})
        EXPECT_FALSE(needs("GET", open, "10.0.0.7")) << open;
    EXPECT_FALSE(needs("OPTIONS", "/v1/models", "10.0.0.7")) << "a browser's question";
    for (const char* closed : {"/v1/models", "/info", "/props", "/dashboard/state", "/health/x",
                               "/openapi.json", "/nothing", "*"}) {
        EXPECT_TRUE(needs("GET", closed, "127.0.0.1")) << closed;
    }
    for (const char* metrics : {"/metrics", "/metrics/all", "/sd/prometheus"}) {
        EXPECT_TRUE(needs("GET", metrics, "10.0.0.7")) << metrics;
        EXPECT_FALSE(needs("GET", metrics, "127.0.0.1")) << metrics;
    }
    config.metrics_open = false;
    EXPECT_TRUE(needs("GET", "/metrics", "127.0.0.1"));
}

TEST(ParseInfoTest, TakesNamesAndEntriesAndSurvivesNonsense) {
    const ReplicaInfo info =
        parse_info("i", R"({"model":{"name":"foal","aliases":["default","foal"]}})",
                   R"({"object":"list","data":[{"id":"foal","object":"model"},{"id":7},3]})");
    EXPECT_EQ(info.model_names, (std::vector<std::string>{"foal", "default"}));
    ASSERT_EQ(info.model_entries.size(), 1U);
    EXPECT_EQ(info.model_entries[0].second, R"({"id":"foal","object":"model"})");
    for (const char* bad : {"", "[]", "null", "{\"model\":3}", "{\"data\":{}}", "{\"model\":{}}"}) {
        EXPECT_TRUE(parse_info("i", bad, bad).model_names.empty()) << bad;
    }
}

}  // namespace
}  // namespace router
