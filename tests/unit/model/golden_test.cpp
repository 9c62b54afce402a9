// The golden checks themselves: right values pass, and every kind of wrong value is a miss.
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/golden/checks.h"

namespace golden {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(QUADRIGA_SOURCE_DIR) / "tests/golden";

Json document_of(const std::string& name) {
    std::ifstream stream(kFolder / (name + ".json"));
    return Json::parse(stream);
}

/// The first prompts only: enough for every comparison, and quick under sanitizers.
Report check(Json document, const std::string& name, std::size_t prompts = 3) {
    Json& list = document.at("prompts");
    while (list.size() > prompts)
        list.erase(list.size() - 1);
    auto session = ModelSession::open(kFolder / (name + ".gguf"), {.threads = 2});
    Report report;
    if (!session) {
        report.miss(session.error());
        return report;
    }
    check_prompts(document, **session, report);
    return report;
}

class GoldenModelTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenModelTest, AgreesWithTheIndependentImplementation) {
    const Report report = check(document_of(GetParam()), GetParam());
    EXPECT_TRUE(report.passed()) << report.misses.front();
    EXPECT_GT(report.error_max, 0.0) << "equal to the last bit: compared with itself?";
    EXPECT_LE(report.error_max, report.tolerance);
}

INSTANTIATE_TEST_SUITE_P(EachArchitecture, GoldenModelTest,
                         testing::Values("llama-tiny", "qwen2-tiny", "qwen3-tiny", "qwen35-odd"));

TEST(GoldenCheckTest, WrongLogitsAreAMiss) {
    Json document = document_of("llama-tiny");
    Json& logit = document.at("prompts")[1].at("last_logits")[7];
    logit = logit.get<double>() + 0.01;
    EXPECT_FALSE(check(document, "llama-tiny").passed());
}

TEST(GoldenCheckTest, AnotherGreedyTokenIsAMiss) {
    Json document = document_of("llama-tiny");
    Json& token = document.at("prompts")[2].at("greedy")[0];
    token = (token.get<int>() + 1) % 320;
    EXPECT_FALSE(check(document, "llama-tiny").passed());
}

TEST(GoldenCheckTest, WrongMtpLogitsAreAMiss) {
    Json document = document_of("qwen35-odd");
    Json& logit = document.at("prompts")[2].at("mtp_last_logits")[3];
    logit = logit.get<double>() - 0.01;
    EXPECT_FALSE(check(document, "qwen35-odd").passed());
}

TEST(GoldenCheckTest, NotANumberIsAMiss) {
    Report report;
    report.tolerance = 1.0;
    report.compare(std::nan(""), 0.0, "here");
    EXPECT_FALSE(report.passed());
}

TEST(GoldenCheckTest, AMissingModelIsReportedNotFatal) {
    EXPECT_FALSE(ModelSession::open(kFolder / "absent.gguf", {}).has_value());
}

}  // namespace
}  // namespace golden
