// The lines of a request wait for the replica's word about how much it generated, and no longer
// than they may.
#include "router/access_log.h"

#include <sstream>

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace router {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Catches what is logged while it lives.
class CaughtLog {
public:
    CaughtLog() {
        auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text_);
        auto logger = std::make_shared<spdlog::logger>("caught", std::move(sink));
        logger->set_pattern("%v");
        spdlog::set_default_logger(std::move(logger));
    }
    ~CaughtLog() { spdlog::set_default_logger(before_); }
    CaughtLog(const CaughtLog&) = delete;
    CaughtLog& operator=(const CaughtLog&) = delete;
    std::string take() {
        std::string text = text_.str();
        text_.str("");
        return text;
    }

private:
    std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
    std::ostringstream text_;
};

struct Scene {
    CaughtLog caught;
    Metrics metrics{{.version = "1", .commit = "c", .config_digest = "d"}};
    DecisionRing ring;
    AccessLog log{metrics, ring};

    void end(const std::string& id, RequestRecord record) {
        log.note(id, std::move(record));
        proto::HttpAccess access;
        access.method = "POST";
        access.path = "/v1/chat/completions";
        access.request_id = id;
        access.status = 200;
        log.on_access(access);
    }
};

RequestRecord dispatched(const std::string& dispatch) {
    RequestRecord record;
    record.model = "foal";
    record.dispatch = dispatch;
    return record;
}

TEST(AccessLogTest, LinesWaitForTheGeneratedTokens) {
    Scene scene;
    scene.end("one", dispatched("x-1"));
    scene.end("two", dispatched("x-2"));
    EXPECT_THAT(scene.caught.take(), IsEmpty());
    EXPECT_EQ(scene.ring.size(), 2U) << "the ring waits for nothing";
    scene.log.on_generated("x-2", 412);
    scene.log.on_generated("x-9", 1);  // of nobody
    const std::string lines = scene.caught.take();
    EXPECT_THAT(lines, HasSubstr("\"generated\":412"));
    EXPECT_THAT(lines, HasSubstr("event=request request_id=two"));
    EXPECT_THAT(lines, HasSubstr(" generated=412"));
    EXPECT_THAT(lines, testing::Not(HasSubstr("one")));
    EXPECT_EQ(scene.ring.newest(0).request.generated_tokens, 412);
}

TEST(AccessLogTest, WhatTheGateRefusesIsTheClientsErrorWithItsOwnCode) {
    Scene scene;
    const auto outcome_of = [&scene](int status, std::optional<proto::GateReason> gate) {
        proto::HttpAccess access;
        access.status = status;
        access.gate = gate;
        access.fault = status == 500 ? "out of order" : "";
        scene.log.on_access(access);
        return scene.caught.take();
    };
    for (const int status : {400, 501, 505}) {
        EXPECT_THAT(outcome_of(status, proto::GateReason::kVersion),
                    HasSubstr("outcome=client_error"))
            << status;
    }
    EXPECT_THAT(outcome_of(504, {}), HasSubstr("outcome=upstream_stall"));
    EXPECT_THAT(outcome_of(500, {}), HasSubstr("outcome=upstream_error"));
    EXPECT_THAT(outcome_of(500, {}), HasSubstr("fault=\"out of order\""));
    (void)outcome_of(409, {});
    for (const char* code : {"501", "505", "409"}) {
        EXPECT_THAT(scene.metrics.text(), HasSubstr("code=\"" + std::string(code) + "\""));
    }
    for (int i = 0; i < proto::kErrorCodeCount; ++i) {
        (void)outcome_of(proto::error_info(static_cast<proto::ErrorCode>(i)).status, {});
    }
    EXPECT_THAT(scene.metrics.text(), testing::Not(HasSubstr("code=\"other\"")));
}

TEST(AccessLogTest, BeyondWhatMayWaitTheOldestGoWithoutTheirReport) {
    Scene scene;
    for (std::size_t i = 0; i <= AccessLog::kHeldMax; ++i)
        scene.end("r" + std::to_string(i), dispatched("x-" + std::to_string(i)));
    EXPECT_THAT(scene.caught.take(), HasSubstr("event=request request_id=r0 "));
    scene.log.on_generated("x-0", 5);  // has gone
    EXPECT_THAT(scene.caught.take(), IsEmpty());
    scene.log.on_generated("x-700", 6);  // from the middle
    EXPECT_THAT(scene.caught.take(), HasSubstr("event=request request_id=r700 "));
}

TEST(AccessLogTest, WithoutAReportTheyAreWrittenAllTheSame) {
    Scene scene;
    scene.end("one", dispatched("x-1"));
    scene.log.tick(Clock::now());
    EXPECT_THAT(scene.caught.take(), IsEmpty());
    scene.log.tick(Clock::now() + AccessLog::kReportWait);
    EXPECT_THAT(scene.caught.take(), HasSubstr("\"generated\":null"));
    scene.log.on_generated("x-1", 5);  // too late for the lines, not for the ring
    EXPECT_THAT(scene.caught.take(), IsEmpty());
    EXPECT_EQ(scene.ring.newest(0).request.generated_tokens, 5);
    scene.end("two", dispatched("x-2"));
    scene.log.write_held();
    EXPECT_THAT(scene.caught.take(), HasSubstr("request_id=two"));
}

TEST(AccessLogTest, WhatNoReportWillFollowIsWrittenAtOnce) {
    Scene scene;
    RequestRecord refused = dispatched("x-1");
    refused.outcome = Outcome::kClientError;
    scene.end("refused", std::move(refused));
    RequestRecord told = dispatched("x-2");
    told.generated_tokens = 3;
    scene.end("told", std::move(told));
    scene.end("never", RequestRecord());
    const std::string lines = scene.caught.take();
    for (const char* id : {"refused", "told", "never"})
        EXPECT_THAT(lines, HasSubstr(std::string("event=request request_id=") + id));
}

// Until a replica has told its model's name, a client's word stands there.
TEST(AccessLogTest, AModelsNameForgesNoFields) {
    Scene scene;
    RequestRecord record = dispatched("x-1");
    record.model = "m outcome=ok key=\"admin\"";
    record.outcome = Outcome::kClientError;
    scene.end("forged", std::move(record));
    EXPECT_THAT(scene.caught.take(), HasSubstr(R"( model="m outcome=ok key=\"admin\"" class=)"));
}

TEST(AccessLogTest, TheFirstTokensTimeIsThatOfTheDecisionRecord) {
    Scene scene;
    RequestRecord stream = dispatched("x-1");
    stream.outcome = Outcome::kClientError;  // so that nothing is waited for
    stream.ttft = std::chrono::milliseconds(95);
    scene.end("stream", std::move(stream));
    const std::string of_stream = scene.caught.take();
    EXPECT_THAT(of_stream, HasSubstr(" ttft_ms=95.0 "));
    EXPECT_THAT(of_stream, HasSubstr("\"ttft_ms\":95"));
    RequestRecord whole = dispatched("x-2");
    whole.outcome = Outcome::kClientError;
    whole.first_byte = std::chrono::milliseconds(2862);
    scene.end("whole", std::move(whole));
    const std::string of_whole = scene.caught.take();
    EXPECT_THAT(of_whole, testing::Not(HasSubstr("ttft_ms=")));
    EXPECT_THAT(of_whole, HasSubstr("\"ttft_ms\":null"));
}

TEST(AccessLogTest, NoMoreThanItsLimitWait) {
    Scene scene;
    for (std::size_t i = 0; i <= AccessLog::kHeldMax; ++i)
        scene.end("r" + std::to_string(i), dispatched("x-" + std::to_string(i)));
    const std::string lines = scene.caught.take();
    EXPECT_THAT(lines, HasSubstr("event=request request_id=r0 "));
    EXPECT_THAT(lines, testing::Not(HasSubstr("request_id=r1 ")));
    scene.log.write_held();
}

}  // namespace
}  // namespace router
