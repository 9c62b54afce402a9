// The admin interface of a running router: who may open its socket, what it shows, what a drain
// does to traffic.
#include <csignal>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/temp_folder.h"

namespace fleet {
namespace {

using nlohmann::json;
using test_support::TempFolder;
using testing::HasSubstr;
constexpr const char* kChat = "/v1/chat/completions";
const std::string kRouter = std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router";

struct AdminAnswer {
    int status = 0;
    json body;
};

/// One request over the socket; status 0 when nobody listens.
AdminAnswer ask(const std::string& path, const std::string& method, const std::string& target,
                const std::string& body = "") {
    const Answer answer = ask_unix(path, method, target, body);
    return {answer.status, json::parse(answer.body, nullptr, false)};
}

struct AdminFleet {
    explicit AdminFleet(int count, const std::vector<std::string>& fake_flags = {},
                        std::vector<std::string> router_flags = {})
        : socket(folder.path("admin.sock")), fleet(count, fake_flags, with_socket(router_flags)) {}

    std::vector<std::string> with_socket(std::vector<std::string>& flags) const {
        flags.insert(flags.end(), {"--admin-socket", socket});
        return flags;
    }
    AdminAnswer get(const std::string& target) const { return ask(socket, "GET", target); }
    AdminAnswer post(const std::string& target, const std::string& body = "") const {
        return ask(socket, "POST", target, body);
    }
    [[nodiscard]] int port() const { return fleet.router->port(); }

    TempFolder folder;
    std::string socket;
    Fleet fleet;
};

TEST(RouterAdminTest, TheSocketIsForOwnerAndGroupAndGoneAfterwards) {
    TempFolder folder;
    const std::string path = folder.path("admin.sock");
    const ReservedPort nobody;
    const std::vector<std::string> flags{
        "--replica", "http://127.0.0.1:" + std::to_string(nobody.port()), "--admin-socket", path};
    {
        Router killed(flags);
        struct stat found {};
        ASSERT_EQ(::stat(path.c_str(), &found), 0);
        EXPECT_TRUE(S_ISSOCK(found.st_mode));
        EXPECT_EQ(found.st_mode & 0777U, 0660U);
        Child second({kRouter, "--port", "0", "--admin-socket", path}, Child::Listen::kStderr);
        EXPECT_NE(second.wait_exit(), 0) << "it is in use";
        EXPECT_EQ(ask(path, "GET", "/admin/replicas").status, 200);
    }
    EXPECT_EQ(ask(path, "GET", "/admin/replicas").status, 0);
    Router next(flags);  // what the killed one left is no obstacle
    EXPECT_EQ(ask(path, "GET", "/admin/replicas").status, 200);
    next.process().signal(SIGTERM);
    next.process().signal(SIGTERM);
    EXPECT_EQ(next.process().wait_exit(), 0);
    EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(RouterAdminTest, AFileThatIsNoSocketIsLeftAlone) {
    TempFolder folder;
    const std::string path = folder.write("precious", "words");
    Child router({kRouter, "--port", "0", "--admin-socket", path}, Child::Listen::kStderr);
    EXPECT_NE(router.wait_exit(), 0);
    EXPECT_THAT(router.text(), HasSubstr("cannot listen on " + path));
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

TEST(RouterAdminTest, ClientsOfThePublicPortSeeNothingOfIt) {
    AdminFleet fleet(1);
    EXPECT_EQ(get(fleet.port(), "/admin/replicas").status, 404);
    EXPECT_EQ(post(fleet.port(), "/admin/replicas/0/drain", "{}").status, 404);
    EXPECT_EQ(fleet.get("/v1/models").status, 404);
}

TEST(RouterAdminTest, ADrainedReplicaGetsNothingUntilItIsUndrained) {
    AdminFleet fleet(2);
    const json before = fleet.get("/admin/replicas").body;
    ASSERT_EQ(before["replicas"].size(), 2U);
    EXPECT_EQ(before["replicas"][0]["state"], "READY");
    EXPECT_EQ(before["replicas"][0]["url"], fleet.fleet.fakes[0]->url());
    EXPECT_EQ(before["replicas"][0]["instance"], fleet.fleet.fakes[0]->instance());
    for (int i = 0; i < 2; ++i) {  // asking twice changes nothing
        const AdminAnswer drained = fleet.post("/admin/replicas/0/drain");
        EXPECT_EQ(drained.status, 200);
        EXPECT_EQ(drained.body["state"], "DRAINING");
        EXPECT_EQ(drained.body["drain_asked"], true);
    }
    for (int i = 0; i < 4; ++i)
        EXPECT_EQ(post(fleet.port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(fleet.fleet.fakes[0]->arrivals(), 0U);
    EXPECT_EQ(fleet.fleet.fakes[1]->arrivals(), 4U);
    EXPECT_EQ(fleet.post("/admin/replicas/1/drain").status, 200);
    const Answer refused = post(fleet.port(), kChat, chat_body("hi", false));
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("an operator has drained all of them"));
    const AdminAnswer back = fleet.post("/admin/replicas/0/undrain");
    EXPECT_EQ(back.body["state"], "READY");
    EXPECT_EQ(back.body["drain_asked"], false);
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(fleet.fleet.fakes[0]->arrivals(), 1U);
    Child& router = fleet.fleet.router->process();
    ASSERT_TRUE(router.wait_line({"event=admin", "action=undrain"}));
    EXPECT_EQ(router.count("event=admin"), 3U) << "changes only";
}

TEST(RouterAdminTest, ADrainEndsWhatStillRunsAtItsDeadline) {
    AdminFleet fleet(1, {"--ttft-ms", "600000"}, {"--drain-deadline-s", "0"});
    RawClient client(fleet.port());
    client.post(kChat, chat_body("hi", false));
    ASSERT_TRUE(fleet.fleet.fakes[0]->process().wait_line({"arrival"}));
    EXPECT_EQ(fleet.post("/admin/replicas/0/drain").status, 200);
    EXPECT_EQ(client.read_answer().status, 503);
    EXPECT_EQ(fleet.fleet.wait_idle(), "");
}

TEST(RouterAdminTest, AReplicaIsAddedOnceAndServes) {
    AdminFleet fleet(1);
    Fake more(7);
    const std::string body = json{{"url", more.url()}}.dump();
    for (int i = 0; i < 2; ++i) {
        const AdminAnswer added = fleet.post("/admin/replicas", body);
        EXPECT_EQ(added.status, 200);
        EXPECT_EQ(added.body["replica"], 1);
        EXPECT_EQ(added.body["was_known"], i == 1);
    }
    ASSERT_TRUE(fleet.fleet.router->wait_state(1, "READY"));
    EXPECT_EQ(fleet.post("/admin/replicas/0/drain").status, 200);
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(more.arrivals(), 1U);
}

TEST(RouterAdminTest, AnAddressThatCannotBeAReplicasIsRefusedWithTheReason) {
    AdminFleet fleet(1);
    const std::string own = std::to_string(fleet.port());
    const std::pair<std::string, std::string> cases[] = {
        {"http://a b:1", "no valid host"},
        {std::string("http://a\0b:1", 12), "no valid host"},
        {"http://u@host:1", "names a user"},
        {"http://host:0", "port 0"},
        {"http://host:65536", "no valid host or port"},
        {"http://host:1/v1", "behind the port"},
        {"http://host:1?x", "behind the port"},
        {"https://host:1", "http://"},
        {"http://" + std::string(300, 'a') + ":1", "300 bytes"},
        {"http://127.0.0.1:" + own, "this router itself"},
        {"http://localhost:" + own + "/", "this router itself"},
    };
    for (const auto& [url, why] : cases) {
        const AdminAnswer refused = fleet.post("/admin/replicas", json{{"url", url}}.dump());
        EXPECT_EQ(refused.status, 400) << url;
        EXPECT_THAT(refused.body.dump(), testing::HasSubstr(why)) << url;
    }
    EXPECT_EQ(fleet.get("/admin/replicas").body["replicas"].size(), 1U);
}

TEST(RouterAdminTest, AnotherAddressOfAReplicaIsNotUsedAndSaysWhy) {
    AdminFleet fleet(1);
    const std::string other = "http://localhost:" + std::to_string(fleet.fleet.fakes[0]->port());
    EXPECT_EQ(fleet.post("/admin/replicas", json{{"url", other}}.dump()).status, 200);
    ASSERT_TRUE(
        fleet.fleet.router->process().wait_line({"event=same_process", "replica=1", "as=0"}));
    const json second = fleet.get("/admin/replicas").body["replicas"][1];
    EXPECT_EQ(second["state"], "DOWN");
    EXPECT_THAT(second["not_used"].dump(), testing::HasSubstr("it is replica 0"));
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("hi", false)).status, 200);
}

TEST(RouterAdminTest, BadOrdersAreRefusedAndChangeNothing) {
    AdminFleet fleet(1);
    for (const char* target :
         {"/admin/replicas/1/drain", "/admin/replicas/-1/drain", "/admin/replicas/0x0/drain",
          "/admin/replicas/99999999999999999999/drain", "/admin/replicas/0/stop",
          "/admin/replicas/0", "/admin/replicas/0/drain/", "/admin/nothing"}) {
        EXPECT_EQ(fleet.post(target).status, 404) << target;
    }
    EXPECT_EQ(fleet.get("/admin/replicas/0/drain").status, 405);
    for (const char* body : {"", "{", "[]", "{}", R"({"url":1})", R"({"url":"ftp://x"})",
                             R"({"url":"http://127.0.0.1:0"})", R"({"url":"http://127.0.0.1:1/x"})",
                             R"({"url":"http://127.0.0.1:1","more":1})",
                             R"({"url":"x","url":"http://127.0.0.1:1"})"}) {
        EXPECT_EQ(fleet.post("/admin/replicas", body).status, 400) << body;
    }
    EXPECT_EQ(fleet.post("/admin/replicas", std::string(20'000, '[')).status, 413);
    for (const char* query : {"limit=0", "limit=-1", "limit=1025", "limit=x", "limit=1e3"})
        EXPECT_EQ(fleet.get(std::string("/admin/decisions?") + query).status, 400) << query;
    const json replicas = fleet.get("/admin/replicas").body["replicas"];
    ASSERT_EQ(replicas.size(), 1U);
    EXPECT_EQ(replicas[0]["state"], "READY");
}

TEST(RouterAdminTest, DecisionsAreFoundByTheirRequest) {
    AdminFleet fleet(1);
    const std::string trace = "0af7651916cd43dd8448eb211c80319c";
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("first secret", false),
                   {"x-request-id: one", "traceparent: 00-" + trace + "-b7ad6b7169203331-01"})
                  .status,
              200);
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("second", false), {"x-request-id: two"}).status,
              200);
    Child& router = fleet.fleet.router->process();
    ASSERT_TRUE(router.wait_line({"event=decision_record", "request_id=two"}));
    const json all = fleet.get("/admin/decisions").body["decisions"];
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0]["request_id"], "two");
    EXPECT_EQ(all[0]["trace_id"].get<std::string>().size(), 32U);
    EXPECT_EQ(fleet.get("/admin/decisions?limit=1").body["decisions"].size(), 1U);
    const json one = fleet.get("/admin/decisions?request_id=one&limit=5").body["decisions"];
    ASSERT_EQ(one.size(), 1U);
    EXPECT_EQ(one[0]["trace_id"], trace);
    EXPECT_EQ(one[0]["decision"]["replica"], 0);
    EXPECT_THAT(one.dump(), testing::Not(HasSubstr("secret")));
    EXPECT_EQ(fleet.get("/admin/decisions?request_id=three").body["decisions"].size(), 0U);
}

TEST(RouterAdminTest, TheQueueIsShownInItsOrder) {
    AdminFleet fleet(1, {"--slots", "1", "--ttft-ms", "600000"}, {"--dispatch-ahead", "0"});
    RawClient running(fleet.port());
    running.post(kChat, chat_body("a", false));
    ASSERT_TRUE(fleet.fleet.fakes[0]->process().wait_line({"arrival"}));
    RawClient bulk(fleet.port());
    bulk.post(kChat, chat_body("b", false), {"x-quadriga-priority: bulk"});
    RawClient interactive(fleet.port());
    interactive.post(kChat, chat_body("c", false), {"x-quadriga-priority: interactive"});
    json queue = json::object();
    for (int i = 0; i < 20'000 && queue.value("requests", 0) != 2; ++i)
        queue = fleet.get("/admin/queue").body;
    ASSERT_EQ(queue["requests"], 2);
    EXPECT_EQ(queue["classes"]["bulk"], 1);
    ASSERT_EQ(queue["waiting"].size(), 2U);
    EXPECT_EQ(queue["waiting"][0]["class"], "interactive");
    EXPECT_EQ(queue["waiting"][1]["class"], "bulk");
    EXPECT_EQ(queue["draining"], false);
}

TEST(RouterAdminTest, KeysAreNamesAndNumbersOnly) {
    TempFolder folder;
    const std::string digest(64, 'a');
    const std::string keys =
        folder.write("keys.toml", "[[key]]\nname = \"alice\"\nsha256 = \"" + digest +
                                      "\"\nweight = 2\nrequests_max = 3\n");
    AdminFleet fleet(1, {}, {"--keys-file", keys});
    const AdminAnswer answer = fleet.get("/admin/keys");
    EXPECT_EQ(answer.status, 200) << "the socket's mode is what keeps others out";
    const json expected{{"name", "alice"},   {"priority_min", -100}, {"weight", 2.0},
                        {"requests_max", 3}, {"running", 0},         {"attained_tokens", 0.0}};
    EXPECT_EQ(answer.body["keys"], json::array({expected}));
}

TEST(RouterAdminTest, ARemovedReplicaIsDrainedThenForgottenAndItsNumberNotUsedAgain) {
    AdminFleet fleet(2, {"--ttft-ms", "600000"});
    const auto remove = [&](const std::string& target) {
        return ask(fleet.socket, "DELETE", "/admin/replicas/" + target);
    };
    EXPECT_EQ(fleet.post("/admin/replicas/0/drain").status, 200);
    RawClient client(fleet.port());
    client.post(kChat, chat_body("hi", true));
    ASSERT_TRUE(fleet.fleet.fakes[1]->process().wait_line({"arrival"}));
    for (int i = 0; i < 2; ++i) {  // it works, so it stays until it has ended
        const AdminAnswer leaving = remove("1");
        EXPECT_EQ(leaving.status, 202);
        EXPECT_EQ(leaving.body["leaving"], true);
        EXPECT_EQ(leaving.body["state"], "DRAINING");
    }
    for (int i = 0; i < 2; ++i) {  // nothing runs there, so it goes at once
        const AdminAnswer gone = remove("0");
        EXPECT_EQ(gone.status, 200);
        EXPECT_EQ(gone.body["removed"], true);
    }
    client.close();
    Child& router = fleet.fleet.router->process();
    ASSERT_TRUE(router.wait_line({"event=admin", "action=removed", "replica=1"}));
    EXPECT_TRUE(fleet.get("/admin/replicas").body["replicas"].empty());
    EXPECT_EQ(get(fleet.port(), "/metrics").body.find("replica=\"1\""), std::string::npos);
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("hi", false)).status, 503);
    Fake more(7);
    const AdminAnswer added = fleet.post("/admin/replicas", json{{"url", more.url()}}.dump());
    EXPECT_EQ(added.body["replica"], 2);
    ASSERT_TRUE(fleet.fleet.router->wait_state(2, "READY"));
    EXPECT_EQ(post(fleet.port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(remove("9").status, 404);
    EXPECT_EQ(remove("x").status, 404);
    EXPECT_EQ(fleet.fleet.wait_idle(), "");
}

TEST(RouterAdminTest, RemovalAtOnceMovesWhatHasNoByteYetAndEndsStreamsByTheErrorEvent) {
    AdminFleet fleet(2);
    EXPECT_EQ(fleet.post("/admin/replicas/1/drain").status, 200);
    RawClient streaming(fleet.port());
    streaming.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(streaming.read_body_bytes(500));
    RawClient waiting(fleet.port());
    waiting.post(kChat, chat_body("ttft_ms=600000", true), {"x-request-id: waiting"});
    ASSERT_TRUE(fleet.fleet.fakes[0]->process().wait_line({"arrival", "request_id=waiting"}));
    EXPECT_EQ(fleet.post("/admin/replicas/1/undrain").status, 200);
    const AdminAnswer gone = ask(fleet.socket, "DELETE", "/admin/replicas/0?now=1");
    EXPECT_GE(gone.status, 200);
    EXPECT_LE(gone.status, 202);
    const Answer ended = streaming.read_to_end();
    EXPECT_TRUE(ended.is_complete);
    EXPECT_THAT(ended.body, HasSubstr("event: error\n"));
    EXPECT_THAT(ended.body, HasSubstr("draining"));
    EXPECT_THAT(ended.body, testing::Not(HasSubstr("[DONE]")));
    EXPECT_TRUE(fleet.fleet.fakes[1]->process().wait_line({"arrival", "request_id=waiting"}));
    EXPECT_TRUE(fleet.fleet.router->process().wait_line({"action=removed", "replica=0"}));
}

TEST(RouterAdminTest, AReplicaThatIsLeavingStaysWhenItIsWantedAgain) {
    AdminFleet fleet(1, {"--ttft-ms", "600000"});
    RawClient client(fleet.port());
    client.post(kChat, chat_body("hi", true));
    ASSERT_TRUE(fleet.fleet.fakes[0]->process().wait_line({"arrival"}));
    EXPECT_EQ(ask(fleet.socket, "DELETE", "/admin/replicas/0").status, 202);
    const std::string body = json{{"url", fleet.fleet.fakes[0]->url()}}.dump();
    const AdminAnswer back = fleet.post("/admin/replicas", body);
    EXPECT_EQ(back.body["replica"], 0);
    EXPECT_EQ(back.body["leaving"], false);
    EXPECT_EQ(back.body["state"], "READY");
}

TEST(RouterAdminTest, OverTcpItNeedsAKeyOfItsOwn) {
    TempFolder folder;
    const std::string keys = folder.write(
        "admin.toml", "[[key]]\nname = \"op\"\nsha256 = \"" + digest_of("op-key") + "\"\n");
    AdminFleet fleet(1, {}, {"--admin-listen", "127.0.0.1:0", "--admin-keys-file", keys});
    const auto line = fleet.fleet.router->process().wait_line({"event=admin_listening", "port="});
    ASSERT_TRUE(line);
    const int port = std::stoi(line->substr(line->find("port=") + 5));
    EXPECT_EQ(get(port, "/admin/replicas").status, 401);
    EXPECT_EQ(get(port, "/admin/replicas", {"Authorization: Bearer other"}).status, 401);
    const std::string key = "Authorization: Bearer op-key";
    EXPECT_EQ(get(port, "/admin/replicas", {key}).status, 200);
    EXPECT_EQ(post(port, "/admin/replicas/0/drain", "", {key}).status, 200);
    EXPECT_EQ(post(port, "/admin/replicas/0/undrain", "").status, 401);
    EXPECT_EQ(get(port, "/v1/models", {key}).status, 404);
    EXPECT_EQ(get(fleet.port(), "/v1/models").status, 200) << "the public port has none";
    // A reload takes another key; a bad file changes nothing.
    folder.write("admin.toml", "nonsense");
    Child& router = fleet.fleet.router->process();
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reload_failed", "subject=admin_keys"}));
    EXPECT_EQ(get(port, "/admin/replicas", {key}).status, 200);
}

TEST(RouterAdminTest, WhoGuessesKeysOverTcpIsSentAwayForAWhile) {
    TempFolder folder;
    const std::string keys = folder.write(
        "admin.toml", "[[key]]\nname = \"op\"\nsha256 = \"" + digest_of("op-key") + "\"\n");
    AdminFleet fleet(1, {}, {"--admin-listen", "127.0.0.1:0", "--admin-keys-file", keys});
    Child& router = fleet.fleet.router->process();
    const auto line = router.wait_line({"event=admin_listening", "port="});
    ASSERT_TRUE(line);
    const int port = std::stoi(line->substr(line->find("port=") + 5));
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(get(port, "/admin/replicas").status, 401) << "without a key nothing is guessed";
    for (int i = 0; i < 10; ++i) {
        const std::string guess = "Authorization: Bearer guess-" + std::to_string(i);
        EXPECT_EQ(get(port, "/admin/replicas", {guess}).status, 401);
    }
    EXPECT_TRUE(router.wait_line({"event=admin_shut_out", "address=127.0.0.1"}));
    const Answer refused = get(port, "/admin/replicas", {"Authorization: Bearer op-key"});
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.header("retry-after"), testing::Not(testing::IsEmpty()));
    EXPECT_EQ(fleet.get("/admin/replicas").status, 200) << "the local socket has no keys";
    const std::string text = get(fleet.port(), "/metrics").body;
    EXPECT_THAT(text, HasSubstr("admin_refused_total{reason=\"wrong_key\"} 10"));
    EXPECT_THAT(text, HasSubstr("admin_refused_total{reason=\"shut_out\"} 1"));
}

TEST(RouterAdminTest, ATcpListenerThatWouldBeOpenIsRefused) {
    TempFolder folder;
    const std::string keys = folder.write(
        "admin.toml", "[[key]]\nname = \"op\"\nsha256 = \"" + digest_of("op-key") + "\"\n");
    const auto refusal = [](std::vector<std::string> flags) {
        flags.insert(flags.begin(), {kRouter, "--port", "0"});
        Child router(flags, Child::Listen::kStderr);
        EXPECT_EQ(router.wait_exit(), 2);
        return router.text();
    };
    EXPECT_THAT(refusal({"--admin-listen", "127.0.0.1:0"}), HasSubstr("--admin-keys-file"));
    EXPECT_THAT(refusal({"--admin-listen", "0.0.0.0:0", "--admin-keys-file", keys}),
                HasSubstr("TLS"));
    EXPECT_THAT(refusal({"--admin-listen", "nonsense", "--admin-keys-file", keys}),
                HasSubstr("HOST:PORT"));
    EXPECT_THAT(refusal({"--admin-keys-file", keys}), HasSubstr("--admin-listen"));
}

}  // namespace
}  // namespace fleet
