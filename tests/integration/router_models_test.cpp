// Which replica a request goes to by the model it names: fleets of several models, and a reload
// that renames the model of one replica after the other. The real router in front of scripted
// replicas.
#include <csignal>

#include <gmock/gmock.h>

#include "proto/http_client.h"
#include "proto/json.h"
#include "tests/integration/router_announcer.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
const std::string kWaiting = "quadriga_router_queue_requests{class=\"default\"}";

std::string body_of(const std::string& model, const std::string& text = "hi") {
    proto::Json body;
    if (!model.empty()) body["model"] = model;
    body["messages"] = proto::Json::array({{{"role", "user"}, {"content", text}}});
    return body.dump();
}

/// Waits until the router has read the names of every model in `names`.
void wait_models(const Router& router, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        while (proto::http_get(router.url("/v1/models/" + name), kPatience).status != 200) {
        }
    }
}

std::string decision_of(const Answer& answer) {
    return answer.header("x-quadriga-decision");
}

TEST(RouterModelsTest, ARequestGoesToAReplicaThatServesItsModel) {
    Fake a(0, {"--model", "a"});
    Fake b(1, {"--model", "b"});
    Router router({"--replica", a.url(), "--replica", b.url()});
    ASSERT_TRUE(router.wait_state(0, "READY") && router.wait_state(1, "READY"));
    wait_models(router, {"a", "b"});
    for (int i = 0; i < 3; ++i) {
        const Answer of_b = post(router.port(), kChat, body_of("b"));
        EXPECT_EQ(of_b.status, 200);
        EXPECT_THAT(decision_of(of_b), HasSubstr("replica=1; reason=only"));
        EXPECT_THAT(decision_of(post(router.port(), kChat, body_of("a"))), HasSubstr("replica=0"));
    }
    EXPECT_EQ(b.arrivals(), 3U);
    EXPECT_EQ(post(router.port(), kChat, body_of("c")).status, 404);
    // A name that both have, and no name: either may serve it.
    EXPECT_EQ(post(router.port(), kChat, body_of("default")).status, 200);
    EXPECT_EQ(post(router.port(), kChat, body_of("")).status, 200);
}

TEST(RouterModelsTest, AModelWhoseOnlyReplicaIsDownIsNotReadyWhileOthersServe) {
    Fake a(0, {"--model", "a"});
    Fake b(1, {"--model", "b"});
    Router router({"--replica", a.url(), "--replica", b.url()});
    ASSERT_TRUE(router.wait_state(0, "READY") && router.wait_state(1, "READY"));
    wait_models(router, {"a", "b"});
    RawClient running(router.port());  // it has nowhere else to go
    running.post(kChat, body_of("b", "ttft_ms=60000"));
    ASSERT_TRUE(b.process().wait_line({"arrival "}));
    b.process().signal(SIGKILL);
    // Lost with its only replica, or sent away by the time its end is known.
    EXPECT_THAT(running.read_answer().status, testing::AnyOf(502, 503));
    ASSERT_TRUE(router.wait_state(1, "DOWN"));
    const Answer refused = post(router.port(), kChat, body_of("b"));
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("No replica that serves 'b' is ready."));
    EXPECT_EQ(post(router.port(), kChat, body_of("a")).status, 200);
    EXPECT_EQ(a.arrivals(), 1U);
}

TEST(RouterModelsTest, AReloadThatRenamesTheModelLosesNoRequest) {
    Announcer announcer;
    Router router({"--announce-fd", "10"}, {announcer.inherited()});
    const auto say = [&](const Fake& fake, int index, proto::ReplicaState state) {
        announcer.say(fake, index, state, fake.instance());
    };
    const auto ask = [&](RawClient& client, const std::string& model) {
        client.post(kChat, body_of(model));
        while (router.metric(kWaiting) != 1) {
        }
    };
    auto first = std::make_unique<Fake>(0, std::vector<std::string>{"--model", "old"});
    auto second = std::make_unique<Fake>(1, std::vector<std::string>{"--model", "old"});
    say(*first, 0, proto::ReplicaState::kReady);
    say(*second, 1, proto::ReplicaState::kReady);
    ASSERT_TRUE(router.wait_state(0, "READY") && router.wait_state(1, "READY"));
    wait_models(router, {"old"});

    first = std::make_unique<Fake>(0, std::vector<std::string>{"--model", "new"});
    say(*first, 0, proto::ReplicaState::kLoading);
    ASSERT_TRUE(router.process().wait_line({"event=replica_state", "replica=0", "to=STARTING"}));
    RawClient early(router.port());  // it may be what the new process serves
    ask(early, "new");
    say(*first, 0, proto::ReplicaState::kReady);
    EXPECT_THAT(decision_of(early.read_answer()), HasSubstr("replica=0"));
    EXPECT_THAT(decision_of(post(router.port(), kChat, body_of("old"))), HasSubstr("replica=1"));

    second = std::make_unique<Fake>(1, std::vector<std::string>{"--model", "new"});
    say(*second, 1, proto::ReplicaState::kLoading);
    ASSERT_TRUE(router.process().wait_line({"event=replica_state", "replica=1", "to=STARTING"}));
    RawClient late(router.port());  // it may be the old model again
    ask(late, "old");
    EXPECT_EQ(post(router.port(), kChat, body_of("new")).status, 200) << "past the one that waits";
    say(*second, 1, proto::ReplicaState::kReady);
    const Answer gone = late.read_answer();
    EXPECT_EQ(gone.status, 404) << "nobody can serve it any more";
    EXPECT_THAT(gone.body, HasSubstr("\"model_not_found\""));
    EXPECT_EQ(router.metric("quadriga_router_rejected_total{reason=\"model_gone\"}"), 1);
    EXPECT_EQ(post(router.port(), kChat, body_of("old")).status, 404);
}

TEST(RouterModelsTest, AllNamesOfAModelShareTheirPrefixes) {
    Fleet fleet(4, {"--cache", "boundary", "--prefill-rate", "20000"});
    wait_models(*fleet.router, {"fake"});
    std::string text;
    while (text.size() < 4000)
        text += "the same long beginning ";
    const int port = fleet.router->port();
    const auto answer_of = [&](const std::string& model) {
        return decision_of(post(port, kChat, body_of(model, text)));
    };
    const std::string first = answer_of("fake");
    const std::string home = first.substr(0, first.find(';'));
    for (const char* name : {"default", "", "fake"})
        EXPECT_THAT(answer_of(name), HasSubstr(home + "; reason=prefix")) << name;
}

}  // namespace
}  // namespace fleet
