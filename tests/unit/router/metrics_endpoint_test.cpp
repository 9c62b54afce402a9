// /metrics/all: labels are added where they lack, families stay together.
#include "router/metrics_endpoint.h"

#include <gmock/gmock.h>

namespace router {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MetricsEndpointTest, GivesEverySampleTheRoutersNumberOfItsReplica) {
    EXPECT_EQ(with_replica_label("# HELP a b\na 1\na{x=\"y\"} 2\na{} 3\n"
                                 "a{replica=\"7\"} 4\na{x=\"y\",replica=\"7\"} 5\n",
                                 "2"),
              "# HELP a b\na{replica=\"2\"} 1\na{replica=\"2\",x=\"y\"} 2\na{replica=\"2\"} 3\n"
              "a{replica=\"2\"} 4\na{x=\"y\",replica=\"2\"} 5\n");
    EXPECT_EQ(with_replica_label("a{my_replica=\"1\"} 1\n", "2"),
              "a{replica=\"2\",my_replica=\"1\"} 1\n");
    EXPECT_EQ(with_replica_label("", "2"), "");
}

TEST(MetricsEndpointTest, PutsTheSamplesOfOneFamilyTogether) {
    const std::string one =
        "# HELP a first\n# TYPE a gauge\na{replica=\"0\"} 1\n# TYPE b counter\nb 1\n";
    const std::string two =
        "# HELP a second\n# TYPE a gauge\na{replica=\"1\"} 2\n# TYPE c gauge\nc 3\n";
    EXPECT_EQ(merge_expositions({one, two}),
              "# HELP a first\n# TYPE a gauge\na{replica=\"0\"} 1\na{replica=\"1\"} 2\n"
              "# TYPE b counter\nb 1\n# TYPE c gauge\nc 3\n");
}

TEST(MetricsEndpointTest, AHistogramStaysWithItsFamily) {
    const std::string text = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n";
    EXPECT_EQ(merge_expositions({text, text}),
              "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n"
              "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n");
}

TEST(MetricsTest, WhatEndsAfterItsReplicaWasRemovedShowsNowhere) {
    Metrics metrics({.version = "1", .config_digest = "d"});
    ReplicaSeries& kept = metrics.replica(2);
    kept.decisions.at(0)->Increment();
    EXPECT_THAT(metrics.text(), HasSubstr("replica=\"2\""));
    metrics.forget_replica(2);
    metrics.forget_replica(2);
    metrics.forget_replica(7);
    kept.upstream_requests.at(0)->Increment();  // an attempt that was still running
    kept.upstream_inflight->Set(1);
    metrics.replica(2).status_fallback->Increment();
    EXPECT_EQ(&metrics.replica(2), &kept);
    EXPECT_THAT(metrics.text(), Not(HasSubstr("replica=\"2\"")));
}

TEST(MetricsTest, EverySeriesHasHelpAndTheInflightGaugeReturnsToZero) {
    Metrics metrics({.version = "1", .config_digest = "d"});
    {
        InflightGauge gauge(metrics, Phase::kQueued);
        gauge.enter(Phase::kDecode);
        EXPECT_EQ(metrics.requests_inflight[2]->Value(), 1);
    }
    for (const auto* gauge : metrics.requests_inflight)
        EXPECT_EQ(gauge->Value(), 0);
    metrics.replica(3).up->Set(1);
    metrics.count_request(Endpoint::kChatCompletions, 200, Outcome::kOk);
    metrics.count_request(Endpoint::kOther, 777, Outcome::kRejected);
    const std::string text = metrics.text();
    EXPECT_NE(text.find("quadriga_router_replica_up{replica=\"3\"} 1"), std::string::npos);
    EXPECT_NE(text.find("code=\"other\""), std::string::npos);
    for (std::size_t at = text.find("# TYPE "); at != std::string::npos;
         at = text.find("# TYPE ", at + 1)) {
        const std::string name = text.substr(at + 7, text.find(' ', at + 7) - at - 7);
        EXPECT_NE(text.find("# HELP " + name + " "), std::string::npos) << name;
    }
}

}  // namespace
}  // namespace router
