// Cases R2, R11 and R12 of the router's specification at their full numbers: a thousand requests
// that are cancelled or fail, thousands of clients at once with few descriptors, scrapes of a fleet
// of which half does not answer. Nothing here depends on how fast the machine is: what is asserted
// are counts, codes and gauges.
#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "proto/http_client.h"
#include "tests/integration/router_announcer.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kChat = "/v1/chat/completions";

/// The lowest value that any gauge of work has in this text.
double lowest_gauge(const std::string& text) {
    double lowest = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        const bool is_work = line.rfind("quadriga_router_", 0) == 0 &&
                             (line.find("inflight") != std::string::npos ||
                              line.find("queue_requests") != std::string::npos ||
                              line.find("_bytes ") != std::string::npos);
        if (is_work)
            lowest = std::min(lowest, std::strtod(line.c_str() + line.rfind(' '), nullptr));
    }
    return lowest;
}

/// Reads the gauges over and over while a test makes them move.
class GaugeWatch {
public:
    explicit GaugeWatch(const Router& router)
        : thread_([this, url = router.url("/metrics")] {
              while (!is_over_) {
                  lowest_ = std::min(lowest_, lowest_gauge(proto::http_get(url, kPatience).body));
                  ++looks_;
              }
          }) {}
    ~GaugeWatch() {
        if (thread_.joinable()) (void)end();
    }
    GaugeWatch(const GaugeWatch&) = delete;
    GaugeWatch& operator=(const GaugeWatch&) = delete;

    /// The lowest value seen.
    double end() {
        is_over_ = true;
        thread_.join();
        return lowest_;
    }
    [[nodiscard]] int looks() const { return looks_; }

private:
    std::atomic<bool> is_over_{false};
    double lowest_ = 0;  // the thread's until end()
    int looks_ = 0;
    std::thread thread_;
};

TEST(RouterCrowdTest,
     R2_AThousandCancelledOrFailedRequestsLeaveEveryGaugeAtZeroAndNoneWasNegative) {
    const std::vector<std::string> base = {"--ttft-ms", "10",          "--token-ms",
                                           "3",         "--events-on", "break"};
    const std::vector<std::vector<std::string>> faults = {
        {},
        {"--reset-after-events", "3"},
        {"--truncate-after-events", "2"},
        {"--refuse", "500", "--refuse-on", "break"}};
    std::vector<std::unique_ptr<Fake>> fakes;
    for (int i = 0; i < 4; ++i) {
        std::vector<std::string> flags = base;
        const auto& own = faults[static_cast<std::size_t>(i)];
        flags.insert(flags.end(), own.begin(), own.end());
        fakes.push_back(std::make_unique<Fake>(i, flags));
    }
    Fleet fleet(0);  // its check of gauges; its router is replaced by one over these replicas
    fleet.router = std::make_unique<Router>(replica_flags(fakes));
    for (int i = 0; i < 4; ++i)
        ASSERT_TRUE(fleet.router->wait_state(i, "READY"));
    GaugeWatch watch(*fleet.router);
    const unsigned seed = 20'261'130;
    std::mt19937 random(seed);
    int complete = 0;
    int failed = 0;
    for (int wave = 0; wave < 10; ++wave) {
        std::vector<std::string> bodies;
        std::vector<milliseconds> cancel_after;
        for (int i = 0; i < 100; ++i) {
            const bool is_stream = random() % 2 == 0;
            bodies.push_back(chat_body(random() % 3 == 0 ? "break" : "cancel", is_stream));
            cancel_after.emplace_back(random() % 4 == 0 ? 60'000 : random() % 120);
        }
        for (const Answer& answer : post_all(fleet.router->port(), kChat, bodies, cancel_after)) {
            if (!answer.is_complete) continue;
            const bool is_good =
                answer.status == 200 && answer.body.find("event: error") == std::string::npos;
            ++(is_good ? complete : failed);
            EXPECT_THAT(answer.status, testing::AnyOf(200, 429, 500, 502, 503, 504));
        }
        EXPECT_EQ(fleet.wait_idle(), "") << "seed " << seed << " wave " << wave;
    }
    EXPECT_GE(watch.end(), 0) << "no gauge was ever negative";
    EXPECT_GE(watch.looks(), 10);
    EXPECT_GE(complete, 50);
    EXPECT_GE(failed, 1) << "failures were among them";
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200);
}

/// Sets this process's limit of descriptors, which children inherit; back at the end.
class DescriptorLimit {
public:
    explicit DescriptorLimit(rlim_t count) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit now = before_;
        now.rlim_cur = std::min(count, before_.rlim_max);
        ::setrlimit(RLIMIT_NOFILE, &now);
    }
    ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    DescriptorLimit(const DescriptorLimit&) = delete;
    DescriptorLimit& operator=(const DescriptorLimit&) = delete;

private:
    rlimit before_{};
};

TEST(RouterCrowdTest, R11_ThousandsOfClientsFillTheQueueAndTheRestIsToldWhenToComeBack) {
    // 32 slots, four places ahead, 128 in the queue; and fewer descriptors than clients.
    Fleet few(4, {"--ttft-ms", "1500"});
    Fleet* const fleet = &few;
    few.router = std::make_unique<Router>(
        replica_flags(few.fakes), std::vector<Child::Inherited>{},
        std::vector<std::string>{"/usr/bin/prlimit", "--nofile=1000:1000"});
    for (int i = 0; i < 4; ++i)
        ASSERT_TRUE(few.router->wait_state(i, "READY"));
    const DescriptorLimit of_clients(RLIM_INFINITY);
    for (const std::size_t clients : {2048U, 4096U}) {
        const std::vector<std::string> bodies(clients, chat_body("hi", false));
        std::size_t served = 0;
        std::size_t refused = 0;
        for (const Answer& answer : post_all(fleet->router->port(), kChat, bodies)) {
            if (answer.status == 200) {
                ++served;
                continue;
            }
            ASSERT_EQ(answer.status, 429) << answer.body;
            ++refused;
            EXPECT_THAT(answer.body, HasSubstr("\"queue_full\""));
            const int retry_after = std::atoi(answer.header("retry-after").c_str());
            EXPECT_GE(retry_after, 1);
            EXPECT_LE(retry_after, 60);
        }
        std::cout << "[ MEASURED ] " << clients << " clients: " << served << " served, " << refused
                  << " told to come back\n";
        EXPECT_EQ(served + refused, clients) << "everybody got an answer";
        EXPECT_GE(served, 32U + 128U);
        EXPECT_EQ(fleet->wait_idle(), "");
    }
    for (int i = 0; i < 4; ++i) {
        const std::string label = "{replica=\"" + std::to_string(i) + "\"}";
        EXPECT_EQ(fleet->router->metric("quadriga_router_breaker_state" + label), 0);
    }
    EXPECT_EQ(post(fleet->router->port(), kChat, chat_body("hi", false)).status, 200);
}

TEST(RouterCrowdTest, R12_ScrapesWhileOneIsDownAndOneLoadsTouchNothing) {
    // Replica 2 is killed; 3 is announced as loading, and its process answers as one does then.
    Announcer announcer;
    std::vector<std::unique_ptr<Fake>> fakes;
    for (int i = 0; i < 4; ++i)
        fakes.push_back(std::make_unique<Fake>(i));
    Router router({"--announce-fd", "10"}, {announcer.inherited()});
    for (int i = 0; i < 4; ++i) {
        const Fake& fake = *fakes[static_cast<std::size_t>(i)];
        const auto state = i == 3 ? proto::ReplicaState::kLoading : proto::ReplicaState::kReady;
        announcer.say(fake, i, state, fake.instance());
    }
    for (int i = 0; i < 3; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    while (get(router.port(), "/info").body.find("STARTING") == std::string::npos) {
    }
    fakes[2]->process().signal(SIGKILL);
    ASSERT_TRUE(router.wait_state(2, "DOWN"));
    std::string all;
    milliseconds best{1'000'000};
    for (int i = 0; i < 10;
         ++i) {  // the router's own time is that of the best; the rest is others'
        const auto began = std::chrono::steady_clock::now();
        all = get(router.port(), "/metrics/all").body;
        const auto took = std::chrono::steady_clock::now() - began;
        best = std::min(best, std::chrono::duration_cast<milliseconds>(took));
        EXPECT_EQ(get(router.port(), "/metrics").status, 200);
    }
    std::cout << "[ MEASURED ] /metrics/all with one replica down and one loading: " << best.count()
              << " ms\n";
    EXPECT_LT(best, milliseconds(500)) << "50 ms, and room for a loaded machine";
    for (const int up : {0, 1}) {
        const std::string label = "{replica=\"" + std::to_string(up) + "\"} ";
        EXPECT_THAT(all, HasSubstr("quadriga_router_replica_up" + label + "1"));
        EXPECT_THAT(all, HasSubstr("quadriga_replica_requests_running" + label));
    }
    for (const int not_up : {2, 3}) {
        const std::string label = "{replica=\"" + std::to_string(not_up) + "\"} ";
        EXPECT_THAT(all, HasSubstr("quadriga_router_replica_up" + label + "0"));
    }
    EXPECT_THAT(all, Not(HasSubstr("quadriga_replica_requests_running{replica=\"2\"}")));
    for (const int alive : {0, 1, 3}) {
        EXPECT_EQ(fakes[static_cast<std::size_t>(alive)]->arrivals(), 0U) << "no work for a scrape";
    }
    EXPECT_THAT(get(router.port(), "/info").body, HasSubstr("STARTING")) << "nobody was woken";
}

}  // namespace
}  // namespace fleet
