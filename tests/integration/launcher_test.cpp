// The launcher as a process over fake children: order of loads, restarts, deaths in both
// directions, stops. Proof is the fakes' own log with monotonic times.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include "tests/integration/launcher_fixture.h"

namespace launcher_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(LauncherTest, LoadsStrictlyOneAtATimeAndGivesEachChildExactlyItsThings) {
    script({{"replica", {{{"load_ms", 40}}}}});
    up({}, 4);
    ASSERT_TRUE(wait_for("replica 3", "ready"));
    for (int i = 0; i + 1 < 4; ++i) {
        const json ready = events("replica " + std::to_string(i), "ready").front();
        const json start = events("replica " + std::to_string(i + 1), "start").front();
        EXPECT_LT(ready["t_us"].get<long long>(), start["t_us"].get<long long>()) << i;
    }
    EXPECT_LT(events("router", "start").front()["t_us"].get<long long>(),
              events("replica 0", "ready").front()["t_us"].get<long long>());
    EXPECT_EQ(events("router", "start").front()["descriptors"], json({0, 1, 2, 3, 4, 5, 6, 7}));
    for (const json& start : events("replica 2", "start")) {
        EXPECT_EQ(start["descriptors"], json({0, 1, 2, 3, 4, 5, 6}));
        EXPECT_EQ(start["listen_fds"], "1");
        EXPECT_EQ(start["listen_pid_is_mine"], true);
        EXPECT_EQ(start["group_is_own"], true);
        EXPECT_EQ(start["flags"]["--served-name"], "model");
        EXPECT_EQ(start["flags"]["--replica-index"], "2");
        EXPECT_EQ(start["flags"]["--instance"].get<std::string>().size(), 16U);
    }
    // The router heard of every step of the last replica, with its instance.
    ASSERT_TRUE(wait_until([&] {
        const auto lines = events("router", "announced");
        return !lines.empty() && lines.back()["line"]["index"] == 3 &&
               lines.back()["line"]["state"] == "READY";
    }));
    EXPECT_EQ(events("router", "announced").back()["line"]["instance"],
              events("replica 3", "start").front()["flags"]["--instance"]);
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_THAT(living(), IsEmpty());  // `down` returns when nothing is left
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_FALSE(std::filesystem::exists(runtime_dir() + "/control.sock"));
}

TEST_F(LauncherTest, TwoReplicasKilledTogetherReloadOneAfterTheOther) {
    script({{"replica", {{{"load_ms", 40}}}}});
    up({}, 3);
    ASSERT_TRUE(wait_for("replica 2", "ready"));
    ::kill(pid_of("replica 1"), SIGKILL);
    ::kill(pid_of("replica 2"), SIGKILL);
    ASSERT_TRUE(wait_for("replica 1", "ready", 2));
    ASSERT_TRUE(wait_for("replica 2", "ready", 2));
    const auto at = [&](const std::string& who, const std::string& what) {
        return events(who, what).back()["t_us"].get<long long>();
    };
    const bool is_one_first = at("replica 1", "start") < at("replica 2", "start");
    const std::string first = is_one_first ? "replica 1" : "replica 2";
    const std::string second = is_one_first ? "replica 2" : "replica 1";
    EXPECT_LT(at(first, "ready"), at(second, "start"));
    EXPECT_EQ(events("replica 0", "start").size(), 1U);
    EXPECT_NE(events("replica 1", "start").front()["flags"]["--instance"],
              events("replica 1", "start").back()["flags"]["--instance"]);
}

// L1 of the specification, on the CPU path.
TEST_F(LauncherTest, KillOfTheLauncherLeavesNothingWhileServingAndLoading) {
    script({{"replica 1", {{{"load_ms", 60000}, {"ignore_term", true}}}}});
    up();
    ASSERT_TRUE(wait_for("replica 1", "LOADING"));
    ASSERT_EQ(living().size(), 3U);
    const pid_t old_launcher = launcher_;
    ::kill(launcher_, SIGKILL);
    EXPECT_TRUE(wait_until([&] { return living().empty(); }, std::chrono::seconds(5)));
    wait_for_end();
    // The next start finds folder and lock usable.
    script(json::object());
    up();
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    EXPECT_NE(launcher_, old_launcher);
    EXPECT_EQ(command({"down"}), 0);
}

TEST_F(LauncherTest, TermWhileLoadingStopsThatChildAtOnce) {
    script({{"replica 1", {{{"load_ms", 60000}}}}});
    up();
    ASSERT_TRUE(wait_for("replica 1", "LOADING"));
    ::kill(launcher_, SIGTERM);
    EXPECT_EQ(wait_for_end(std::chrono::seconds(10)), 0);
    EXPECT_THAT(living(), IsEmpty());
    EXPECT_EQ(events("replica 1", "term").size(), 1U);
}

TEST_F(LauncherTest, ReplicasEndAfterTheRouterHasDrained) {
    script({{"router", {{{"drain_ms", 100}}}}});
    up();
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    ::kill(launcher_, SIGTERM);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_LT(events("router", "exit").front()["t_us"].get<long long>(),
              events("replica 0", "term").front()["t_us"].get<long long>());
}

TEST_F(LauncherTest, AChildThatRefusesTermIsKilled) {
    script({{"replica 0", {{{"ignore_term", true}}}}});
    up({"--term-to-kill-s", "0.2"});
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    ::kill(launcher_, SIGTERM);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_THAT(living(), IsEmpty());
    EXPECT_EQ(events("replica 0", "term").size(), 1U);
    EXPECT_THAT(events("replica 0", "exit"), IsEmpty());
}

TEST_F(LauncherTest, ThreeTermsKillEverything) {
    script({{"router", {{{"ignore_term", true}}}}, {"replica", {{{"ignore_term", true}}}}});
    up();
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    for (std::size_t i = 1; i <= 2; ++i) {
        ::kill(launcher_, SIGTERM);
        ASSERT_TRUE(wait_for("router", "term", i));
    }
    ::kill(launcher_, SIGTERM);
    EXPECT_EQ(wait_for_end(std::chrono::seconds(5)), 0);
    EXPECT_THAT(living(), IsEmpty());
}

// L4 of the specification: a foreign server on a port is an error that names it, never READY.
TEST_F(LauncherTest, ATakenPortIsNamedWithItsHolder) {
    const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(taken, 1), 0);
    socklen_t length = sizeof address;
    ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &length);
    const std::string port = std::to_string(ntohs(address.sin_port));
    up({"--port", port});
    EXPECT_EQ(wait_for_end(), 6);
    EXPECT_THAT(read("err"), HasSubstr("port " + port + " (router) is in use"));
    EXPECT_THAT(read("err"), HasSubstr("held by pid " + std::to_string(::getpid())));
    EXPECT_THAT(events(), IsEmpty());
    ::close(taken);
}

TEST_F(LauncherTest, BadStartsEndWithTheirCodesBeforeAnythingRuns) {
    std::filesystem::remove(folder_ + "/model.gguf");
    up();
    EXPECT_EQ(wait_for_end(), 4);
    EXPECT_THAT(read("err"), HasSubstr("No such file"));
    EXPECT_THAT(read("err"), HasSubstr("fix"));
    std::ofstream(folder_ + "/model.gguf") << "GGUF";
    up({"--backend", "cuda"});
    EXPECT_EQ(wait_for_end(), 10);
    up({"--layout", "4"});
    EXPECT_EQ(wait_for_end(), 2);
    up({"--router-program", folder_ + "/nothing"});
    EXPECT_EQ(wait_for_end(), 1);
    EXPECT_EQ(command({"stat"}), 2);
    EXPECT_THAT(read("command.err"), HasSubstr("did you mean 'status'?"));
    EXPECT_EQ(command({"down"}), 1);
    EXPECT_THAT(read("command.err"), HasSubstr("no launcher is running"));
    EXPECT_THAT(events(), IsEmpty());
}

TEST_F(LauncherTest, AnOpenHostWithoutKeysIsRefusedBeforeAnythingRuns) {
    for (const char* host : {"0.0.0.0", "::"}) {
        up({"--host", host});
        EXPECT_EQ(wait_for_end(), 2) << host;
        for (const char* part : {"Q0201", "host ", "--keys-file", "--insecure-no-auth", "fix"})
            EXPECT_THAT(read("err"), HasSubstr(part)) << host;
    }
    up({"--host", "0.0.0.0", "--keys-file", folder_ + "/nothing.toml"});
    EXPECT_EQ(wait_for_end(), 2);
    EXPECT_THAT(read("err"), HasSubstr("nothing.toml cannot be read"));
    up({"--keys-file", folder_});
    EXPECT_EQ(wait_for_end(), 2);
    EXPECT_THAT(read("err"), HasSubstr("it is not a regular file"));
    EXPECT_THAT(events(), IsEmpty());
}

TEST_F(LauncherTest, WhoMeansAnOpenHostGetsItAndTheRouterIsTold) {
    up({"--host", "0.0.0.0", "--insecure-no-auth"}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    EXPECT_TRUE(events("router", "start").front()["flags"].contains("--insecure-no-auth"));
    EXPECT_FALSE(events("router", "start").front()["flags"].contains("--keys-file"));
    EXPECT_THAT(read("out"), HasSubstr("open to the network, no key"));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(LauncherTest, TheRouterGetsTheKeyFileAndAHangupReachesItAlone) {
    const std::string keys = folder_ + "/keys.toml";
    std::ofstream(keys) << "[[key]]\n";
    up({"--host", "0.0.0.0", "--keys-file", keys}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    EXPECT_EQ(events("router", "start").front()["flags"]["--keys-file"], keys);
    EXPECT_FALSE(events("router", "start").front()["flags"].contains("--insecure-no-auth"));
    EXPECT_THAT(read("out"), HasSubstr("open to the network, needs a key"));
    ::kill(launcher_, SIGHUP);
    ASSERT_TRUE(wait_for("router", "hup"));
    EXPECT_EQ(command({"down"}), 0);  // it was no reason to end
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_EQ(events("router", "start").size(), 1U);
    EXPECT_EQ(events("replica 0", "start").size(), 1U);
}

TEST_F(LauncherTest, ReloadSaysWhatCameOfIt) {
    const auto say_on_hangup = [&](const std::string& line) {
        json launch, launches;
        launch["tell_on_hup"] = line;
        launches["router"] = json::array({launch});
        script(launches);
    };
    say_on_hangup(R"({"reloaded":["keys: 2"],"errors":[]})");
    up({}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    EXPECT_EQ(command({"reload"}), 0);
    EXPECT_THAT(read("command.out"), HasSubstr("read again  keys: 2"));
    EXPECT_EQ(events("router", "hup").size(), 1U);
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    say_on_hangup(R"({"reloaded":["keys: 2"],"errors":["the certificate is none"]})");
    up({}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready", 2));
    EXPECT_EQ(command({"reload"}), 2);
    EXPECT_THAT(read("command.out"), HasSubstr("read again  keys: 2"));
    EXPECT_THAT(read("command.err"), HasSubstr("the certificate is none"));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_EQ(command({"reload"}), 1);
    EXPECT_THAT(read("command.err"), HasSubstr("no launcher is running"));
}

TEST_F(LauncherTest, TheRouterGetsItsTlsFilesItsTableAndWhereToKeepCopies) {
    const std::string certificate = folder_ + "/cert.pem";
    const std::string key = folder_ + "/key.pem";
    const std::string config = folder_ + "/quadriga.toml";
    up({"--tls-cert", certificate, "--tls-key", key});
    EXPECT_EQ(wait_for_end(), 2) << "they are not there yet";
    EXPECT_THAT(read("err"), HasSubstr("tls_cert"));
    std::ofstream(certificate) << "certificate";
    std::ofstream(key) << "key";
    std::ofstream(config) << "[router]\nping_s = 7\n";
    std::ofstream(runtime_dir() + "/keys.good") << "of an earlier launcher";
    up({"--tls-cert", certificate, "--tls-key", key, "--config", config}, 1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    const nlohmann::json flags = events("router", "start").front()["flags"];
    EXPECT_EQ(flags["--tls-cert"], certificate);
    EXPECT_EQ(flags["--tls-key"], key);
    EXPECT_EQ(flags["--last-good-dir"], runtime_dir());
    EXPECT_EQ(flags["--layout"], "1x1");
    EXPECT_TRUE(flags.contains("--ping-s=7"));
    EXPECT_THAT(read("out"), HasSubstr("https://127.0.0.1:"));
    EXPECT_FALSE(std::filesystem::exists(runtime_dir() + "/keys.good"));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(LauncherTest, ASecondUpInTheSameFolderNamesTheFirst) {
    up();
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    const pid_t first = launcher_;
    up();
    EXPECT_EQ(wait_for_end(), 75);
    EXPECT_THAT(read("err"), HasSubstr("pid " + std::to_string(first)));
    launcher_ = first;
    EXPECT_EQ(events("replica 0", "start").size(), 1U);
}

TEST_F(LauncherTest, ADeadRouterComesBackWithTheSameSocketAndHearsEverythingAgain) {
    up();
    ASSERT_TRUE(wait_for("replica 1", "ready"));
    const int port = status()["router"]["port"];
    ::kill(pid_of("router"), SIGKILL);
    ASSERT_TRUE(wait_for("router", "start", 2));
    const pid_t second = pid_of("router");
    ASSERT_TRUE(wait_until([&] {
        int ready = 0;
        for (const json& one : events("router", "announced")) {
            if (one["pid"] == second && one["line"]["state"] == "READY") ++ready;
        }
        return ready >= 2;
    }));
    EXPECT_EQ(status()["router"]["port"], port);
    EXPECT_EQ(events("replica 0", "start").size(), 1U);  // no model was loaded again
}

}  // namespace
}  // namespace launcher_test
