// Prefix affinity in the running router: chats stay where their beginning is, hot prefixes spread,
// a dead holder holds nobody up. The real router in front of scripted replicas with a cache that
// takes 50 ms for a prompt of 1,000 tokens; numbers are cases of the router's specification.
#include <map>
#include <memory>

#include <gmock/gmock.h>

#include "proto/json.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
const std::vector<std::string> kFlags = {"--slots", "8",        "--prefill-rate", "20000",
                                         "--cache", "boundary", "--tokens",       "2"};

/// About `tokens` tokens by the fake's count, different for each name.
std::string text_of(const std::string& name, std::size_t tokens) {
    std::string text;
    while (text.size() < tokens * 7 / 2)
        text += name + " ";
    return text;
}

/// A conversation: messages of alternating roles.
class Chat {
public:
    Chat& say(const std::string& text) {
        const char* role = messages_.size() % 2 == 0 ? "user" : "assistant";
        messages_.push_back({{"role", role}, {"content", text}});
        return *this;
    }
    [[nodiscard]] std::string body() const {
        return proto::Json{{"model", "fake"}, {"messages", messages_}, {"stream", true}}.dump();
    }

private:
    proto::Json messages_ = proto::Json::array();
};

/// `name=value;` out of the decision header.
std::string decided(const Answer& answer, const std::string& name) {
    const std::string header = answer.header("x-quadriga-decision") + ";";
    const std::size_t at = header.find(name + "=");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 1;
    return header.substr(begin, header.find(';', begin) - begin);
}

/// All sent at once, heads included in the answers.
std::vector<Answer> ask_all(int port, const std::vector<std::string>& bodies) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (const std::string& body : bodies) {
        clients.push_back(std::make_unique<RawClient>(port));
        clients.back()->post(kChat, body);
    }
    std::vector<Answer> answers;
    for (const auto& client : clients)
        answers.push_back(client->read_answer());
    return answers;
}

TEST(RouterAffinityTest, AChatGoesBackToWhereItsBeginningIs) {
    Fleet fleet(4, kFlags, {"--log-level", "debug"});
    const int port = fleet.router->port();
    Chat chat;
    const Answer first = post(port, kChat, chat.say(text_of("question", 1000)).body());
    ASSERT_EQ(first.status, 200);
    EXPECT_EQ(decided(first, "matched"), "0");
    for (int turn = 0; turn < 3; ++turn) {
        chat.say("an answer").say(text_of("more", 100));
        const Answer next = post(port, kChat, chat.body());
        ASSERT_EQ(decided(next, "replica"), decided(first, "replica"))
            << fleet.router->process().text();  // with the terms of every candidate
        EXPECT_EQ(decided(next, "reason"), "prefix");
        EXPECT_GE(std::atoi(decided(next, "matched").c_str()), 900);
    }
    const std::string label = ",replica=\"" + decided(first, "replica") + "\"}";
    const auto tokens = [&](const std::string& kind) {
        return fleet.router
            ->metric("quadriga_router_affinity_tokens_total{kind=\"" + kind + "\"" + label)
            .value_or(0);
    };
    EXPECT_GE(tokens("predicted"), 2700);
    EXPECT_GE(tokens("confirmed"), 2700) << "and the replica had them";
    EXPECT_EQ(fleet.router->metric("quadriga_router_decisions_total{reason=\"prefix\"" + label), 3);
    // The replica reported cached and other prompt tokens at the end of each.
    EXPECT_TRUE(fleet.fakes[static_cast<std::size_t>(std::stoi(decided(first, "replica")))]
                    ->process()
                    .wait_count("end ", 4));
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterAffinityTest, R10_ChatsSpreadOverAllReplicasAndStayThere) {
    Fleet fleet(4, kFlags);
    std::vector<Chat> chats(24);
    std::vector<std::string> homes;
    for (int turn = 0; turn < 3; ++turn) {
        std::vector<std::string> bodies;
        for (std::size_t i = 0; i < chats.size(); ++i) {
            const std::string name = "chat" + std::to_string(i);
            if (turn > 0) chats[i].say("an answer");
            bodies.push_back(chats[i].say(text_of(name, turn == 0 ? 1500 : 150)).body());
        }
        // All begin at once and so must spread; then a few at a time, so that homes are free.
        const std::size_t group = turn == 0 ? bodies.size() : 4;
        std::vector<Answer> answers;
        for (std::size_t begin = 0; begin < bodies.size(); begin += group) {
            const std::vector<std::string> some(
                bodies.begin() + static_cast<std::ptrdiff_t>(begin),
                bodies.begin() + static_cast<std::ptrdiff_t>(begin + group));
            for (const Answer& answer : ask_all(fleet.router->port(), some))
                answers.push_back(answer);
        }
        std::map<std::string, int> shares;
        int stayed = 0;
        for (std::size_t i = 0; i < answers.size(); ++i) {
            ASSERT_EQ(answers[i].status, 200);
            const std::string replica = decided(answers[i], "replica");
            ++shares[replica];
            if (turn == 0) homes.push_back(replica);
            stayed += replica == homes[i] ? 1 : 0;
        }
        EXPECT_EQ(shares.size(), 4U);
        // A chance choice would keep six; on a slow machine some homes are busy when a turn comes.
        EXPECT_GE(stayed, 14) << "turn " << turn;
        if (turn > 0) continue;
        for (const auto& [replica, share] : shares)
            EXPECT_LE(share, 10) << "replica " << replica;
    }
}

TEST(RouterAffinityTest, R9_AHotPrefixSpreadsWhenItsHolderIsBusy) {
    Fleet fleet(4, kFlags);
    const std::string hot = text_of("hot", 2000);
    const int port = fleet.router->port();
    ASSERT_EQ(post(port, kChat, Chat().say(hot).body()).status, 200);
    std::vector<std::string> bodies;
    for (int i = 0; i < 32; ++i) {
        const std::string name = "user" + std::to_string(i);
        bodies.push_back(Chat().say(hot).say("yes").say(text_of(name, 800)).body());
    }
    std::map<std::string, int> shares;
    for (const Answer& answer : ask_all(port, bodies)) {
        EXPECT_EQ(answer.status, 200);
        ++shares[decided(answer, "replica")];
    }
    EXPECT_EQ(shares.size(), 4U) << "32 x 40 ms would be too much for one";
    for (const auto& [replica, share] : shares)
        EXPECT_LE(share, 16) << "replica " << replica;
}

TEST(RouterAffinityTest, R5_AKilledHolderIsNotWaitedFor) {
    Fleet fleet(4, kFlags);
    const int port = fleet.router->port();
    const std::string body = Chat().say(text_of("hot", 2000)).body();
    const Answer first = post(port, kChat, body);
    const std::string holder = decided(first, "replica");
    ASSERT_EQ(decided(post(port, kChat, body), "replica"), holder);
    fleet.fakes[static_cast<std::size_t>(std::stoi(holder))]->process().signal(9);
    // At once, so that the router learns of the death from these.
    for (const Answer& answer : ask_all(port, std::vector<std::string>(8, body))) {
        EXPECT_EQ(answer.status, 200) << "no 5xx";
        EXPECT_NE(decided(answer, "replica"), holder);
    }
    ASSERT_TRUE(fleet.router->wait_state(std::stoi(holder), "DOWN"));
    const Answer after = post(port, kChat, body);
    EXPECT_EQ(after.status, 200);
    EXPECT_NE(decided(after, "replica"), holder);
    EXPECT_EQ(decided(after, "attempt"), "1") << "the first selection goes elsewhere";
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterAffinityTest, TheDecisionsOfAllCandidatesAreInTheDebugLog) {
    Fleet fleet(2, kFlags, {"--log-level", "debug"});
    ASSERT_EQ(post(fleet.router->port(), kChat, Chat().say("hi").body()).status, 200);
    const auto line = fleet.router->process().wait_line({"event=decision "});
    ASSERT_TRUE(line);
    EXPECT_THAT(*line, HasSubstr(R"("candidates":[{"replica":0,"cost_s":)"));
}

}  // namespace
}  // namespace fleet
