// Many clients at once, with cancels at random points: every sink finishes exactly once, whatever
// was produced is what a lone request would have got, and everything is returned.
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/engine/expected_text.h"
#include "tests/unit/engine/fake_step_runner.h"
#include "tests/unit/engine/recording_sink.h"

namespace replica {
namespace {

struct Client {
    EngineRequest request;
    std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
    std::size_t cancel_after = 0;  // tokens; 0 = let it finish
    RequestId id = 0;
};

Client random_client(std::mt19937& random) {
    Client client;
    const auto prompt_tokens = 1 + random() % 40;
    for (std::size_t i = 0; i < prompt_tokens; ++i)
        client.request.prompt.push_back(static_cast<TokenId>(random() % 500));
    client.request.max_tokens = static_cast<std::int32_t>(1 + random() % 20);
    client.request.sampling.seed = random();
    client.request.priority = static_cast<std::int32_t>(random() % 5);
    if (random() % 2 == 0) client.request.sampling.frequency_penalty = 0.5F;
    if (random() % 3 == 0) client.cancel_after = 1 + random() % 10;
    client.request.sinks = {client.sink};
    return client;
}

void expect_prefix_of_lone_text(const Client& client) {
    const std::vector<TokenId> expected = expected_text(client.request);
    const std::vector<TokenId> tokens = client.sink->tokens();
    ASSERT_LE(tokens.size(), expected.size());
    for (std::size_t i = 0; i < tokens.size(); ++i)
        ASSERT_EQ(tokens[i], expected[i]) << "at token " << i;
}

TEST(EngineStressTest, TwoHundredRequestsFromManyThreadsAllFinishOnce) {
    constexpr int kThreads = 5;
    constexpr int kClients = 40;  // of each thread
    FakeStepRunner runner({.rows = 24, .seqs = 6, .blocks_total = 24});
    Engine engine(runner, {.sequences_max = 6, .waiting_max = 200, .step_token_budget = 24});
    std::vector<std::vector<Client>> clients(kThreads);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&engine, &mine = clients[t], t] {
            std::mt19937 random(t + 1);
            for (int i = 0; i < kClients; ++i) {
                mine.push_back(random_client(random));
                Client& client = mine.back();
                const SubmitResult result = engine.submit(client.request);
                ASSERT_EQ(result.status, SubmitStatus::kAccepted);
                client.id = result.id;
                if (random() % 8 == 0) engine.cancel(client.id);  // before it begins, perhaps
            }
            for (Client& client : mine) {
                if (client.cancel_after == 0) continue;
                client.sink->wait_tokens(client.cancel_after);
                engine.cancel(client.id);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::size_t cancelled = 0;
    for (const std::vector<Client>& mine : clients) {
        for (const Client& client : mine) {
            const FinishInfo info = client.sink->wait_finished();
            cancelled += info.reason == FinishReason::kCancelled ? 1 : 0;
            if (info.reason == FinishReason::kLength) {
                EXPECT_EQ(client.sink->tokens().size(),
                          static_cast<std::size_t>(*client.request.max_tokens));
            }
            expect_prefix_of_lone_text(client);
            EXPECT_EQ(client.sink->finishes(), 1);
        }
    }
    EXPECT_GT(cancelled, 0U);
    const EngineStatus status = engine.status();
    EXPECT_EQ(status.running, 0);
    EXPECT_EQ(status.waiting, 0);
    EXPECT_EQ(status.queued_tokens, 0);
    EXPECT_EQ(status.blocks_free, status.blocks_total);
    // A last request finds a slot, and the runner checks that it is a valid one.
    auto sink = std::make_shared<RecordingSink>();
    engine.submit({.prompt = {1, 2, 3}, .max_tokens = 2, .sinks = {sink}});
    EXPECT_EQ(sink->wait_finished().reason, FinishReason::kLength);
}

TEST(EngineStressTest, DestructionFindsRequestsInEveryPhase) {
    FakeStepRunner runner;
    for (std::uint32_t round = 0; round < 20; ++round) {
        auto engine = std::make_unique<Engine>(runner, EngineOptions{});
        std::vector<std::shared_ptr<RecordingSink>> accepted;
        std::thread client([&] {
            std::mt19937 random(round);
            for (int i = 0; i < 20; ++i) {
                Client next = random_client(random);
                const SubmitResult result = engine->submit(next.request);
                if (result.status != SubmitStatus::kAccepted) continue;
                accepted.push_back(next.sink);
                if (i % 3 == 0) engine->cancel(result.id);
            }
        });
        client.join();  // requests are in every phase by now
        engine.reset();
        for (const auto& sink : accepted)
            ASSERT_EQ(sink->finishes(), 1);
    }
}

TEST(EngineStressTest, ReadersOfTheStatusSeeOneConsistentPicture) {
    FakeStepRunner runner;
    Engine engine(runner, {.sequences_max = 4, .waiting_max = 60});
    std::atomic<bool> is_done = false;
    std::thread reader([&] {
        while (!is_done) {
            const EngineStatus status = engine.status();
            EXPECT_LE(status.running, 4);
            EXPECT_GE(status.waiting, 0);
            EXPECT_LE(status.running + status.waiting, 64);
            EXPECT_TRUE(status.running > 0 || status.blocks_free == status.blocks_total);
        }
    });
    std::mt19937 random(9);
    std::vector<Client> clients;
    for (int i = 0; i < 60; ++i) {
        clients.push_back(random_client(random));
        EXPECT_EQ(engine.submit(clients.back().request).status, SubmitStatus::kAccepted);
    }
    for (const Client& client : clients)
        client.sink->wait_finished();
    is_done = true;
    reader.join();
}

}  // namespace
}  // namespace replica
