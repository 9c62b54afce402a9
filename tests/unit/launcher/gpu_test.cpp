// Which cards the replicas get, what NVML says of them, and when a card counts as free: over a
// library that plays NVML from a file.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "deploy/launcher/gpu_choice.h"
#include "deploy/launcher/gpu_monitor.h"
#include "deploy/launcher/gpu_plan.h"

namespace deploy {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<GpuFacts> four_gpus() {
    std::vector<GpuFacts> gpus;
    for (int i = 0; i < 4; ++i) {
        const std::string digit = std::to_string(i);
        gpus.push_back({.index = i,
                        .uuid = "GPU-" + digit + digit + "-5",
                        .name = "H",
                        .pci = digit + "1:00",
                        .architecture = "9.0"});
    }
    return gpus;
}

std::vector<int> indices(const std::vector<GpuFacts>& gpus) {
    std::vector<int> all;
    for (const GpuFacts& gpu : gpus)
        all.push_back(gpu.index);
    return all;
}

Failure refusal_of(const std::vector<GpuFacts>& gpus, GpuWish wish) {
    wish.architectures = {"9.0"};
    const auto chosen = choose_gpus(gpus, wish);
    return chosen ? Failure{} : chosen.error();
}

TEST(GpuChoiceTest, VisibleDevicesAreReadAsTheDriverReadsThem) {
    const auto seen = [](const char* text) { return indices(visible_gpus(four_gpus(), text)); };
    EXPECT_THAT(seen(nullptr), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(seen(""), IsEmpty());
    EXPECT_THAT(seen("2,0"), ElementsAre(2, 0));
    EXPECT_THAT(seen("GPU-11, 3"), ElementsAre(1, 3));
    EXPECT_THAT(seen("1,-1,2"), ElementsAre(1)) << "what follows a wrong entry is ignored";
    EXPECT_THAT(seen("GPU-"), IsEmpty()) << "a beginning that several have";
    EXPECT_THAT(seen("MIG-1,0"), IsEmpty());
}

TEST(GpuChoiceTest, EachReplicaGetsACardByIndexUuidOrPciAndOneMayStandSeveralTimes) {
    GpuWish wish{.replicas = 3, .architectures = {"9.0"}};
    EXPECT_THAT(indices(*choose_gpus(four_gpus(), wish)), ElementsAre(0, 1, 2));
    wish.gpus = {"3", "GPU-00", "11:00"};
    EXPECT_THAT(indices(*choose_gpus(four_gpus(), wish)), ElementsAre(3, 0, 1));
    wish.gpus = {"0", "0", "0"};
    EXPECT_THAT(indices(*choose_gpus(four_gpus(), wish)), ElementsAre(0, 0, 0));
}

TEST(GpuChoiceTest, WhatCannotBeIsSaidInASentence) {
    EXPECT_THAT(refusal_of(four_gpus(), {.replicas = 5}).why, HasSubstr("there are 4"));
    EXPECT_THAT(refusal_of(four_gpus(), {.visible = "0", .replicas = 2}).why,
                HasSubstr("CUDA_VISIBLE_DEVICES"));
    EXPECT_THAT(refusal_of(four_gpus(), {.gpus = {"0"}, .replicas = 2}).what,
                HasSubstr("names 1 cards"));
    EXPECT_THAT(refusal_of(four_gpus(), {.gpus = {"9"}}).what, HasSubstr("'9'"));
    std::vector<GpuFacts> old = four_gpus();
    old[0].architecture = "7.0";
    EXPECT_EQ(refusal_of(old, {}).kind, FailureClass::kDriver);
    EXPECT_THAT(refusal_of(old, {}).why, HasSubstr("7.0, the kernels of this build are for 9.0"));
    old = four_gpus();
    old[0].is_mig = true;
    EXPECT_THAT(refusal_of(old, {}).why, HasSubstr("MIG"));
}

TEST(GpuPlanTest, ReplicasOnOneCardShareWhatIsFree) {
    std::vector<GpuFacts> gpus = {four_gpus()[0], four_gpus()[1], four_gpus()[0]};
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
    EXPECT_THAT(memory_shares_mib(gpus, {80 * kGiB, 80 * kGiB, 80 * kGiB}),
                ElementsAre(40 * 1024 - 768, 0, 40 * 1024 - 768));
    EXPECT_THAT(memory_shares_mib(gpus, {kGiB, kGiB, kGiB}), ElementsAre(1, 0, 1));
}

class NvmlTest : public testing::Test {
protected:
    void SetUp() override {
        path_ = testing::TempDir() + "fake-nvml-" + std::to_string(::getpid()) + ".json";
        ::setenv("QUADRIGA_NVML_PATH", FAKE_NVML, 1);
        ::setenv("QUADRIGA_FAKE_NVML", path_.c_str(), 1);
    }
    void TearDown() override {
        std::filesystem::remove(path_);
        ::unsetenv("QUADRIGA_NVML_PATH");
    }
    void script(const json& gpus, int init = 0) {
        std::ofstream(path_) << json{{"gpus", gpus}, {"init", init}}.dump();
    }
    std::string path_;
};

TEST_F(NvmlTest, TellsCardsAndWhatTheyShow) {
    script(
        {{{"uuid", "GPU-a"}, {"bus", "00000000:3B:00.0"}},
         {{"uuid", "GPU-b"}, {"watts", 212.5}, {"cap", 350}, {"celsius", 61}, {"used_mib", 1024}}});
    const auto nvml = open_nvml();
    ASSERT_TRUE(nvml) << nvml.error();
    ASSERT_EQ((*nvml)->gpus().size(), 2U);
    EXPECT_EQ((*nvml)->gpus()[0].uuid, "GPU-a");
    EXPECT_EQ((*nvml)->gpus()[0].pci, "3b:00");
    EXPECT_EQ((*nvml)->gpus()[0].architecture, "9.0");
    EXPECT_FALSE((*nvml)->read(0)->watts.has_value()) << "what is not told is not zero";
    const GpuReading reading = *(*nvml)->read(1);
    EXPECT_EQ(reading.watts, 212.5);
    EXPECT_EQ(reading.celsius, 61);
    EXPECT_EQ(reading.memory_used_bytes, std::uint64_t{1} << 30);
    EXPECT_FALSE(reading.joules_total.has_value()) << "the library lacks that function";
    script({{{"uuid", "GPU-a"}}, {{"uuid", "GPU-b"}, {"lost", true}}});
    EXPECT_FALSE((*nvml)->read(1).has_value());
}

TEST_F(NvmlTest, AMissingLibraryAndADriverThatIsNotLoadedAreSentences) {
    script(json::array(), 9);
    EXPECT_THAT(open_nvml().error(), HasSubstr("Driver Not Loaded"));
    ::setenv("QUADRIGA_NVML_PATH", "/no/such/library.so", 1);
    EXPECT_THAT(open_nvml().error(), HasSubstr("no NVIDIA driver"));
    ::setenv("QUADRIGA_NVML_PATH", "libc.so.6", 1);
    EXPECT_THAT(open_nvml().error(), HasSubstr("has no nvmlInit_v2"));
}

TEST_F(NvmlTest, ACardIsFreeWhenEnoughIsAndTheLastProcessIsGone) {
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
    const auto used = [&](int mib, json pids = json::array()) {
        script({{{"uuid", "GPU-a"}, {"total_mib", 80 * 1024}, {"used_mib", mib}, {"pids", pids}}});
    };
    used(100);
    auto nvml = open_nvml();
    ASSERT_TRUE(nvml);
    const auto monitor = make_gpu_monitor(*std::move(nvml), {{.index = 0, .uuid = "GPU-a"}});
    EXPECT_TRUE(monitor->measure(0, 60 * kGiB).is_enough);
    EXPECT_FALSE(monitor->measure(0, 90 * kGiB).is_enough);
    used(20 * 1024, {::getpid()});
    const MemoryReading held = monitor->measure(0, 10 * kGiB);
    EXPECT_FALSE(held.is_enough) << "free enough, but the last process lingers";
    EXPECT_THAT(held.note, HasSubstr("more in use than when idle"));
    EXPECT_THAT(held.note, HasSubstr("pid " + std::to_string(::getpid())));
    EXPECT_THAT(monitor->devices_of(::getpid()), ElementsAre("GPU-a"));
    used(600);
    EXPECT_TRUE(monitor->measure(0, 10 * kGiB).is_enough) << "within the margin";
}

TEST_F(NvmlTest, OnASharedCardOnlyWhatIsFreeCounts) {
    script({{{"uuid", "GPU-a"}, {"used_mib", 0}}});
    auto nvml = open_nvml();
    ASSERT_TRUE(nvml);
    const GpuFacts gpu{.index = 0, .uuid = "GPU-a"};
    const auto monitor = make_gpu_monitor(*std::move(nvml), {gpu, gpu});
    script({{{"uuid", "GPU-a"}, {"used_mib", 40 * 1024}}});
    EXPECT_TRUE(monitor->measure(1, std::uint64_t{10} << 30).is_enough);
}

}  // namespace
}  // namespace deploy
