// Admission on a real loop, with reports given by hand and no sockets.
#include "router/dispatcher.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace router {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

/// A dispatcher over fixed replicas with two slots each and nothing ahead.
class DispatcherTest : public testing::Test {
protected:
    using Outcome = tl::expected<std::unique_ptr<Grant>, proto::ApiError>;

    /// Long prompts start at once, so that one turn of the loop shows the whole outcome.
    static Config settings() {
        Config config;
        config.dispatch_ahead = 0;
        config.big_prefill_stagger = milliseconds(0);
        return config;
    }

    void add_replica() {
        const int index = set.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, Clock::now()).index;
        report(index, 1);
    }
    void report(int index, std::uint64_t seq) {
        proto::ReplicaStatus status;
        status.instance = "000000000000000" + std::to_string(index);
        status.state = proto::ReplicaState::kReady;
        status.seq = seq;
        status.sequences_max = 2;
        (void)set.on_report(index, status, Clock::now());
    }

    /// Starts an acquisition; its outcome appears in `into`.
    void acquire(Ticket& ticket, std::optional<Outcome>& into) {
        ticket.arrival = Clock::now();
        asio::co_spawn(loop, dispatcher.acquire(ticket),
                       [&into](std::exception_ptr, Outcome one) { into = std::move(one); });
        loop.restart();
        loop.poll();
    }
    void turn() {
        loop.restart();
        loop.poll();
    }

    Config config = settings();
    asio::io_context loop{1};
    Metrics metrics{{.version = "t", .config_digest = "t"}};
    ReplicaSet set{{}};
    Dispatcher dispatcher{loop.get_executor(), config, set, metrics};
};

TEST_F(DispatcherTest, ABurstBetweenTwoReportsIsSpreadBySelectionAlone) {
    for (int i = 0; i < 4; ++i)
        add_replica();
    std::array<Ticket, 8> tickets;
    std::array<std::optional<Outcome>, 8> outcomes;
    std::array<int, 4> shares{};
    for (std::size_t i = 0; i < 8; ++i) {
        tickets[i].prompt_tokens = 32'000;
        acquire(tickets[i], outcomes[i]);
        ASSERT_TRUE(outcomes[i] && outcomes[i]->has_value()) << i;
        ++shares.at(static_cast<std::size_t>((**outcomes[i])->replica.index));
    }
    for (const int share : shares)
        EXPECT_EQ(share, 2);
}

TEST_F(DispatcherTest, AnEndedGrantLetsTheNextRequestStart) {
    add_replica();
    std::array<Ticket, 3> tickets;
    std::array<std::optional<Outcome>, 3> outcomes;
    for (std::size_t i = 0; i < 3; ++i)
        acquire(tickets[i], outcomes[i]);
    EXPECT_TRUE(outcomes[0] && outcomes[1]);
    EXPECT_FALSE(outcomes[2]);
    EXPECT_EQ(dispatcher.queue().size(), 1U);
    outcomes[0].reset();
    turn();
    ASSERT_TRUE(outcomes[2] && outcomes[2]->has_value());
    outcomes[1].reset();
    outcomes[2].reset();
    EXPECT_TRUE(set.find(0)->account->is_idle());
    EXPECT_EQ(set.find(0)->account->occupied(), 0);
}

TEST_F(DispatcherTest, WaitsWhileReplicasStartAndIsSentAwayWhenNoneWillCome) {
    set.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, Clock::now());
    Ticket ticket;
    std::optional<Outcome> outcome;
    acquire(ticket, outcome);
    EXPECT_FALSE(outcome) << "it is starting";
    report(0, 1);
    turn();
    ASSERT_TRUE(outcome && outcome->has_value());
    outcome.reset();

    set.on_gone(0, Clock::now());
    Ticket late;
    acquire(late, outcome);
    ASSERT_TRUE(outcome && !outcome->has_value());
    EXPECT_EQ(outcome->error().code, proto::ErrorCode::kNoReplicaReady);
    EXPECT_EQ(outcome->error().retry_after_s, 30);
}

TEST_F(DispatcherTest, ThoseThatWaitAreSentAwayWhenTheLastReplicaGoes) {
    add_replica();
    std::array<Ticket, 3> tickets;
    std::array<std::optional<Outcome>, 3> outcomes;
    for (std::size_t i = 0; i < 3; ++i)
        acquire(tickets[i], outcomes[i]);
    set.on_gone(0, Clock::now());
    turn();
    ASSERT_TRUE(outcomes[2] && !outcomes[2]->has_value());
    EXPECT_EQ(outcomes[2]->error().code, proto::ErrorCode::kNoReplicaReady);
    EXPECT_EQ(dispatcher.queue().size(), 0U);
}

TEST_F(DispatcherTest, TheEndOfAnUnknownDispatchTeachesNothing) {
    add_replica();
    Estimator estimator;
    const auto done = [](const std::string& dispatch) {
        return proto::DoneEvent{.dispatch = dispatch, .generated = 100'000, .reason = "stop"};
    };
    EXPECT_EQ(dispatcher.on_done(0, done("another-1"), estimator), Dispatcher::DoneOf::kNobody);
    EXPECT_EQ(metrics.replica(0).generation_tokens->Value(), 0) << "it is no work of ours";
    EXPECT_EQ(estimator.output_tokens("", kAnonymousKey, std::nullopt, 1), 256);
    Ticket ticket;
    std::optional<Outcome> outcome;
    acquire(ticket, outcome);
    ASSERT_TRUE(outcome && *outcome);
    const std::string dispatch = (**outcome)->dispatch_id;
    EXPECT_EQ(dispatcher.on_done(0, done(dispatch), estimator), Dispatcher::DoneOf::kRunning);
    EXPECT_EQ(metrics.replica(0).generation_tokens->Value(), 100'000);
    EXPECT_EQ(dispatcher.on_done(0, done(dispatch), estimator), Dispatcher::DoneOf::kNobody)
        << "said twice";
    EXPECT_EQ(metrics.replica(0).generation_tokens->Value(), 100'000);
    EXPECT_GT(estimator.output_tokens("", kAnonymousKey, std::nullopt, 1), 256);
}

TEST_F(DispatcherTest, SeveralAnswersToOneRequestTeachTheLengthOfOne) {
    add_replica();
    Estimator estimator;
    for (int i = 0; i < 100; ++i) {
        Ticket ticket;
        ticket.sequences = 2;
        std::optional<Outcome> outcome;
        acquire(ticket, outcome);
        ASSERT_TRUE(outcome && *outcome);
        const proto::DoneEvent done{
            .dispatch = (**outcome)->dispatch_id, .generated = 2000, .reason = "stop"};
        (void)dispatcher.on_done(0, done, estimator);
    }
    const auto expected = [&](int sequences) {
        return static_cast<double>(
            estimator.output_tokens("", kAnonymousKey, std::nullopt, sequences));
    };
    EXPECT_NEAR(expected(1), 1000, 5);
    EXPECT_NEAR(expected(2), 2000, 10) << "the whole of it, and not twice that";
}

TEST_F(DispatcherTest, AFullQueueAndATooLongWaitAre429) {
    config.queue_count_max = 1;
    config.queue_wait = milliseconds(0);
    add_replica();
    std::array<Ticket, 3> tickets;
    std::array<std::optional<Outcome>, 3> outcomes;
    for (std::size_t i = 0; i < 3; ++i) {
        tickets[i].arrival = Clock::now();
        acquire(tickets[i], outcomes[i]);
    }
    ASSERT_TRUE(outcomes[0] && !outcomes[0]->has_value()) << "no wait is allowed at all";
    EXPECT_EQ(outcomes[0]->error().code, proto::ErrorCode::kQueueTimeout);
    config.queue_wait = std::chrono::minutes(1);
    std::array<Ticket, 4> more;
    std::array<std::optional<Outcome>, 4> results;
    for (std::size_t i = 0; i < 4; ++i)
        acquire(more[i], results[i]);
    EXPECT_TRUE(results[0]->has_value() && results[1]->has_value());
    EXPECT_FALSE(results[2]) << "it waits";
    ASSERT_TRUE(results[3] && !results[3]->has_value());
    EXPECT_EQ(results[3]->error().code, proto::ErrorCode::kQueueFull);
    EXPECT_GE(results[3]->error().retry_after_s.value_or(0), 1);
    EXPECT_TRUE(dispatcher.refuse_early(true));
    dispatcher.cancel(more[2]);
    turn();
    EXPECT_FALSE(dispatcher.refuse_early(true));
}

TEST_F(DispatcherTest, HeadsCountAgainstTheQueueBeforeTheirBodiesAreHere) {
    config.queue_count_max = 2;
    add_replica();  // two slots
    std::vector<WaitQueue::Arrival> arrivals;
    for (int i = 0; i < 4; ++i) {
        ASSERT_FALSE(dispatcher.refuse_early(true)) << "two can start and two wait";
        arrivals.push_back(dispatcher.arrive(kAnonymousKey));
    }
    const auto refusal = dispatcher.refuse_early(true);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->code, proto::ErrorCode::kQueueFull);
    EXPECT_FALSE(dispatcher.refuse_early(false)) << "what needs no queue is let in";
    arrivals.pop_back();
    EXPECT_FALSE(dispatcher.refuse_early(true)) << "a client left before its body was sent";
    arrivals.clear();
    EXPECT_EQ(dispatcher.queue().arriving(), 0U);
}

TEST_F(DispatcherTest, AKeyHasHalfOfThePlacesForHeadsWhileOthersArrive) {
    config.queue_count_max = 4;
    add_replica();
    constexpr KeyId kGreedy = 1;
    constexpr KeyId kOther = 2;
    std::vector<WaitQueue::Arrival> arrivals;
    for (int i = 0; i < 4; ++i)
        arrivals.push_back(dispatcher.arrive(kGreedy));
    EXPECT_FALSE(dispatcher.refuse_early(true, kGreedy)) << "alone it may have all";
    ASSERT_FALSE(dispatcher.refuse_early(true, kOther));
    arrivals.push_back(dispatcher.arrive(kOther));
    EXPECT_TRUE(dispatcher.refuse_early(true, kGreedy)) << "half of four, and two that can start";
    EXPECT_FALSE(dispatcher.refuse_early(true, kOther));
}

TEST_F(DispatcherTest, ACancelledWaitLeavesNothingBehind) {
    add_replica();
    std::array<Ticket, 3> tickets;
    std::array<std::optional<Outcome>, 3> outcomes;
    for (std::size_t i = 0; i < 3; ++i)
        acquire(tickets[i], outcomes[i]);
    dispatcher.cancel(tickets[2]);
    turn();
    ASSERT_TRUE(outcomes[2] && !outcomes[2]->has_value());
    EXPECT_EQ(dispatcher.queue().size(), 0U);
    for (const auto* gauge : metrics.queue_requests)
        EXPECT_EQ(gauge->Value(), 0);
}

TEST_F(DispatcherTest, WhenEveryReplicaHasFailedTheRequestItIsLost) {
    add_replica();
    add_replica();
    Ticket ticket;
    ticket.in_front = true;
    ticket.excluded = {{0, set.find(0)->life}, {1, set.find(1)->life}};
    std::optional<Outcome> outcome;
    acquire(ticket, outcome);
    ASSERT_TRUE(outcome && !outcome->has_value());
    EXPECT_EQ(outcome->error().code, proto::ErrorCode::kReplicaLost);
    ticket.excluded.pop_back();
    acquire(ticket, outcome);
    ASSERT_TRUE(outcome->has_value());
    EXPECT_EQ((**outcome)->replica.index, 1);
}

TEST_F(DispatcherTest, TheTimeOnAReplicaThatFailedIsNoPartOfTheWait) {
    config.queue_wait = std::chrono::minutes(2);
    add_replica();
    add_replica();
    Ticket ticket;
    std::optional<Outcome> outcome;
    acquire(ticket, outcome);
    ASSERT_TRUE(outcome && *outcome);
    // It has been there for an hour when it fails.
    ticket.excluded = {(**outcome)->replica};
    outcome.reset();
    ticket.in_front = true;
    for (auto* time : {&ticket.arrival, &ticket.left_at, &ticket.waiting_since, &ticket.mode_since})
        *time -= std::chrono::hours(1);
    asio::co_spawn(loop, dispatcher.acquire(ticket),
                   [&outcome](std::exception_ptr, Outcome one) { outcome = std::move(one); });
    turn();
    ASSERT_TRUE(outcome && outcome->has_value()) << "it waited for no time at all";
}

TEST_F(DispatcherTest, ALostReplicaTellsTheAttemptsThatWaitForTheirFirstByte) {
    add_replica();
    add_replica();
    std::array<Ticket, 2> tickets;
    std::array<std::optional<Outcome>, 2> outcomes;
    for (std::size_t i = 0; i < 2; ++i)
        acquire(tickets[i], outcomes[i]);
    int told = 0;
    for (auto& outcome : outcomes) {
        Grant& grant = ***outcome;
        grant.on_lost = [&told, index = grant.replica.index] { told += 1 + 10 * index; };
    }
    set.on_gone(1, Clock::now());
    EXPECT_EQ(told, 11);
}

TEST_F(DispatcherTest, DrainingRefusesNewRequestsAndServesThoseThatWait) {
    add_replica();
    std::array<Ticket, 4> tickets;
    std::array<std::optional<Outcome>, 4> outcomes;
    for (std::size_t i = 0; i < 3; ++i)
        acquire(tickets[i], outcomes[i]);
    dispatcher.start_draining();
    acquire(tickets[3], outcomes[3]);
    ASSERT_TRUE(outcomes[3] && !outcomes[3]->has_value());
    EXPECT_EQ(outcomes[3]->error().code, proto::ErrorCode::kDraining);
    outcomes[0].reset();
    turn();
    EXPECT_TRUE(outcomes[2] && outcomes[2]->has_value());
}

TEST(DispatcherStaggerTest, ASecondLongPromptStartsALittleLaterByItself) {
    asio::io_context loop{1};
    Config config;
    config.big_prefill_stagger = milliseconds(5);
    Metrics metrics{{.version = "t", .config_digest = "t"}};
    ReplicaSet set{{}};
    Dispatcher dispatcher{loop.get_executor(), config, set, metrics};
    for (int i = 0; i < 2; ++i) {
        set.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, Clock::now());
        proto::ReplicaStatus status;
        status.instance = "000000000000000" + std::to_string(i);
        status.state = proto::ReplicaState::kReady;
        status.seq = 1;
        status.sequences_max = 2;
        (void)set.on_report(i, status, Clock::now());
    }
    std::array<Ticket, 2> tickets;
    std::array<std::unique_ptr<Grant>, 2> grants;
    for (std::size_t i = 0; i < 2; ++i) {
        tickets[i].arrival = Clock::now();
        tickets[i].prompt_tokens = 100'000;
        asio::co_spawn(loop, dispatcher.acquire(tickets[i]),
                       [&grants, i](std::exception_ptr, auto one) { grants[i] = std::move(*one); });
    }
    while (!grants[1])  // ends by its timer; without it, by the test's time limit
        loop.run_one();
    ASSERT_TRUE(grants[0]);
    EXPECT_NE(grants[0]->replica, grants[1]->replica);
    EXPECT_GE(grants[1]->selected_at - grants[0]->selected_at, milliseconds(5));
}

}  // namespace
}  // namespace router
