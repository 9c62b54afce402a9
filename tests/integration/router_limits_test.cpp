// Limits and lists of the running router's surface: connections, heads, times of requests, pages of
// other origins, descriptors that run out, and the catalogue of its metrics.
#include <csignal>
#include <fstream>
#include <set>

#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/temp_folder.h"

namespace fleet {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
constexpr const char* kChat = "/v1/chat/completions";

TEST(RouterLimitsTest, TheLastRequestOfAConnectionIsAnsweredWithClose) {
    Fleet fleet(1, {}, {"--requests-per-connection-max", "3"});
    RawClient client(fleet.router->port());
    for (int i = 0; i < 3; ++i)
        client.ask("GET", "/health");
    const Answer all = client.read_to_end();
    EXPECT_TRUE(all.is_closed);
    std::size_t answers = 0;
    const std::string text = all.head + all.body;
    for (std::size_t at = text.find("HTTP/1.1 200"); at != std::string::npos;
         at = text.find("HTTP/1.1 200", at + 1)) {
        ++answers;
    }
    EXPECT_EQ(answers, 3U);
    EXPECT_GT(text.find("Connection: close"), text.rfind("HTTP/1.1 200")) << "only the last";
}

TEST(RouterLimitsTest, HeadsAreBoundedInclusively) {
    Fleet fleet(1, {}, {"--header-bytes-max", "1024", "--header-count-max", "10"});
    const auto status_of_bytes = [&](std::size_t bytes) {
        const std::string start = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\na: ";
        const std::string end = "\r\n\r\n";
        RawClient client(fleet.router->port());
        client.send(start + std::string(bytes - start.size() - end.size(), 'x') + end);
        return client.read_answer().status;
    };
    EXPECT_EQ(status_of_bytes(1024), 200);
    EXPECT_EQ(status_of_bytes(1025), 431);
    const auto status_of_fields = [&](int count) {
        const std::vector<std::string> fields(static_cast<std::size_t>(count - 1), "a: b");
        return get(fleet.router->port(), "/health", fields).status;
    };
    EXPECT_EQ(status_of_fields(10), 200);
    EXPECT_EQ(status_of_fields(11), 431);
}

TEST(RouterLimitsTest, SlowHeadsAndIdleConnectionsEnd) {
    Router hasty({"--header-read-s", "0.05"});
    RawClient slow(hasty.port());
    slow.send("GET /health HT");
    EXPECT_EQ(slow.read_to_end().status, 408);
    Router forgetful({"--keepalive-idle-s", "0.05"});
    RawClient idle(forgetful.port());
    idle.ask("GET", "/health");
    const Answer answer = idle.read_to_end();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.is_closed);
}

TEST(RouterLimitsTest, OneConnectionTooManyIsClosedAndCounted) {
    Fleet fleet(1, {}, {"--connections-max", "2"});
    RawClient first(fleet.router->port());
    first.ask("GET", "/health");
    EXPECT_EQ(first.read_answer().status, 200);
    RawClient second(fleet.router->port());
    second.ask("GET", "/health");
    EXPECT_EQ(second.read_answer().status, 200);
    RawClient third(fleet.router->port());
    EXPECT_TRUE(third.read_to_end().is_closed);
    first.close();
    std::string text;
    while (text.empty())  // until its place is free
        text = get(fleet.router->port(), "/metrics").body;
    EXPECT_THAT(text,
                ContainsRegex("connections_rejected_total.reason=\"connections_max\". [1-9]"));
}

constexpr const char* kBytesHeld = "quadriga_router_body_bytes";

TEST(RouterLimitsTest, ABodyIsCountedWhileItArrivesOnEveryPath) {
    Fleet fleet(1, {}, {"--bodies-bytes-max", "10000"});
    const std::string chunk = "bb8\r\n" + std::string(3000, ' ') + "\r\n";
    for (const std::string path : {"/v1/chat/completions", "/tokenize"}) {
        RawClient endless(fleet.router->port());
        endless.send("POST " + path +
                     " HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk);
        while (fleet.router->metric(kBytesHeld) < 3000) {
        }
        const Answer refused = post(fleet.router->port(), path, std::string(7001, ' '));
        EXPECT_EQ(refused.status, 429) << path << ": another has too little left";
        endless.send(chunk + chunk + chunk);
        const Answer full = endless.read_answer();
        EXPECT_EQ(full.status, 429) << path;
        EXPECT_THAT(full.body, HasSubstr("queue_full"));
        while (fleet.router->metric(kBytesHeld) != 0) {
        }
    }
    RawClient promised(fleet.router->port());
    promised.send("POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6000\r\n\r\n");
    while (fleet.router->metric(kBytesHeld) != 6000) {
    }
    const std::string text = R"({"content":")" + std::string(5000, 'x') + R"("})";
    EXPECT_EQ(post(fleet.router->port(), "/tokenize", text).status, 429);
    promised.close();
    while (fleet.router->metric(kBytesHeld) != 0) {
    }
    EXPECT_EQ(post(fleet.router->port(), "/tokenize", text).status, 200);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterLimitsTest, WhatNeedsNoQueueIsCountedFromItsHeadToItsEnd) {
    constexpr const char* kPasses = "quadriga_router_passes_inflight";
    Fleet fleet(1, {}, {"--queue-count-max", "2"});
    const int port = fleet.router->port();
    RawClient slow(port);
    slow.post("/tokenize", R"({"content":"ttft_ms=600000"})");
    RawClient promised(port);
    promised.send("POST /detokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n");
    while (fleet.router->metric(kPasses) != 2) {
    }
    for (const char* path : {"/tokenize", "/apply-template"}) {
        const Answer refused = post(port, path, R"({"content":"x"})");
        EXPECT_EQ(refused.status, 429) << path;
        EXPECT_THAT(refused.body, HasSubstr("2 requests of this kind are running"));
    }
    EXPECT_EQ(get(port, "/props").status, 429);
    EXPECT_EQ(post(port, kChat, chat_body("hi", false)).status, 200) << "the queue is another";
    promised.close();
    while (fleet.router->metric(kPasses) != 1) {
    }
    EXPECT_EQ(post(port, "/tokenize", R"({"content":"x"})").status, 200);
    slow.close();
    while (fleet.router->metric(kPasses) != 0) {
    }
    EXPECT_EQ(fleet.router->metric("quadriga_router_rejected_total{reason=\"passes_full\"}"), 3);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterLimitsTest, ScrapesOfAllReplicasAreFewAtOnceAndTheRestIsToldToComeBack) {
    Fleet fleet(1);
    fleet.fakes[0]->process().signal(SIGSTOP);  // each waits for it as long as it may
    std::vector<std::unique_ptr<RawClient>> scrapers;
    for (int i = 0; i < 40; ++i) {
        scrapers.push_back(std::make_unique<RawClient>(fleet.router->port()));
        scrapers.back()->ask("GET", "/metrics/all");
    }
    int served = 0;
    for (const auto& scraper : scrapers) {
        const int status = scraper->read_answer().status;
        EXPECT_TRUE(status == 200 || status == 429) << status;
        served += status == 200 ? 1 : 0;
    }
    EXPECT_GE(served, 4);
    fleet.fakes[0]->process().signal(SIGCONT);
    EXPECT_EQ(get(fleet.router->port(), "/metrics/all").status, 200);
}

TEST(RouterLimitsTest, AnAnswerThatIsNoStreamPassesWholeHoweverLongItIs) {
    Fleet fleet(1);
    for (const std::size_t more : {1'000'000U, 1'048'576U, 3'000'000U}) {
        const Answer answer = post(fleet.router->port(), "/tokenize",
                                   R"({"content":"answer_bytes=)" + std::to_string(more) + "\"}");
        EXPECT_EQ(answer.status, 200);
        EXPECT_TRUE(answer.is_complete);
        EXPECT_EQ(answer.body.size(), more + 28);
    }
}

TEST(RouterLimitsTest, WhoIsSentAwayHearsWhenToComeBackThoughTheReplicaDoesNotSay) {
    Fleet fleet(1, {"--refuse", "429", "--retry-after", "0"});
    const Answer refused = post(fleet.router->port(), kChat, chat_body("hi", false));
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.header("Retry-After"), ContainsRegex("^[1-9]"));
    const Router empty({});
    const Answer not_ready = get(empty.port(), "/ready");
    EXPECT_EQ(not_ready.status, 503);
    EXPECT_EQ(not_ready.header("Retry-After"), "30");
}

TEST(RouterLimitsTest, ARequestEndsAtItsTimeWhereverItIs) {
    Fleet fleet(1, {"--slots", "1"}, {"--total-max-s", "2", "--dispatch-ahead", "0"});
    RawClient streaming(fleet.router->port());
    streaming.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(streaming.read_body_bytes(10));
    RawClient queued(fleet.router->port());
    queued.post(kChat, chat_body("hi", false));
    const Answer ended = streaming.read_to_end();
    EXPECT_TRUE(ended.is_complete);
    EXPECT_THAT(ended.body, HasSubstr("request_timeout"));
    EXPECT_THAT(ended.body, HasSubstr("total_max_s = 2)"));
    EXPECT_THAT(ended.body, Not(HasSubstr("[DONE]")));
    EXPECT_TRUE(fleet.router->process().wait_line({"event=request ", "outcome=client_error"}));
    const Answer late = queued.read_answer();  // or served, when the first was over in time
    EXPECT_TRUE(late.status == 408 || late.status == 200) << late.status;
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterLimitsTest, AFirstTokenThatTakesTooLongIs504) {
    Fleet fleet(1, {}, {"--ttft-max-s", "1"});
    const Answer late = post(fleet.router->port(), kChat, chat_body("ttft_ms=600000", false));
    EXPECT_EQ(late.status, 504);
    EXPECT_THAT(late.body, HasSubstr("ttft_max_s"));
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterLimitsTest, WhenDescriptorsRunOutMetricsAndAdminStillAnswer) {
    test_support::TempFolder folder;
    Fake replica(0);
    // The undefined-behaviour sanitizer looks whether an object can be read by writing it into a
    // pipe. Without a descriptor for the pipe it takes every object for a wrong one.
    std::ofstream(folder.path("suppressions")) << "vptr:*\n";
    Router router({"--replica", replica.url(), "--admin-socket", folder.path("admin.sock")}, {},
                  {"/bin/sh", "-c",
                   "ulimit -n 40; UBSAN_OPTIONS=$UBSAN_OPTIONS:suppressions=" +
                       folder.path("suppressions") + " exec \"$@\"",
                   "sh"});
    ASSERT_TRUE(router.wait_state(0, "READY"));
    std::vector<std::unique_ptr<RawClient>> holders;
    for (int i = 0; i < 60; ++i)
        holders.push_back(std::make_unique<RawClient>(router.port()));
    // Those inside do not answer a scrape, since they say nothing; those in the backlog are looked
    // at one after the other and wait there for a quarter of a second each, unless they leave.
    holders.front()->ask("GET", "/health");
    EXPECT_EQ(holders.front()->read_answer().status, 200);
    const Answer admin = ask_unix(folder.path("admin.sock"), "GET", "/admin/replicas");
    EXPECT_EQ(admin.status, 200);
    for (std::size_t i = 20; i < holders.size(); ++i)
        holders[i].reset();
    EXPECT_EQ(get(router.port(), "/metrics").status, 200);
}

TEST(RouterCorsTest, PagesOfNamedOriginsMayCallAndNoOthers) {
    Fleet fleet(1, {},
                {"--cors-origins", "https://a.example", "--cors-origin", "http://b.example:8000"});
    const int port = fleet.router->port();
    const auto allowed = [](const Answer& answer) {
        return answer.header("access-control-allow-origin");
    };
    const Answer plain = get(port, "/v1/models", {"Origin: https://a.example"});
    EXPECT_EQ(allowed(plain), "https://a.example");
    EXPECT_EQ(plain.header("vary"), "origin");
    EXPECT_THAT(plain.header("access-control-expose-headers"), HasSubstr("x-request-id"));
    EXPECT_EQ(allowed(get(port, "/v1/models", {"Origin: https://c.example"})), "");
    EXPECT_EQ(allowed(get(port, "/v1/models")), "");
    RawClient page(port);
    page.ask("OPTIONS", kChat,
             {"Origin: http://b.example:8000", "Access-Control-Request-Method: POST",
              "Access-Control-Request-Headers: authorization,content-type"});
    const Answer preflight = page.read_answer();
    EXPECT_EQ(preflight.status, 204);
    EXPECT_EQ(allowed(preflight), "http://b.example:8000");
    EXPECT_EQ(preflight.header("allow"), "OPTIONS, POST");
    EXPECT_EQ(preflight.header("access-control-allow-methods"), "OPTIONS, POST");
    EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization,content-type");
    const std::vector<std::string> origin = {"Origin: https://a.example"};
    EXPECT_EQ(allowed(post(port, kChat, "{", origin)), "https://a.example") << "errors too";
    EXPECT_EQ(allowed(post(port, kChat, chat_body("hi", true), origin)), "https://a.example");
}

TEST(RouterCorsTest, IsOffWithoutOrigins) {
    Fleet fleet(1);
    RawClient page(fleet.router->port());
    page.ask("OPTIONS", "/v1/models",
             {"Origin: https://a.example", "Access-Control-Request-Method: GET"});
    const Answer preflight = page.read_answer();
    EXPECT_EQ(preflight.status, 204);
    EXPECT_EQ(preflight.header("allow"), "GET, HEAD, OPTIONS");
    EXPECT_THAT(preflight.head, Not(HasSubstr("access-control")));
}

TEST(RouterParseTest, ALargeBodyIsReadOnAnotherThreadAndServedAsASmallOne) {
    for (const char* threads : {"2", "0"}) {
        Fleet fleet(1, {}, {"--parse-threads", threads});
        const std::string large(200'000, 'x');
        const Answer answer = post(fleet.router->port(), kChat, chat_body(large, false));
        EXPECT_EQ(answer.status, 200);
        const std::string broken = chat_body(large, false) + "]";
        EXPECT_EQ(post(fleet.router->port(), kChat, broken).status, 400);
        RawClient leaver(fleet.router->port());
        leaver.post(kChat, chat_body(large + " ttft_ms=600000", false));
        leaver.close();
        EXPECT_EQ(fleet.wait_idle(), "");
    }
}

TEST(RouterMetricsTest, OnlyStreamsHaveATimeToTheirFirstToken) {
    Fleet fleet(1);
    const auto counted = [&fleet] {
        const std::string name = "quadriga_router_time_to_first_token_seconds_count ";
        const std::string text = get(fleet.router->port(), "/metrics").body;
        const std::size_t at = text.find(name);
        return at == std::string::npos ? -1 : std::stoi(text.substr(at + name.size()));
    };
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("tokens=3", false)).status, 200);
    EXPECT_EQ(counted(), 0) << "the head of a whole answer comes with its last token";
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("tokens=3", true)).status, 200);
    EXPECT_EQ(counted(), 1);
}

struct Row {
    const char* name;
    const char* type;
    const char* labels;    // of one sample, sorted as written
    const char* bounds{};  // of a histogram: upper bounds of its buckets, as printed
};

// Bounds of the specification; from 5 ms to an hour where a long prefill must show.
constexpr const char* kFirstTokenBounds =
    "0.005 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10 20 40 80 160 320 640 1280 2560 3600 +Inf";
constexpr const char* kRequestBounds =
    "0.1 0.2 0.5 1 2 5 10 20 40 80 160 320 640 1280 2560 3600 7200 +Inf";
constexpr const char* kQueueWaitBounds = "0.001 0.01 0.1 0.5 1 2 5 10 30 60 120 300 600 +Inf";
constexpr const char* kEventGapBounds =
    "0.002 0.005 0.01 0.015 0.02 0.03 0.05 0.075 0.1 0.15 0.2 0.3 0.5 1 2.5 10 60 +Inf";
constexpr const char* kOverheadBounds =
    "2e-05 5e-05 0.0001 0.0002 0.0005 0.001 0.002 0.005 0.01 0.05 0.1 1 +Inf";
constexpr const char* kCancelBounds = "0.001 0.005 0.01 0.05 0.1 0.5 1 +Inf";

/// Values of `le` of the first series of a histogram, in their order.
std::string bounds_of(const std::string& text, const std::string& name) {
    std::string bounds;
    for (std::size_t at = text.find("\n" + name + "_bucket{"); at != std::string::npos;
         at = text.find("\n" + name + "_bucket{", at + 1)) {
        const std::size_t begin = text.find("le=\"", at) + 4;
        const std::string bound = text.substr(begin, text.find('"', begin) - begin);
        bounds += (bounds.empty() ? "" : " ") + bound;
        if (bound == "+Inf") break;
    }
    return bounds;
}

/// Names of all families that a text declares.
std::set<std::string> families_of(const std::string& text) {
    std::set<std::string> names;
    constexpr std::string_view kType = "\n# TYPE ";
    for (std::size_t at = text.find(kType); at != std::string::npos;
         at = text.find(kType, at + 1)) {
        const std::size_t begin = at + kType.size();
        names.insert(text.substr(begin, text.find(' ', begin) - begin));
    }
    return names;
}

TEST(RouterMetricsTest, EveryRowOfTheCatalogueIsThereWithItsTypeAndLabels) {
    Fleet fleet(1);
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("tokens=3", true)).status, 200);
    const std::string text = "\n" + get(fleet.router->port(), "/metrics").body;
    const std::vector<Row> rows = {
        {"requests_total", "counter", "code endpoint outcome"},
        {"requests_inflight", "gauge", "phase"},
        {"queue_requests", "gauge", "class"},
        {"queue_bytes", "gauge", ""},
        {"body_bytes", "gauge", ""},
        {"passes_inflight", "gauge", ""},
        {"unsent_bytes", "gauge", ""},
        {"queue_wait_seconds", "histogram", "class", kQueueWaitBounds},
        {"rejected_total", "counter", "reason"},
        {"time_to_first_token_seconds", "histogram", "", kFirstTokenBounds},
        {"request_seconds", "histogram", "", kRequestBounds},
        {"event_gap_seconds", "histogram", "", kEventGapBounds},
        {"prompt_tokens_total", "counter", "cached replica"},
        {"generation_tokens_total", "counter", "replica"},
        {"upstream_requests_total", "counter", "outcome replica"},
        {"upstream_inflight", "gauge", "replica"},
        {"upstream_connections", "gauge", "replica state"},
        {"decisions_total", "counter", "reason replica"},
        {"ttft_prediction_error_ratio", "histogram", ""},
        {"affinity_entries", "gauge", ""},
        {"affinity_evictions_total", "counter", "reason"},
        {"affinity_tokens_total", "counter", "kind replica"},
        {"affinity_suspended", "gauge", ""},
        {"retries_total", "counter", "reason"},
        {"retry_budget_exhausted_total", "counter", ""},
        {"poison_requests_total", "counter", ""},
        {"log_lines_dropped_total", "counter", ""},
        {"breaker_state", "gauge", "replica"},
        {"breaker_transitions_total", "counter", "replica to"},
        {"replica_up", "gauge", "replica"},
        {"replica_state", "gauge", "replica state"},
        {"status_age_seconds", "gauge", "replica"},
        {"status_fallback_total", "counter", "replica"},
        {"client_aborts_total", "counter", "phase"},
        {"answer_ends_unread_total", "counter", ""},
        {"cancel_seconds", "histogram", "", kCancelBounds},
        {"stream_errors_total", "counter", "reason"},
        {"slow_client_aborts_total", "counter", ""},
        {"overhead_seconds", "histogram", "stage", kOverheadBounds},
        {"loop_lag_seconds", "histogram", "", kOverheadBounds},
        {"connections", "gauge", ""},
        {"admin_refused_total", "counter", "reason"},
        {"connections_rejected_total", "counter", "reason"},
        {"gate_rejected_total", "counter", "reason"},
        {"fairness_jain_ratio", "gauge", ""},
        {"reloads_total", "counter", "result subject"},
        {"build_info", "gauge", "commit version"},
        {"config_info", "gauge", "digest"},
    };
    std::set<std::string> unknown = families_of(text);
    EXPECT_EQ(unknown.count("process_resident_memory_bytes"), 1U);
    std::erase_if(unknown, [](const std::string& name) { return name.starts_with("process_"); });
    for (const Row& row : rows) {
        const std::string name = std::string("quadriga_router_") + row.name;
        unknown.erase(name);
        if (row.bounds != nullptr) {
            EXPECT_EQ(bounds_of(text, name), row.bounds) << name;
        }
        EXPECT_THAT(text, HasSubstr("\n# HELP " + name + " "));
        EXPECT_THAT(text, HasSubstr("\n# TYPE " + name + " " + row.type + "\n"));
        const bool is_histogram = std::string(row.type) == "histogram";
        const std::string sample = "\n" + name + (is_histogram ? "_count" : "");
        const std::size_t at = text.find(sample + (*row.labels == '\0' ? " " : "{"));
        ASSERT_NE(at, std::string::npos) << name << " has no sample, or other labels";
        const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
        std::vector<std::string> labels;
        for (std::size_t from = line.find('{'); from != std::string::npos && line[from] != '}';) {
            const std::size_t equal = line.find('=', from);
            labels.push_back(line.substr(from + 1, equal - from - 1));
            from = line.find('"', equal + 2) + 1;
        }
        std::sort(labels.begin(), labels.end());
        std::string joined;
        for (const std::string& label : labels)
            joined += (joined.empty() ? "" : " ") + label;
        EXPECT_EQ(joined, row.labels) << name;
    }
    EXPECT_THAT(unknown, testing::IsEmpty()) << "a series that the catalogue does not know";
    for (const char* stage : {"admit", "choose", "dispatch", "relay"}) {
        const auto count = fleet.router->metric(
            std::string("quadriga_router_overhead_seconds_count{stage=\"") + stage + "\"}");
        EXPECT_GT(count.value_or(0), 0) << stage;
    }
    const std::string unused = get(fleet.router->port(), "/no\x80such").body;
    EXPECT_THAT(get(fleet.router->port(), "/metrics").body,
                HasSubstr("gate_rejected_total{reason=\"target\"} 1"));
}

}  // namespace
}  // namespace fleet
