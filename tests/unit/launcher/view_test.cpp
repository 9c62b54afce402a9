// What the operator sees, from a simulated fleet: table, reasons, board rows and metrics.
#include "deploy/launcher/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/launcher/board.h"
#include "deploy/launcher/metrics.h"
#include "deploy/launcher/router_word.h"
#include "tests/unit/launcher/fleet_world.h"

namespace deploy {
namespace {

using std::chrono::seconds;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

FleetFacts facts_of(const FleetWorld& world) {
    FleetFacts facts{.url = "http://127.0.0.1:8080", .router_port = 8080};
    facts.started_at = world.now;
    for (std::size_t i = 0; i < world.fleet.replicas.size(); ++i) {
        facts.replicas.push_back({.device = "CPU-" + std::to_string(i)});
    }
    return facts;
}

TEST(ViewTest, TheTableTellsStateWorkAndWhatIsWaitedFor) {
    FleetWorld world(4);
    world.begin();
    world.say_ready(0);
    world.say(1, proto::HelloEvent{});
    world.exit(1, 4);
    world.say(2, proto::HelloEvent{});
    world.say_phase(2, ReplicaState::kLoading, 5 << 20, 10 << 20);
    FleetFacts facts = facts_of(world);
    facts.replicas[0].status = proto::ReplicaStatus{.step_age_ms = 12,
                                                    .running = 2,
                                                    .sequences_max = 8,
                                                    .kv_blocks_free = 69,
                                                    .kv_blocks_total = 100};
    facts.replicas[1].last_lines = {"the last line"};
    const nlohmann::json status = status_json(world.fleet, facts, Config{}, world.now);
    const std::string table = status_table(status);
    EXPECT_THAT(table, ContainsRegex("0 +CPU-0 +READY +00:00 +2/8 +31% +12 ms"));
    facts.replicas[0].status->step_age_ms = 61'000;
    const auto table_now = [&] {
        return status_table(status_json(world.fleet, facts, Config{}, world.now));
    };
    EXPECT_THAT(table_now(), ContainsRegex("2/8 +31% +61 s"));
    facts.replicas[0].status->running = 0;
    EXPECT_THAT(table_now(), ContainsRegex("0/8 +31% +idle"));
    EXPECT_THAT(table, HasSubstr("QUARANTINED"));
    EXPECT_THAT(table, HasSubstr("'quadriga why 1'"));
    EXPECT_THAT(table, HasSubstr("5.0 MiB of 10 MiB, holds the load lock"));
    EXPECT_THAT(table, HasSubstr("replica 2 holds the load lock"));
    const std::string why = why_text(status["replicas"][1]);
    EXPECT_THAT(why, HasSubstr("Q0412 model_file: it ended by itself with exit 4"));
    EXPECT_THAT(why, HasSubstr("quadriga retry 1"));
    EXPECT_THAT(why, HasSubstr("| the last line"));
    EXPECT_THAT(why_text(status["replicas"][0]), HasSubstr("has not failed"));
}

TEST(ViewTest, TheRoutersDoubtOfAReplicaIsShownAndOldNumbersAreNot) {
    FleetWorld world(2);
    world.begin();
    world.say_ready(0);
    world.say_ready(1);
    FleetFacts facts = facts_of(world);
    for (ReplicaFacts& replica : facts.replicas)
        replica.status = proto::ReplicaStatus{.step_age_ms = 6, .running = 1, .sequences_max = 4};
    world.fleet.replicas[1].answered_at = world.now - seconds(10);
    nlohmann::json status = status_json(world.fleet, facts, Config{}, world.now);
    EXPECT_THAT(status_table(status), ContainsRegex("1 +CPU-1 +READY .* silent 10 s +no answer"));
    const auto word = [](int index, bool is_announced, const char* state, int age_ms) {
        return nlohmann::json{{"replica", index},
                              {"url", "http://10.0.0.2:8101"},
                              {"announced", is_announced},
                              {"state", state},
                              {"state_ms", 3000.0},
                              {"breaker", "closed"},
                              {"report", {{"age_ms", age_ms}, {"running", 2}, {"waiting", 1}}}};
    };
    add_router_word(
        status, RouterWord{.replicas = {{"replicas",
                                         {word(0, true, "READY", 20), word(1, true, "DOWN", 10'000),
                                          word(2, false, "READY", 20)}}},
                           .queue = {{"requests", 5}}});
    const std::string table = status_table(status);
    EXPECT_THAT(table, ContainsRegex("0 +CPU-0 +READY"));
    EXPECT_THAT(table, ContainsRegex("1 +CPU-1 +DOWN +00:03.*no report for 10 s"));
    EXPECT_THAT(table, ContainsRegex("2 +http://10.0.0.2:8101 +READY.*added at the router"));
    EXPECT_THAT(table, HasSubstr("running 2   waiting 6"));
    EXPECT_THAT(why_text(status["replicas"][1]), HasSubstr("Replica 1 is DOWN"));
    EXPECT_THAT(why_text(status["replicas"][1]), Not(HasSubstr("has not failed")));
    status = status_json(world.fleet, facts, Config{}, world.now);
    add_router_word(status, std::nullopt);
    EXPECT_THAT(status_table(status), HasSubstr("does not answer on its admin socket"));
}

TEST(ViewTest, TheLastLinesOfTheProcessThatFailedStayWhenTheNextOneTalks) {
    FleetWorld world(1);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.exit(0, 1);
    FleetFacts facts = facts_of(world);
    facts.replicas[0].failure_lines = {"it hurts"};
    facts.replicas[0].last_lines = {"all is well"};
    const auto why = [&] {
        return why_text(status_json(world.fleet, facts, Config{}, world.now)["replicas"][0]);
    };
    EXPECT_THAT(why(),
                ContainsRegex("process that failed\n  . it hurts\nlast lines of its output"));
    EXPECT_THAT(why(), Not(HasSubstr("quadriga why")));
    facts.replicas[0].last_lines = facts.replicas[0].failure_lines;
    EXPECT_THAT(why(), Not(HasSubstr("last lines of its output")));
}

TEST(BoardTest, ShowsStateBytesAndTimePerReplica) {
    FleetWorld world(3);
    world.begin();
    world.say_ready(0);
    world.say(1, proto::HelloEvent{});
    world.say_phase(1, ReplicaState::kLoading, 50, 100);
    world.pass(seconds(3));
    const std::vector<std::string> rows = board_rows(world.fleet, world.now, false);
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_THAT(rows[0], HasSubstr("READY       [########################]"));
    EXPECT_THAT(rows[1], HasSubstr("LOADING     [############            ] 00:03  50 B of 100 B"));
    EXPECT_THAT(rows[2], HasSubstr("WAIT_LOCK   [                        ] 00:03"));
    world.say_phase(1, ReplicaState::kWarming, 1, 4);  // each phase has a bar of its own
    EXPECT_THAT(board_rows(world.fleet, world.now, false)[1],
                HasSubstr("WARMING     [######      "));
    EXPECT_THAT(rows[0], Not(HasSubstr("\x1b")));
    EXPECT_THAT(board_rows(world.fleet, world.now, true)[0], HasSubstr("\x1b[32m"));
}

TEST(MetricsTest, CarryStatesLoadTimesAndTheLock) {
    FleetWorld world(2);
    Metrics metrics(2, "1.2.3");
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.pass(seconds(4));
    std::string text = metrics.scrape(world.fleet, {}, world.now);
    EXPECT_THAT(text,
                HasSubstr("quadriga_launcher_replica_state{replica=\"0\",state=\"LOADING\"} 1"));
    EXPECT_THAT(text,
                HasSubstr("quadriga_launcher_replica_state{replica=\"0\",state=\"READY\"} 0"));
    EXPECT_THAT(text, HasSubstr("quadriga_launcher_load_lock_held_seconds 4"));
    EXPECT_THAT(text, HasSubstr("load_progress_age_seconds{replica=\"0\"} 4"));
    EXPECT_THAT(text, HasSubstr("quadriga_launcher_build_info{version=\"1.2.3\"} 1"));
    world.exit(0, 1);
    metrics.count_restart(0, "internal");
    world.exit(1, 4);
    text = metrics.scrape(world.fleet, {}, world.now);
    EXPECT_THAT(text, HasSubstr("load_seconds{phase=\"LOADING\",replica=\"0\"} 4"));
    EXPECT_THAT(text, HasSubstr("replica_restarts_total{reason=\"internal\",replica=\"0\"} 1"));
    EXPECT_THAT(text, HasSubstr("quadriga_launcher_load_lock_held_seconds 0"));
    EXPECT_THAT(text, Not(HasSubstr("load_progress_age_seconds{")));
}

TEST(ClockTextTest, ReadsWell) {
    EXPECT_EQ(clock_text(0), "00:00");
    EXPECT_EQ(clock_text(134), "02:14");
    EXPECT_EQ(clock_text(3734), "1:02:14");
    EXPECT_EQ(clock_text(-5), "00:00");
}

}  // namespace
}  // namespace deploy
