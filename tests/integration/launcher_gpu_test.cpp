// The launcher with GPUs, over fake children and a fake NVML: what each replica is given, what
// status and metrics show, and how starts end that cannot be.
#include <gmock/gmock.h>

#include "tests/integration/launcher_fixture.h"

namespace launcher_test {
namespace {

using testing::HasSubstr;

class LauncherGpuTest : public LauncherTest {
protected:
    void SetUp() override {
        LauncherTest::SetUp();
        ::setenv("QUADRIGA_NVML_PATH", FAKE_NVML, 1);
        ::setenv("QUADRIGA_FAKE_NVML", (folder_ + "/nvml.json").c_str(), 1);
        ::setenv("QUADRIGA_FAKE_ARCHITECTURES", "9.0", 1);
        ::unsetenv("CUDA_VISIBLE_DEVICES");
        gpus({gpu("GPU-aaaa"), gpu("GPU-bbbb")});
    }
    static json gpu(const std::string& uuid) {
        return {{"uuid", uuid}, {"watts", 80}, {"cap", 350}, {"celsius", 41}, {"used_mib", 512}};
    }
    void gpus(const json& list) { std::ofstream(folder_ + "/nvml.json") << json{{"gpus", list}}; }
};

TEST_F(LauncherGpuTest, EachReplicaSeesItsCardAloneAndStatusShowsIt) {
    script({{"replica 0", {{{"uuid", "GPU-aaaa"}}}}, {"replica 1", {{{"uuid", "GPU-bbbb"}}}}});
    up({"--backend", "cuda", "--disable-kernels", "matmul_mma"});
    ASSERT_TRUE(wait_until([&] { return is_state(1, "READY"); }));
    const json start = events("replica 1", "start").front();
    EXPECT_EQ(start["flags"]["--device"], "0");
    EXPECT_EQ(start["flags"]["--disable-kernels"], "matmul_mma");
    EXPECT_EQ(start["visible_devices"], "GPU-bbbb");
    const json now = status();
    EXPECT_EQ(now["replicas"][0]["gpu"]["uuid"], "GPU-aaaa");
    EXPECT_EQ(now["replicas"][0]["gpu"]["watts"], 80.0);
    EXPECT_EQ(now["replicas"][0]["gpu"]["celsius"], 41.0);
    EXPECT_EQ(command({"status"}, "table"), 0);
    EXPECT_THAT(read("table.out"), HasSubstr("80 W 41 C 512 MiB of 80 GiB"));
    EXPECT_EQ(command({"down"}), 0);
}

TEST_F(LauncherGpuTest, SeveralReplicasShareACard) {
    script({{"replica", {{{"uuid", "GPU-aaaa"}}}}});
    up({"--backend", "cuda", "--gpus", "0,0,0"}, 3);
    ASSERT_TRUE(wait_until([&] { return is_state(2, "READY"); }));
    const json flags = events("replica 2", "start").front()["flags"];
    EXPECT_EQ(flags["--device-memory-mib"], std::to_string((80 * 1024 - 512) / 3 - 768));
    EXPECT_EQ(command({"down"}), 0);
}

TEST_F(LauncherGpuTest, AReplicaOnAnotherCardIsAPlacementFailure) {
    script({{"replica", {{{"uuid", "GPU-cccc"}}}}});
    up({"--backend", "cuda"}, 1);
    EXPECT_EQ(wait_for_end(), 9);
    EXPECT_THAT(read("err"), HasSubstr("planned GPU-aaaa, opened GPU-cccc"));
}

TEST_F(LauncherGpuTest, StartsThatCannotBeAreSentencesWithTheirCodes) {
    up({"--backend", "cuda"}, 3);
    EXPECT_EQ(wait_for_end(), 2);
    EXPECT_THAT(read("err"), HasSubstr("the layout wants 3 GPUs"));
    json old = gpu("GPU-aaaa");
    old["major"] = 7;
    gpus(json::array({old}));
    up({"--backend", "cuda"}, 1);
    EXPECT_EQ(wait_for_end(), 10);
    EXPECT_THAT(read("err"), HasSubstr("compute capability 7.0"));
    ::setenv("QUADRIGA_FAKE_ARCHITECTURES", "", 1);
    up({"--backend", "cuda"}, 1);
    EXPECT_EQ(wait_for_end(), 10);
    EXPECT_THAT(read("err"), HasSubstr("is built without CUDA"));
    ::setenv("QUADRIGA_FAKE_ARCHITECTURES", "9.0", 1);
    ::setenv("QUADRIGA_NVML_PATH", "/no/such/library", 1);
    up({"--backend", "cuda"}, 1);
    EXPECT_EQ(wait_for_end(), 10);
    EXPECT_THAT(read("err"), HasSubstr("no NVIDIA driver"));
}

TEST_F(LauncherGpuTest, AutoTakesTheCpuWhereNoGpuServesAndSaysWhy) {
    ::setenv("QUADRIGA_NVML_PATH", "/no/such/library", 1);
    up({}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    EXPECT_EQ(events("replica 0", "start").front()["flags"]["--device"], "cpu");
    EXPECT_THAT(read("out"), HasSubstr("no GPU is used: there is no NVIDIA driver"));
    EXPECT_EQ(command({"down"}), 0);
}

}  // namespace
}  // namespace launcher_test
