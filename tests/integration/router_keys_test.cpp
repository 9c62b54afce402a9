// API keys of a running router: who comes in, what a wrong key gets to see, what keys change in the
// queue, and reloads.
#include <csignal>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/temp_folder.h"

namespace fleet {
namespace {

using test_support::TempFolder;
using testing::HasSubstr;
using testing::Not;
constexpr const char* kChat = "/v1/chat/completions";

std::string key_table(const std::string& name, const std::string& more = "") {
    return "[[key]]\nname = \"" + name + "\"\nsha256 = \"" + digest_of(name + "-key") + "\"\n" +
           more + "\n";
}

std::string bearer(const std::string& name) {
    return "Authorization: Bearer " + name + "-key";
}

/// One replica behind a router with these keys.
struct KeyedFleet {
    explicit KeyedFleet(const std::string& keys, const std::vector<std::string>& fake_flags = {},
                        std::vector<std::string> router_flags = {})
        : fleet(1, fake_flags, with_keys(folder.write("keys.toml", keys), router_flags)) {}

    static std::vector<std::string> with_keys(const std::string& path,
                                              std::vector<std::string>& flags) {
        flags.insert(flags.end(), {"--keys-file", path});
        return flags;
    }
    [[nodiscard]] int port() const { return fleet.router->port(); }

    TempFolder folder;
    Fleet fleet;
};

/// Without the fields that differ from answer to answer.
std::string comparable(Answer answer) {
    const std::string id = answer.header("x-request-id");
    std::string text = answer.head + answer.body;
    for (const std::string& part : {id, answer.header("date")}) {
        if (const std::size_t at = text.find(part); at != std::string::npos) {
            text.erase(at, part.size());
        }
    }
    return text;
}

TEST(RouterKeysTest, EveryPathButTheProbesNeedsAKey) {
    KeyedFleet keyed(key_table("alice"));
    const int port = keyed.port();
    EXPECT_EQ(get(port, "/health").status, 200);
    EXPECT_EQ(get(port, "/ready").status, 200);
    for (const char* path : {"/v1/models", "/v1/models/fake", "/info", "/props", "/openapi.json",
                             "/dashboard/state", "/no/such/path"}) {
        EXPECT_EQ(get(port, path).status, 401) << path;
        EXPECT_NE(get(port, path, {bearer("alice")}).status, 401) << path;
    }
    EXPECT_EQ(post(port, kChat, chat_body("hi", false)).status, 401);
    EXPECT_EQ(post(port, kChat, chat_body("hi", false), {bearer("alice")}).status, 200);
    EXPECT_EQ(post(port, kChat, chat_body("hi", false), {"x-api-key: alice-key"}).status, 200);
    EXPECT_EQ(post(port, "/tokenize", R"({"content":"x"})").status, 401);
    EXPECT_EQ(get(port, "/metrics").status, 200) << "open for this machine";
    EXPECT_EQ(keyed.fleet.fakes[0]->arrivals(), 2U);
}

TEST(RouterKeysTest, WhateverIsWrongWithAKeyTheAnswerIsTheSame) {
    KeyedFleet keyed(key_table("alice"));
    const std::string body = chat_body("hi", false);
    const Answer missing = post(keyed.port(), kChat, body);
    EXPECT_EQ(missing.status, 401);
    EXPECT_THAT(missing.body, HasSubstr("\"invalid_api_key\""));
    for (const std::string field :
         {"Authorization: Bearer alice-ke", "Authorization: Bearer ALICE-KEY",
          "Authorization: Bearer ", "Authorization: Basic YWxpY2U6eA==", "x-api-key: other",
          "Authorization: Bearer eff0d30dfcad8d2e41e5d0cda6cfd57c4b3df0cd2c8b43b4b1ef0d7a9a2b0a3c",
          "x-api-key:"}) {
        EXPECT_EQ(comparable(post(keyed.port(), kChat, body, {field})), comparable(missing))
            << field;
    }
    EXPECT_EQ(comparable(post(keyed.port(), "/no/such/path", body)), comparable(missing));
}

TEST(RouterKeysTest, A401ComesBeforeTheBodyIsSent) {
    KeyedFleet keyed(key_table("alice"));
    RawClient client(keyed.port());
    client.post(kChat, chat_body("hi", false));
    EXPECT_EQ(client.read_answer().status, 401);
    RawClient patient(keyed.port());
    patient.send("POST " + std::string(kChat) +
                 " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n"
                 "Expect: 100-continue\r\n\r\n");
    const Answer answer = patient.read_to_end();
    EXPECT_EQ(answer.status, 401) << "and no 100 before it";
    EXPECT_TRUE(answer.is_closed);
}

TEST(RouterKeysTest, NeitherLogsNorMetricsShowAKey) {
    KeyedFleet keyed(key_table("alice"), {}, {"--log-level", "debug"});
    EXPECT_EQ(post(keyed.port(), kChat, chat_body("secret words", false), {bearer("alice")}).status,
              200);
    EXPECT_EQ(get(keyed.port(), "/v1/models", {"x-api-key: a-wrong-key"}).status, 401);
    Child& router = keyed.fleet.router->process();
    EXPECT_TRUE(router.wait_line({"event=request", "path=/v1/chat", "key=alice"}));
    EXPECT_TRUE(router.wait_line({"event=request", "status=401"}));
    const std::string log = router.text() + get(keyed.port(), "/metrics").body;
    for (const char* secret : {"alice-key", "a-wrong-key", "secret words"})
        EXPECT_THAT(log, Not(HasSubstr(secret))) << secret;
}

TEST(RouterKeysTest, AHangupReadsTheKeysAgainAndABadFileKeepsTheOldOnes) {
    KeyedFleet keyed(key_table("alice"));
    Child& router = keyed.fleet.router->process();
    const std::string ok = "quadriga_router_reloads_total{result=\"ok\",subject=\"keys\"}";
    const std::string failed = "quadriga_router_reloads_total{result=\"failed\",subject=\"keys\"}";

    keyed.folder.write("keys.toml", key_table("bob") + "weight = \"much\"\n");
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reload_failed", "subject=keys", "keys.toml", "weight"}));
    EXPECT_EQ(keyed.fleet.router->metric(failed), 1);
    EXPECT_EQ(keyed.fleet.router->metric(ok), 0);
    EXPECT_EQ(get(keyed.port(), "/v1/models", {bearer("alice")}).status, 200);
    EXPECT_EQ(get(keyed.port(), "/v1/models", {bearer("bob")}).status, 401);

    RawClient running(keyed.port());
    running.post(kChat, chat_body("tokens=200 token_ms=5", true), {bearer("alice")});
    ASSERT_TRUE(running.read_body_bytes(300));
    keyed.folder.write("keys.toml", key_table("bob"));
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reloaded", "subject=keys", "keys=1"}));
    EXPECT_EQ(keyed.fleet.router->metric(ok), 1);
    EXPECT_EQ(get(keyed.port(), "/v1/models", {bearer("alice")}).status, 401);
    EXPECT_EQ(get(keyed.port(), "/v1/models", {bearer("bob")}).status, 200);
    EXPECT_THAT(running.read_answer().body, HasSubstr("[DONE]")) << "what runs goes on";
    EXPECT_EQ(keyed.fleet.wait_idle(), "");
}

TEST(RouterKeysTest, EverySpellingOfThePagesAddressLeadsThereWithoutAKey) {
    KeyedFleet keyed(key_table("alice"));
    EXPECT_EQ(get(keyed.port(), "/dashboard").status, 200);
    for (const auto& [path, location] :
         {std::pair{"/", "dashboard"}, std::pair{"/dashboard/", "../dashboard"},
          std::pair{"/dashboard/index.html", "../dashboard"}}) {
        const Answer answer = get(keyed.port(), path);
        EXPECT_EQ(answer.status, 307) << path;
        EXPECT_EQ(answer.header("location"), location) << path;
        EXPECT_EQ(post(keyed.port(), path, "{}", {bearer("alice")}).status, 405) << path;
    }
    EXPECT_EQ(get(keyed.port(), "/dashboard/state").status, 401);
    EXPECT_EQ(get(keyed.port(), "/index.html").status, 401);
    EXPECT_EQ(get(keyed.port(), "/index.html", {bearer("alice")}).status, 404);
}

TEST(RouterKeysTest, AKeyFileThatIsAPipeOrNestsTooDeeplyIsRefusedWhileAllGoesOn) {
    KeyedFleet keyed(key_table("alice"));
    Child& router = keyed.fleet.router->process();
    const std::string keys = keyed.folder.path("keys.toml");
    ASSERT_EQ(::unlink(keys.c_str()), 0);
    ASSERT_EQ(::mkfifo(keys.c_str(), 0600), 0);  // and nobody ever writes
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reload_failed", "it is not a regular file"}));
    EXPECT_EQ(get(keyed.port(), "/dashboard/state", {bearer("alice")}).status, 200);
    std::string dots = "[a";
    for (int i = 0; i < 50'000; ++i)
        dots += ".a";
    keyed.folder.write("keys.toml", dots + "]\n");
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reload_failed", "more than 32 dots"}));
    EXPECT_EQ(get(keyed.port(), "/v1/models", {bearer("alice")}).status, 200);
}

TEST(RouterKeysTest, WithoutKeysAHangupEndsNothing) {
    Fleet fleet(1);
    fleet.router->process().signal(SIGHUP);
    EXPECT_EQ(get(fleet.router->port(), "/health").status, 200);
}

TEST(RouterKeysTest, AKeyRunsAtMostItsRequestsAndTheRestWaits) {
    KeyedFleet keyed(key_table("alice", "requests_max = 1") + key_table("bob"));
    RawClient first(keyed.port());
    first.post(kChat, chat_body("tokens=100000 token_ms=5", true), {bearer("alice")});
    ASSERT_TRUE(first.read_body_bytes(300));
    RawClient second(keyed.port());
    second.post(kChat, chat_body("second", false), {bearer("alice")});
    while (keyed.fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") != 1) {
    }
    EXPECT_EQ(post(keyed.port(), kChat, chat_body("hi", false), {bearer("bob")}).status, 200)
        << "the other key passes";
    EXPECT_EQ(keyed.fleet.fakes[0]->arrivals(), 2U);
    first.close();
    EXPECT_EQ(second.read_answer().status, 200);
    EXPECT_EQ(keyed.fleet.wait_idle(), "");
}

TEST(RouterKeysTest, AKeyHasHalfOfTheQueueWhileOthersWait) {
    KeyedFleet keyed(key_table("alice") + key_table("bob"), {"--slots", "1"},
                     {"--queue-count-max", "4", "--dispatch-ahead", "0"});
    const std::string queued = "quadriga_router_queue_requests{class=\"default\"}";
    const auto wait_queued = [&](int count) {
        while (keyed.fleet.router->metric(queued) != count) {
        }
    };
    RawClient running(keyed.port());
    running.post(kChat, chat_body("tokens=100000 token_ms=5", true), {bearer("alice")});
    ASSERT_TRUE(running.read_body_bytes(300));
    std::vector<std::unique_ptr<RawClient>> waiting;
    const auto wait_as = [&](const std::string& name) {
        waiting.push_back(std::make_unique<RawClient>(keyed.port()));
        waiting.back()->post(kChat, chat_body("hi", false), {bearer(name)});
        wait_queued(static_cast<int>(waiting.size()));
    };
    wait_as("bob");
    wait_as("alice");
    wait_as("alice");
    const Answer refused = post(keyed.port(), kChat, chat_body("hi", false), {bearer("alice")});
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.body, HasSubstr("half of the queue, 2 places"));
    EXPECT_THAT(refused.body, HasSubstr("\"queue_full\""));
    EXPECT_THAT(refused.body,
                HasSubstr("Try again in " + refused.header("retry-after") + " second"));
    wait_as("bob");
    const Answer full = post(keyed.port(), kChat, chat_body("hi", false), {bearer("bob")});
    EXPECT_EQ(full.status, 429);
    EXPECT_THAT(full.body, HasSubstr("4 of 4 places are taken. Try again in "));
    running.close();
    for (const auto& client : waiting)
        EXPECT_EQ(client->read_answer().status, 200);
    EXPECT_EQ(keyed.fleet.wait_idle(), "");
}

TEST(RouterKeysTest, WhatABrowserAsksWithoutAKeyMayHaveABodyAndHoldsNothing) {
    KeyedFleet keyed(key_table("alice"));
    for (const char* path : {kChat, "/tokenize", "/props", "/health"}) {
        RawClient page(keyed.port());
        page.send(
            std::string("OPTIONS ") + path +
            " HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        EXPECT_EQ(keyed.fleet.router->metric("quadriga_router_body_bytes"), 0) << path;
        page.send("0\r\n\r\n");
        EXPECT_EQ(page.read_answer().status, 204) << path;
    }
}

TEST(RouterKeysTest, AKeyHasHalfOfTheBodyMemoryWhileOthersHoldSome) {
    KeyedFleet keyed(key_table("alice") + key_table("bob"), {"--slots", "1"},
                     {"--bodies-bytes-max", "10000", "--dispatch-ahead", "0"});
    RawClient running(keyed.port());
    running.post(kChat, chat_body("tokens=100000 token_ms=5", true), {bearer("bob")});
    ASSERT_TRUE(running.read_body_bytes(300));  // its body is freed
    RawClient bob(keyed.port());
    bob.post(kChat, chat_body("hi", false), {bearer("bob")});
    RawClient alice(keyed.port());
    alice.post(kChat, chat_body(std::string(4000, 'a'), false), {bearer("alice")});
    while (keyed.fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") != 2) {
    }
    const Answer refused =
        post(keyed.port(), kChat, chat_body(std::string(2000, 'a'), false), {bearer("alice")});
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.body, HasSubstr("half of the memory for requests"));
    RawClient more(keyed.port());
    more.post(kChat, chat_body(std::string(2000, 'b'), false), {bearer("bob")});
    while (keyed.fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") != 3) {
    }
    running.close();
    EXPECT_EQ(alice.read_answer().status, 200);
    EXPECT_EQ(bob.read_answer().status, 200);
    EXPECT_EQ(more.read_answer().status, 200);
    EXPECT_EQ(keyed.fleet.wait_idle(), "");
}

TEST(RouterKeysTest, AKeyWithMoreWeightIsServedMore) {
    KeyedFleet keyed(key_table("alice", "weight = 3") + key_table("bob"), {"--slots", "1"},
                     {"--dispatch-ahead", "0"});
    RawClient running(keyed.port());
    running.post(kChat, chat_body("tokens=100000 token_ms=5", true), {bearer("bob")});
    ASSERT_TRUE(running.read_body_bytes(300));
    constexpr int kEach = 8;
    std::vector<std::unique_ptr<RawClient>> waiting;
    for (int i = 0; i < 2 * kEach; ++i) {  // all of bob's are there before alice's first
        const std::string name = i < kEach ? "bob" : "alice";
        waiting.push_back(std::make_unique<RawClient>(keyed.port()));
        waiting.back()->post(kChat, chat_body("hi", false),
                             {bearer(name), "x-request-id: " + name + std::to_string(i)});
        while (keyed.fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") !=
               i + 1) {
        }
    }
    running.close();
    for (const auto& client : waiting)
        EXPECT_EQ(client->read_answer().status, 200);
    // Of the first eight arrivals after the one that ran, alice's are three quarters or more.
    ASSERT_TRUE(keyed.fleet.fakes[0]->process().wait_count("arrival ", 1 + 2 * kEach));
    const std::string log = keyed.fleet.fakes[0]->process().text();
    int alice = 0;
    int seen = 0;
    for (std::size_t at = log.find("request_id="); at != std::string::npos && seen < kEach;
         at = log.find("request_id=", at + 1)) {
        if (log.compare(at + 11, 4, "req-") == 0) continue;
        ++seen;
        if (log.compare(at + 11, 5, "alice") == 0) ++alice;
    }
    EXPECT_EQ(seen, kEach);
    EXPECT_GE(alice, 6);
}

TEST(RouterKeysTest, ItDoesNotServeTheNetworkWithoutKeysUnlessToldTo) {
    const std::string program = std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router";
    const auto start = [&program](std::vector<std::string> flags) {
        flags.insert(flags.begin(), {program, "--port", "0"});
        return std::make_unique<Child>(std::move(flags), Child::Listen::kStderr);
    };
    const auto open = start({"--host", "0.0.0.0"});
    EXPECT_EQ(open->wait_exit(), 2);
    EXPECT_THAT(open->text(), HasSubstr("0.0.0.0:"));
    EXPECT_THAT(open->text(), HasSubstr("--keys-file"));
    EXPECT_THAT(open->text(), HasSubstr("--insecure-no-auth"));
    EXPECT_TRUE(start({"--host", "0.0.0.0", "--insecure-no-auth"})->wait_line({"listening on"}));
    const TempFolder folder;
    const std::string keys = folder.write("keys.toml", key_table("alice"));
    EXPECT_TRUE(start({"--host", "0.0.0.0", "--keys-file", keys})->wait_line({"listening on"}));
}

TEST(RouterKeysTest, ABadKeyFileStopsTheStartWithOneSentence) {
    const TempFolder folder;
    const auto start = [](const std::string& path) {
        return std::make_unique<Child>(
            std::vector<std::string>{std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router",
                                     "--port", "0", "--keys-file", path},
            Child::Listen::kStderr);
    };
    const auto missing = start(folder.path("none"));
    EXPECT_EQ(missing->wait_exit(), 2);
    EXPECT_THAT(missing->text(), HasSubstr(folder.path("none") + "' cannot be read"));
    const auto bad = start(folder.write("keys.toml", "[[key]]\nname = \"a\"\n"));
    EXPECT_EQ(bad->wait_exit(), 2);
    EXPECT_THAT(bad->text(), HasSubstr("keys.toml' is wrong: line 1: this key has no 'sha256'"));
}

TEST(RouterKeysTest, ARestartWithABadFileGoesOnWithTheKeysThatWereGood) {
    TempFolder folder;
    const std::string keys = folder.write("keys.toml", key_table("alice"));
    Fake replica(0);
    const std::vector<std::string> flags = {"--replica", replica.url(),     "--keys-file",
                                            keys,        "--last-good-dir", folder.path("")};
    const auto status_for = [](const Router& router, const std::vector<std::string>& fields) {
        return get(router.port(), "/v1/models", fields).status;
    };
    {
        Router first(flags);
        EXPECT_EQ(status_for(first, {bearer("alice")}), 200);
        folder.write("keys.toml", key_table("bob"));
        first.process().signal(SIGHUP);
        ASSERT_TRUE(first.process().wait_line({"event=reloaded", "subject=keys"}));
    }  // killed
    folder.write("keys.toml", "a slip of the editor");
    Router second(flags);
    EXPECT_TRUE(second.process().wait_line({"event=keys_bad", "kept=last_good"}));
    EXPECT_EQ(status_for(second, {bearer("bob")}), 200);
    EXPECT_EQ(status_for(second, {bearer("alice")}), 401);
    EXPECT_EQ(status_for(second, {}), 401);
    folder.write("keys.toml", key_table("carol"));
    second.process().signal(SIGHUP);
    ASSERT_TRUE(second.process().wait_line({"event=reloaded", "subject=keys"}));
    EXPECT_EQ(status_for(second, {bearer("carol")}), 200);
}

TEST(RouterKeysTest, WithoutACopyABadFilePreventsTheStart) {
    TempFolder folder;
    const std::string keys = folder.write("keys.toml", "nonsense");
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--last-good-dir", folder.path("")}}) {
        std::vector<std::string> flags = {std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router",
                                          "--port", "0", "--keys-file", keys};
        flags.insert(flags.end(), more.begin(), more.end());
        Child router(flags, Child::Listen::kStderr);
        EXPECT_EQ(router.wait_exit(), 2);
        EXPECT_THAT(router.text(), HasSubstr(keys));
    }
}

TEST(RouterConfigTest, ACheckPrintsEveryValueOrSaysWhatAStartWouldRefuse) {
    TempFolder folder;
    const std::string keys = folder.write("keys.toml", key_table("alice"));
    const auto check = [](std::vector<std::string> flags, Child::Listen listen) {
        flags.insert(flags.begin(),
                     {std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router", "--check-config"});
        Child router(flags, listen);
        const int code = router.wait_exit().value_or(-1);
        return std::to_string(code) + "\n" + router.text();
    };
    const std::string good = check({"--keys-file", keys, "--ping-s=7.5", "--no-metrics-open",
                                    "--cors-origins=https://a.example"},
                                   Child::Listen::kStdout);
    EXPECT_THAT(good, testing::StartsWith("0\n"));
    for (const char* line : {"ping_s = 7.5\n", "metrics_open = false\n", "decision_header = true\n",
                             "connect_s = 1\n", "queue_count_max = max(64, 4 x slots)\n",
                             "cors_origins = https://a.example\n", "tls_cert = none\n"}) {
        EXPECT_THAT(good, HasSubstr(line));
    }
    EXPECT_THAT(good, testing::Not(HasSubstr("listening")));
    const auto refusal = [&](const std::vector<std::string>& flags) {
        const std::string text = check(flags, Child::Listen::kStderr);
        EXPECT_THAT(text, testing::StartsWith("2\n"));
        return text;
    };
    const std::string bad_keys = folder.write("bad.toml", "nonsense");
    EXPECT_THAT(refusal({"--keys-file", bad_keys}), HasSubstr(bad_keys));
    EXPECT_THAT(refusal({"--ping-s=-1"}), HasSubstr("ping-s"));
    EXPECT_THAT(refusal({"--pings-s=1"}), HasSubstr("pings-s"));
    // Neither no number at all, nor none where it would end at once what it guards.
    for (const char* name : {"ping-s", "queue-wait-s", "header-read-s", "silence-down-s", "probe-s",
                             "step-stall-s", "cost-kv-s", "cost-decode-weight", "big-prefill-s"})
        EXPECT_THAT(refusal({std::string("--") + name + "=nan"}), HasSubstr(name));
    for (const char* name :
         {"ping-s", "header-read-s", "silence-down-s", "probe-s", "step-stall-s"})
        EXPECT_THAT(refusal({std::string("--") + name + "=0"}), HasSubstr(name));
    for (const char* name : {"ttft-max-s", "total-max-s", "queue-wait-s", "drain-grace-s"})
        EXPECT_THAT(check({std::string("--") + name + "=0"}, Child::Listen::kStdout),
                    testing::StartsWith("0\n"));
    EXPECT_THAT(refusal({"--tls-cert", keys, "--tls-key", keys}), HasSubstr(keys));
}

}  // namespace
}  // namespace fleet
