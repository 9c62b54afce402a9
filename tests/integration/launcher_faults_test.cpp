// Faulty replicas under the real launcher: stalls, lies, crash loops, floods, wedges. One bad
// replica never stops the others.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/integration/launcher_fixture.h"

namespace launcher_test {
namespace {

using testing::HasSubstr;

TEST_F(LauncherTest, ACrashLoopEndsInQuarantineAndRetryCuresIt) {
    const json crash = {{"end_in", "LOADING"}};
    script({{"replica 1", {crash, crash, crash, json::object()}}});
    up({}, 3);
    ASSERT_TRUE(wait_until([&] { return is_state(1, "QUARANTINED"); }));
    ASSERT_TRUE(wait_for("replica 2", "ready"));
    EXPECT_EQ(events("replica 1", "start").size(), 3U);
    EXPECT_EQ(command({"why", "1"}), 0);
    EXPECT_THAT(read("command.out"), HasSubstr("3 failures within "));
    EXPECT_THAT(read("command.out"), HasSubstr("last words on stderr"));
    EXPECT_THAT(read("command.out"), HasSubstr("quadriga retry 1"));
    EXPECT_EQ(command({"retry", "1"}), 0);
    EXPECT_TRUE(wait_for("replica 1", "ready"));
    EXPECT_EQ(command({"retry", "0"}), 2);
    EXPECT_THAT(read("command.err"), HasSubstr("READY"));
}

/// A connection to a Unix socket; -1: refused.
int connect_to(const std::string& path) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        return socket;
    }
    ::close(socket);
    return -1;
}

TEST_F(LauncherTest, SilentConnectionsToTheControlSocketLockNobodyOut) {
    up({}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    std::vector<int> silent;
    for (int i = 0; i < 80; ++i) {
        silent.push_back(connect_to(runtime_dir() + "/control.sock"));
        ASSERT_GE(silent.back(), 0);
        EXPECT_EQ(::send(silent.back(), "{", 1, MSG_NOSIGNAL), 1);
        if (i % 20 != 0) continue;
        EXPECT_EQ(command({"status"}), 0) << i << read("command.err");
    }
    EXPECT_EQ(command({"status"}), 0) << read("command.err");
    char byte = 0;
    EXPECT_LE(::recv(silent.front(), &byte, 1, 0), 0) << "the longest silent one made room";
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    for (const int socket : silent)
        ::close(socket);
}

TEST_F(LauncherTest, TheControlSocketTakesNoNumberThatIsNoReplicas) {
    up();
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    for (const char* number : {"4294967296", "-1", "1.5", "\"0\"", "18446744073709551616"}) {
        const int socket = connect_to(runtime_dir() + "/control.sock");
        ASSERT_GE(socket, 0);
        const std::string line = std::string(R"({"command":"drain","replica":)") + number + "}\n";
        ASSERT_EQ(::send(socket, line.data(), line.size(), 0), static_cast<ssize_t>(line.size()));
        char answer[512] = {};
        ASSERT_GT(::recv(socket, answer, sizeof answer - 1, 0), 0);
        ::close(socket);
        EXPECT_THAT(answer, HasSubstr("\"ok\":false")) << number;
    }
    EXPECT_EQ(command({"status"}), 0);
    EXPECT_TRUE(is_state(0, "READY"));
}

TEST_F(LauncherTest, UpEndsWithTheCauseWhenNoReplicaCanRun) {
    script({{"replica",
             {{{"end_in", "LOADING"},
               {"exit", 4},
               {"fatal",
                {{"class", "model_file"},
                 {"what", "tensor 7 is short"},
                 {"why", "the file ends early"},
                 {"fix", "copy it again"}}}}}}});
    up();
    EXPECT_EQ(wait_for_end(), 4);
    EXPECT_THAT(read("err"), HasSubstr("tensor 7 is short"));
    EXPECT_THAT(read("err"), HasSubstr("copy it again"));
    EXPECT_TRUE(living().empty());
    EXPECT_EQ(events("replica 0", "start").size(), 1U);  // no retry
}

TEST_F(LauncherTest, AStalledLoadIsKilledAndRecoversAlone) {
    script({{"replica 0", {{{"stall_in", "WARMING"}}, json::object()}}});
    up({"--load-stall-s", "0.3"});
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    EXPECT_EQ(events("replica 0", "start").size(), 2U);
    EXPECT_THAT(read("err"), HasSubstr("no progress while WARMING"));
}

TEST_F(LauncherTest, ASlowLoadWithProgressIsLeftAlone) {
    script({{"replica 0", {{{"load_ms", 1000}, {"load_steps", 50}}}}});
    up({"--load-stall-s", "0.5"}, 1);  // each phase takes twice the stall limit
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    EXPECT_EQ(events("replica 0", "start").size(), 1U);
}

TEST_F(LauncherTest, LiesOnTheReadyPipeAreKilledNotBelieved) {
    for (const std::string lie : {"instance", "garbled", "hello_twice", "no_hello"}) {
        script({{"replica 0", {{{"lie", lie}}, json::object()}}});
        std::filesystem::remove_all(folder_ + "/log");
        std::filesystem::create_directory(folder_ + "/log");
        up({"--hello-s", "0.3"}, 1);
        ASSERT_TRUE(wait_until([&] { return is_state(0, "READY"); })) << lie;
        EXPECT_EQ(events("replica 0", "start").size(), 2U) << lie;
        EXPECT_EQ(command({"down"}), 0);
        EXPECT_EQ(wait_for_end(), 0);
    }
}

TEST_F(LauncherTest, OtherSelftestTokensThanTheFirstReplicaNeverBecomeReady) {
    script({{"replica 1", {{{"tokens", "other"}}}}});
    up();
    ASSERT_TRUE(wait_until([&] { return is_state(1, "QUARANTINED"); }));
    EXPECT_EQ(status()["replicas"][1]["last_failure"]["exit_code"], 8);
    EXPECT_TRUE(is_state(0, "READY"));
}

TEST_F(LauncherTest, AFloodOnStderrNeitherBlocksNorFills) {
    script({{"replica 0", {{{"flood_bytes", 4'000'000}}}}});
    up({}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    EXPECT_EQ(command({"why", "0"}), 0);
    EXPECT_THAT(read("command.out"), HasSubstr("the flood is over"));
    EXPECT_LT(std::filesystem::file_size(folder_ + "/err"), 200'000U);
}

TEST_F(LauncherTest, AReplicaWithWorkButWithoutStepsIsRestarted) {
    script({{"replica 0", {{{"running", 1}}, json::object()}}});
    up({"--step-stall-s", "1"});
    ASSERT_TRUE(wait_for("replica 0", "ready", 2));
    EXPECT_THAT(read("err"), HasSubstr("wedged"));
    EXPECT_EQ(events("replica 1", "start").size(), 1U);
}

TEST_F(LauncherTest, StatusShowsWorkAndPortsWithoutAProcessCloseAtOnce) {
    script({{"replica 1", {{{"end_in", "LOADING"}, {"exit", 4}}}}});
    up();
    ASSERT_TRUE(wait_until([&] { return is_state(1, "QUARANTINED"); }));
    const json now = status();
    EXPECT_EQ(now["replicas"][0]["work"]["sequences_max"], 4);
    EXPECT_EQ(now["replicas"][0]["work"]["kv_blocks_used"], 25);
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(now["replicas"][1]["port"].get<std::uint16_t>());
    ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    pollfd readable{.fd = client, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&readable, 1, 5000), 1);
    char byte = 0;
    EXPECT_LE(::read(client, &byte, 1), 0);  // closed, not hanging in a backlog
    ::close(client);
    EXPECT_EQ(command({"status"}), 0);
    EXPECT_THAT(read("command.out"), HasSubstr("0/4"));
    EXPECT_THAT(read("command.out"), HasSubstr("quadriga why 1'"));
}

TEST_F(LauncherTest, TheLoadLockIsSharedThroughTheFile) {
    std::filesystem::create_directory(runtime_dir());
    const int lock_fd =
        ::open((runtime_dir() + "/load.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    ASSERT_EQ(::fcntl(lock_fd, F_OFD_SETLK, &lock), 0);
    ASSERT_EQ(::write(lock_fd, "the tester", 10), 10);
    up();
    ASSERT_TRUE(wait_until([&] {
        return read("err").find("waits for the load lock of the tester") != std::string::npos;
    }));
    EXPECT_TRUE(events("replica 0", "start").empty());
    ::close(lock_fd);
    EXPECT_TRUE(wait_for("replica 1", "ready"));
}

TEST_F(LauncherTest, RestartAndDrainOfOneReplica) {
    up();
    ASSERT_TRUE(wait_until([&] { return is_state(1, "READY"); }));
    EXPECT_EQ(command({"restart", "0"}), 0);
    ASSERT_TRUE(wait_for("replica 0", "ready", 2));
    EXPECT_EQ(events("replica 0", "term").size(), 1U);
    EXPECT_EQ(command({"drain", "1"}), 0);
    ASSERT_TRUE(wait_until([&] { return is_state(1, "ABSENT"); }));
    EXPECT_TRUE(last_announced(1)["drained"]);
    EXPECT_EQ(command({"undrain", "1"}), 0);
    EXPECT_TRUE(wait_for("replica 1", "ready", 2));
    EXPECT_FALSE(last_announced(1).contains("drained"));
}

TEST_F(LauncherTest, ADrainAtTheRouterIsShownKeptAndUndoneHere) {
    const json lines{"nonsense", R"({"index":9,"drained":true})", R"({"index":0,"drained":true})"};
    json first, second = json::object();
    first["tell"] = lines;
    json launches;
    launches["router"] = json::array({first, second});
    script(launches);
    up();
    ASSERT_TRUE(wait_until([&] { return is_state(0, "DRAINING") && is_state(1, "READY"); }));
    EXPECT_THAT(read("err"), HasSubstr("the router said nonsense: nonsense"));
    EXPECT_THAT(read("err"), HasSubstr("drain of replica 9 at the router: there is no replica 9"));
    EXPECT_EQ(status()["replicas"][0]["drained"], true);
    EXPECT_EQ(status()["replicas"][1]["drained"], false);
    EXPECT_EQ(command({"status"}), 0);
    EXPECT_THAT(read("command.out"), HasSubstr("quadriga undrain 0'"));
    EXPECT_TRUE(last_announced(0)["drained"]);
    const pid_t pid = pid_of("replica 0");
    ::kill(pid_of("router"), SIGKILL);  // the next router hears of it
    ASSERT_TRUE(wait_for("router", "start", 2));
    const pid_t next = pid_of("router");
    ASSERT_TRUE(wait_until([&] {
        const json line = last_announced(0);
        return line.value("drained", false) && events("router", "announced").back()["pid"] == next;
    }));
    EXPECT_EQ(command({"undrain", "0"}), 0);
    ASSERT_TRUE(wait_until([&] { return is_state(0, "READY"); }));
    ASSERT_TRUE(wait_until([&] { return !last_announced(0).contains("drained"); }));
    EXPECT_EQ(pid_of("replica 0"), pid) << "its process stayed";
    EXPECT_EQ(command({"undrain", "0"}), 2);
    EXPECT_THAT(read("command.err"), HasSubstr("not drained"));
}

}  // namespace
}  // namespace launcher_test
