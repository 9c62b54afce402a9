// What the launcher knows of its host: port holders, processes by identity, locks, leftovers,
// memory, cores, model files. Uses this process, its children and a temporary folder.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/launcher/address.h"
#include "deploy/launcher/control.h"
#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/failure.h"
#include "deploy/launcher/output_log.h"
#include "deploy/launcher/port_holder.h"
#include "deploy/launcher/replica_memory.h"
#include "deploy/launcher/runtime_dir.h"
#include "deploy/launcher/sockets.h"
#include "deploy/launcher/spawn.h"

namespace deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class HostTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = testing::TempDir() + "quadriga-host-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    void write(const std::string& name, const std::string& text) {
        std::ofstream(folder_ + "/" + name) << text;
    }
    std::string folder_;
};

TEST(PortHolderTest, FindsOnlyListenersOfThePort) {
    const std::string text =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout "
        "inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 111 1 0\n"
        "   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 222 1 0\n"
        "   2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 333 1 0\n"
        "   3: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A "
        "00000000:00000000 00:00000000 00000000 0 0 444 1 0\n"
        "   4: broken\n";
    EXPECT_THAT(listening_inodes(text, 8080), ElementsAre(111, 444));
    EXPECT_THAT(listening_inodes(text, 9), IsEmpty());
    EXPECT_THAT(listening_inodes("", 8080), IsEmpty());
}

TEST(PortHolderTest, ATakenPortNamesThisProcess) {
    const ListenSocket first = listen_tcp("127.0.0.1", 0, "test");
    try {
        listen_tcp("127.0.0.1", first.port, "router");
        FAIL() << "the port was taken";
    } catch (const StartError& error) {
        EXPECT_EQ(exit_code_of(error.failure().kind), 6);
        EXPECT_THAT(error.failure().why, HasSubstr("pid " + std::to_string(::getpid())));
        EXPECT_THAT(error.failure().why, HasSubstr("started 2"));
    }
}

TEST(ShownAddressTest, IsOneThatCanBeConnectedTo) {
    Config config;
    config.host = "127.0.0.1";
    EXPECT_EQ(shown_address(config, 8080).url, "http://127.0.0.1:8080");
    EXPECT_EQ(shown_address(config, 8080).elsewhere, "");
    config.host = "0.0.0.0";
    EXPECT_EQ(shown_address(config, 8080).url, "http://127.0.0.1:8080");
    EXPECT_NE(shown_address(config, 8080).elsewhere, "http://0.0.0.0:8080");
    config.host = "::";
    EXPECT_EQ(shown_address(config, 8080).url, "http://[::1]:8080");
    config.host = "192.0.2.7";
    EXPECT_EQ(shown_address(config, 8080).url, "http://192.0.2.7:8080");
}

TEST(PortHolderTest, RefusesNamesAsAddresses) {
    EXPECT_THROW(listen_tcp("localhost", 0, "router"), StartError);
    EXPECT_THROW(listen_tcp("", 0, "router"), StartError);
    EXPECT_THROW(listen_tcp("203.0.113.7", 0, "router"), StartError);  // not an address of ours
}

TEST(SpawnTest, AProgramThatIsNotThereIsAnError) {
    SpawnRequest request{.program = "/nowhere/program"};
    request.output_fd = STDERR_FILENO;
    EXPECT_THROW(spawn(request), std::system_error);
}

TEST(SpawnTest, ProcessesAreNamedByPidAndStartTime) {
    EXPECT_NE(start_ticks_of(::getpid()), 0U);
    EXPECT_EQ(start_ticks_of(0x3fffffff), 0U);
    SpawnRequest request{.program = "/bin/sleep", .argv = {"1000"}};
    request.output_fd = STDERR_FILENO;
    const SpawnedProcess process = spawn(request);
    EXPECT_NE(start_ticks_of(process.pid), 0U);
    EXPECT_TRUE(send_signal(process, SIGKILL));
    ASSERT_EQ(::waitpid(process.pid, nullptr, 0), process.pid);
    EXPECT_EQ(start_ticks_of(process.pid), 0U);
    EXPECT_FALSE(send_signal(process, SIGKILL));
}

TEST_F(HostTest, OneFileLockHasOneHolder) {
    FileLock first(folder_ + "/lock");
    FileLock second(folder_ + "/lock");
    EXPECT_TRUE(first.try_take("the first"));
    EXPECT_FALSE(second.try_take("the second"));
    EXPECT_EQ(second.holder(), "the first");
    first.drop();
    EXPECT_TRUE(second.try_take("the second"));
    EXPECT_FALSE(first.try_take("the first"));
}

TEST_F(HostTest, TheRecordSurvivesAndGarbageIsNoRecord) {
    const FleetRecord record{.launcher = {"launcher", 10, 20},
                             .url = "http://127.0.0.1:1",
                             .children = {{"router", 11, 21}, {"replica 0", 12, 22}}};
    ASSERT_TRUE(write_record(folder_, record));
    const auto read = read_record(folder_);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->launcher.start_ticks, 20U);
    EXPECT_EQ(read->children.at(1).name, "replica 0");
    for (const char* garbage : {"", "{", "[]", "{\"launcher\":1}", "\xff\xfe"}) {
        write("state.json", garbage);
        EXPECT_FALSE(read_record(folder_).has_value()) << garbage;
    }
    remove_record(folder_);
    EXPECT_FALSE(read_record(folder_).has_value());
}

TEST_F(HostTest, LeftoversAreKilledOnlyByIdentity) {
    SpawnRequest request{.program = "/bin/sleep", .argv = {"1000"}};
    request.output_fd = STDERR_FILENO;
    const SpawnedProcess process = spawn(request);
    const unsigned long long ticks = start_ticks_of(process.pid);
    FleetRecord record;
    record.children = {{"somebody else", process.pid, ticks + 1}};  // a reused pid
    EXPECT_THAT(kill_leftovers(record), IsEmpty());
    EXPECT_EQ(start_ticks_of(process.pid), ticks);
    record.children = {{"replica 0", process.pid, ticks}, {"gone", 0x3fffffff, 5}, {"init", 1, 1}};
    EXPECT_EQ(kill_leftovers(record).size(), 1U);
    EXPECT_EQ(::waitpid(process.pid, nullptr, 0), process.pid);
}

TEST_F(HostTest, MemoryIsEnoughWithATenthToSpare) {
    write("meminfo", "MemTotal:  9999999 kB\nMemFree: 1 kB\nMemAvailable:    1100 kB\n");
    write("vmstat", "nr_free_pages 5\noom_kill 3\n");
    const auto monitor = make_cpu_monitor(folder_);
    EXPECT_TRUE(monitor->measure(0, 1000 * 1024).is_enough);
    EXPECT_FALSE(monitor->measure(0, 1001 * 1024).is_enough);
    EXPECT_EQ(monitor->oom_kills(), 3U);
    const auto blind = make_cpu_monitor(folder_ + "/nowhere");
    EXPECT_FALSE(blind->measure(0, 1).is_enough);
    EXPECT_EQ(blind->oom_kills(), 0U);
}

TEST_F(HostTest, AModelIsAllItsShards) {
    write("m-00001-of-00002.gguf", "GGUF5");
    try {
        model_bytes(folder_ + "/m-00001-of-00002.gguf");
        FAIL() << "a shard is missing";
    } catch (const StartError& error) {
        EXPECT_EQ(exit_code_of(error.failure().kind), 4);
        EXPECT_THAT(error.failure().what, HasSubstr("00002-of-00002"));
    }
    write("m-00002-of-00002.gguf", "678");
    EXPECT_EQ(model_bytes(folder_ + "/m-00001-of-00002.gguf"), 8U);
    EXPECT_THROW(model_bytes(folder_), StartError);
    EXPECT_THROW(model_bytes(folder_ + "/nothing.gguf"), StartError);
}

TEST_F(HostTest, AFileThatIsNoModelIsSaidSoAtOnce) {
    for (const char* content : {"", "GGU", "# README of something else"}) {
        write("m.gguf", content);
        try {
            model_bytes(folder_ + "/m.gguf");
            FAIL() << "not a model: " << content;
        } catch (const StartError& error) {
            EXPECT_EQ(exit_code_of(error.failure().kind), 4);
            EXPECT_THAT(error.failure().why, HasSubstr("does not begin with"));
        }
    }
}

TEST_F(HostTest, LongRuntimeFoldersAreRefusedNotCut) {
    EXPECT_THROW(listen_unix(folder_ + "/" + std::string(120, 'x')), StartError);
}

TEST_F(HostTest, TheKeyFileIsPrivate) {
    const std::string key = make_internal_key();
    EXPECT_EQ(key.size(), 64U);
    EXPECT_NE(key, make_internal_key());
    write_key_file(folder_, key);
    const auto rights = std::filesystem::status(folder_ + "/internal.key").permissions();
    EXPECT_EQ(rights, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(ControlTest, OnlyRootAndOwnUserMayCommand) {
    EXPECT_TRUE(may_command(0, 0));
    EXPECT_TRUE(may_command(::geteuid(), 0xfffe));
    EXPECT_FALSE(may_command(::geteuid() + 4321, 0xfffe));
}

TEST(CoreSetsTest, AreDisjointOrNotPinnedAtAll) {
    EXPECT_THAT(core_sets({0, 1, 2, 3, 4}, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
    EXPECT_THAT(core_sets({4, 7}, 2), ElementsAre(ElementsAre(4), ElementsAre(7)));
    EXPECT_THAT(core_sets({0, 1}, 4), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty()));
    EXPECT_FALSE(usable_cpus().empty());
}

TEST(OutputLogTest, KeepsTheNewestLinesWithinItsBound) {
    OutputLog log;
    EXPECT_THAT(log.feed("a\nb"), ElementsAre("a"));
    EXPECT_THAT(log.feed("c\n\n"), ElementsAre("bc", ""));
    for (int i = 0; i < 10'000; ++i)
        log.feed("line " + std::to_string(i) + "\n");
    EXPECT_LE(log.ring_bytes(), OutputLog::kRingBytesMax);
    EXPECT_THAT(log.last(2), ElementsAre("line 9998", "line 9999"));
    log.feed("half");
    EXPECT_EQ(log.finish(), "half");
    EXPECT_THAT(log.last(1), ElementsAre("half"));
}

TEST(OutputLogTest, CutsEndlessLinesAndControlBytes) {
    OutputLog log;
    const auto lines = log.feed(std::string(1'000'000, 'x') + "\n\x1b[31mred\r\n");
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0].size(), OutputLog::kLineBytesMax);
    EXPECT_EQ(lines[1], "?[31mred");
}

TEST(BytesTextTest, ReadsWell) {
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(bytes_text(1023), "1023 B");
    EXPECT_EQ(bytes_text(1536), "1.5 KiB");
    EXPECT_EQ(bytes_text(31ULL << 20), "31 MiB");
}

TEST(ReplicaMemoryTest, IsWhatTheProgramSaysAndNothingElse) {
    const std::string good =
        R"({"memory":{"context":4096,"sequences":4,"kv_tokens_least":4096,"kv_bytes_least":1048576,)"
        R"("kv_tokens_most":16384,"kv_bytes_most":4194304,"state_bytes":2097152}})";
    const auto memory = parse_replica_memory("a warning\n" + good + "\n");
    ASSERT_TRUE(memory.has_value());
    EXPECT_EQ(memory->least_bytes(), 3U << 20U);
    EXPECT_EQ(to_text(*memory),
              "KV 1.0 MiB for a context of 4096 tokens, up to 4.0 MiB for 4 of them; recurrent "
              "states 2.0 MiB");
    ReplicaMemory fixed = *memory;
    fixed.kv_tokens_least = fixed.kv_tokens_most;
    fixed.kv_bytes_least = fixed.kv_bytes_most;
    fixed.state_bytes = 0;
    EXPECT_EQ(to_text(fixed), "KV 4.0 MiB for 16384 tokens in all");
    for (const std::string& wrong :
         {std::string(), std::string("{}"), std::string(R"({"memory":7})"),
          std::string(R"({"memory":{"context":4096}})"), good.substr(0, good.size() - 2),
          std::string(good).replace(good.find("4194304"), 7, "-4"),
          std::string(good).replace(good.find("4194304"), 7, "18446744073709551615")}) {
        EXPECT_FALSE(parse_replica_memory(wrong).has_value()) << wrong;
    }
}

}  // namespace
}  // namespace deploy
