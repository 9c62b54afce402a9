// What keeps a request from a replica that has a free slot: KV memory that is taken or spoken for,
// and the cap on long prompts, which counts GPUs. The real router in front of scripted replicas.
#include <gmock/gmock.h>

#include "proto/http_client.h"
#include "proto/json.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
const std::string kWaiting = "quadriga_router_queue_requests{class=\"default\"}";

/// A chat of about 4,000 tokens whose first token never comes; each of another text, since nothing
/// of it shall be in a cache.
std::string endless_prefill(char letter) {
    return chat_body("ttft_ms=600000 " + std::string(4000 * 7 / 2, letter), true, 300);
}

std::size_t arrivals(const Fleet& fleet) {
    std::size_t sum = 0;
    for (const auto& fake : fleet.fakes)
        sum += fake->arrivals();
    return sum;
}

void wait_arrivals(const Fleet& fleet, std::size_t count) {
    while (arrivals(fleet) < count) {  // each look is a round trip
    }
}

/// Waits until the router has a report of every replica that counts a prompt of ours.
void wait_reports(const Fleet& fleet) {
    const auto url = fleet.router->url("/dashboard/state");
    while (proto::http_get(url, kPatience).body.find("\"queued_tokens\":0") != std::string::npos) {
    }
}

TEST(RouterMemoryTest, APromptWithoutRoomInKvMemoryWaitsWhileAShortOnePasses) {
    // Room for 6,400 tokens each, and for one prompt of 4,000 with 256 of its answer.
    Fleet fleet(2, {"--kv-blocks", "100"});
    const int port = fleet.router->port();
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 2; ++i) {
        clients.push_back(std::make_unique<RawClient>(port));
        clients.back()->post(kChat, endless_prefill(static_cast<char>('a' + i)));
        wait_arrivals(fleet, clients.size());
    }
    EXPECT_EQ(fleet.fakes[0]->arrivals(), 1U);
    wait_reports(fleet);  // they know of the prompts, and have no memory in use yet
    RawClient third(port);
    third.post(kChat, endless_prefill('z'));
    while (fleet.router->metric(kWaiting) != 1) {
    }
    EXPECT_EQ(post(port, kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(arrivals(fleet), 3U) << "the long one still waits";
    clients.pop_back();
    wait_arrivals(fleet, 4);
    EXPECT_EQ(fleet.router->metric(kWaiting), 0);
}

TEST(RouterMemoryTest, AReplicaOfSeveralGpusCountsAsThatManyInTheCapOnLongPrompts) {
    for (const bool is_wide : {false, true}) {
        Fleet fleet(2, {"--prefill-rate", "1000", "--gpus", is_wide ? "2" : "1"},
                    {"--big-prefills-max", "2", "--big-prefill-stagger-ms", "0"});
        std::vector<std::unique_ptr<RawClient>> clients;
        for (int i = 0; i < 2; ++i) {
            clients.push_back(std::make_unique<RawClient>(fleet.router->port()));
            clients.back()->post(kChat, endless_prefill(static_cast<char>('a' + i)));
            if (i == 0) wait_arrivals(fleet, 1);
        }
        if (is_wide) {
            while (fleet.router->metric(kWaiting) != 1) {
            }
            EXPECT_EQ(arrivals(fleet), 1U) << "two GPUs are busy with the first";
            clients.front()->reset();
        }
        wait_arrivals(fleet, 2);
    }
}

}  // namespace
}  // namespace fleet
