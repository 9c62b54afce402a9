// `quadriga restart router` with processes: what is read again, who serves when, and what becomes
// of the router before it. Over fake routers where they must misbehave, over the real one
// otherwise.
#include <atomic>
#include <mutex>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/integration/launcher_fixture.h"
#include "tests/support/tls/tls_client.h"

namespace launcher_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct UniqueSocket {
    int fd;
    explicit UniqueSocket(int fd_in) : fd(fd_in) {}
    UniqueSocket(const UniqueSocket&) = delete;
    UniqueSocket& operator=(const UniqueSocket&) = delete;
    ~UniqueSocket() { ::close(fd); }
};

/// Asks one question after the other in a thread of its own, and keeps what was no answer.
class Knocking {
public:
    explicit Knocking(std::function<std::string()> ask)
        : thread_([this, ask = std::move(ask)] {
              while (!is_over_) {
                  const std::string answer = ask();
                  ++count_;
                  if (answer.starts_with("HTTP/1.1 200")) continue;
                  const std::lock_guard lock(mutex_);
                  wrong_.push_back("'" + answer.substr(0, 200) + "'");
              }
          }) {}
    ~Knocking() { stop(); }
    void stop() {
        is_over_ = true;
        if (thread_.joinable()) thread_.join();
    }
    int count() const { return count_; }
    std::vector<std::string> wrong() {
        const std::lock_guard lock(mutex_);
        return wrong_;
    }

private:
    std::atomic<bool> is_over_ = false;
    std::atomic<int> count_ = 0;
    std::mutex mutex_;
    std::vector<std::string> wrong_;
    std::thread thread_;
};

class RestartRouterTest : public LauncherTest {
protected:
    void configure(const std::string& text) { std::ofstream(folder_ + "/quadriga.toml") << text; }
    void script_router(const json& launch) {
        json launches;
        launches["router"] = json::array({launch});
        script(launches);
    }
    /// One replica, with the file that configure() has written.
    void up_with_file(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"--config", folder_ + "/quadriga.toml"});
        up(std::move(more), 1);
        ASSERT_TRUE(wait_for("replica 0", "ready"));
    }
    std::string launcher_metrics() {
        const std::string url = status()["launcher"]["metrics_url"].get<std::string>();
        const std::string rest = url.substr(url.rfind(':') + 1);
        return get(connect_tcp(static_cast<std::uint16_t>(std::stoul(rest))), "/metrics");
    }
    /// Of the admin interface over TCP, as the router says it.
    std::uint16_t admin_port() {
        const auto at = [this] { return read("err").rfind("event=admin_listening"); };
        EXPECT_TRUE(wait_until([&] { return at() != std::string::npos; }));
        const std::string line = read("err").substr(at());
        return static_cast<std::uint16_t>(std::stoul(line.substr(line.find("port=") + 5)));
    }
    int restart() { return command({"restart", "router"}); }
    std::string said() const { return read("command.out") + read("command.err"); }
    std::size_t earlier_routers() { return status()["earlier_routers"].size(); }

    /// GET `path` on a fresh connection to the router's port; the whole answer.
    std::string get(const std::string& path) { return get(connect_tcp(port()), path); }
    static std::string get(int fd, const std::string& path, const std::string& more = "") {
        const UniqueSocket client(fd);
        if (fd < 0) return "refused";
        const std::string head = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
        if (::send(client.fd, head.data(), head.size(), MSG_NOSIGNAL) < 0) return "not sent";
        ::shutdown(client.fd, SHUT_WR);
        return everything(client.fd);
    }
    std::uint16_t port() { return status()["router"]["port"].get<std::uint16_t>(); }

    /// -1: refused.
    static int connected(int fd, const sockaddr* address, socklen_t size) {
        if (::connect(fd, address, size) == 0) return fd;
        ::close(fd);
        return -1;
    }
    static int connect_tcp(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        return connected(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                         reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
    static int connect_unix(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        return connected(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                         reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
    int connect() {
        const int fd = connect_tcp(port());
        EXPECT_GE(fd, 0);
        return fd;
    }
    static std::string everything(int fd) {
        std::string all;
        char bytes[4096];
        for (ssize_t got; (got = ::read(fd, bytes, sizeof bytes)) > 0;)
            all.append(bytes, static_cast<std::size_t>(got));
        return all;
    }
    /// One answer with a Content-Length, of a connection that may stay open.
    static std::string one_answer(int fd) {
        std::string all;
        char byte = 0;
        while (all.find("\r\n\r\n") == std::string::npos && ::read(fd, &byte, 1) == 1)
            all += byte;
        const std::size_t at = all.find("Content-Length: ");
        const std::size_t rest = at == std::string::npos ? 0 : std::stoul(all.substr(at + 16));
        for (std::size_t i = 0; i < rest && ::read(fd, &byte, 1) == 1; ++i)
            all += byte;
        return all;
    }
};

TEST_F(RestartRouterTest, TheNewOneHasTheTableAsItIsNowAndTheOldOneEndsInItsOwnTime) {
    script_router({{"rest_ms", 60000}});
    configure("[router]\nping_s = 7\n");
    up_with_file();
    const pid_t first = pid_of("router");
    configure("context = 4096\n[router]\nping_s = 8\n");
    ASSERT_EQ(restart(), 0) << said();
    EXPECT_THAT(said(), HasSubstr("context has changed, too: it needs quadriga down and up"));
    EXPECT_THAT(said(), HasSubstr("pid " + std::to_string(first) + ", finishes"));
    ASSERT_EQ(events("router", "start").size(), 2U);
    EXPECT_TRUE(events("router", "start").back()["flags"].contains("--ping-s=8"));
    EXPECT_EQ(command({"status"}, "status"), 0);
    EXPECT_THAT(read("status.out"), HasSubstr("earlier router, pid " + std::to_string(first)));
    // Both hear of the replica's end and its return.
    ::kill(pid_of("replica 0"), SIGKILL);
    ASSERT_TRUE(wait_for("replica 0", "ready", 2));
    EXPECT_TRUE(wait_until([&] {
        const json start = events("replica 0", "start").back();
        std::size_t heard = 0;
        for (const json& one : events("router", "announced")) {
            heard += one["line"]["state"] == "READY" &&
                     one["line"]["instance"] == start["flags"]["--instance"];
        }
        return heard >= 2;
    }));
    // Killed in its rest: no death of the router.
    ::kill(first, SIGKILL);
    EXPECT_TRUE(wait_until([&] { return earlier_routers() == 0; }));
    EXPECT_EQ(events("router", "start").size(), 2U);
    EXPECT_THAT(read("err"),
                HasSubstr("the earlier router (pid " + std::to_string(first) + ") ended"));
    ASSERT_EQ(restart(), 0) << "once more: " << said();
    EXPECT_EQ(events("router", "start").size(), 3U);
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_THAT(living(), IsEmpty());
}

TEST_F(RestartRouterTest, WhatItsCheckRefusesChangesNothing) {
    configure("");
    up_with_file();
    json bad;
    bad["router_check"] = "quadriga-router: --ping-s cannot be that";
    script(bad);
    EXPECT_EQ(restart(), 2);
    EXPECT_THAT(said(), HasSubstr("--ping-s cannot be that"));
    EXPECT_THAT(said(), HasSubstr("nothing has changed"));
    script(json::object());
    configure("[router\n");
    EXPECT_EQ(restart(), 2);
    EXPECT_THAT(said(), HasSubstr("not TOML"));
    configure("keys_file = \"/no/such\"\n");
    EXPECT_EQ(restart(), 2);
    EXPECT_THAT(said(), HasSubstr("/no/such"));
    EXPECT_EQ(events("router", "start").size(), 1U);
    EXPECT_THAT(events("router", "usr1"), IsEmpty());
    EXPECT_EQ(command({"restart", "ruoter"}), 2);
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_EQ(restart(), 1);
    EXPECT_THAT(said(), HasSubstr("no launcher is running"));
}

TEST_F(RestartRouterTest, OneThatCannotStartChangesNothing) {
    json launches;
    launches["router"] = {json::object(), {{"end_in", "START"}, {"exit", 6}}, json::object()};
    script(launches);
    configure("[router]\nping_s = 7\n");
    up_with_file();
    const pid_t first = pid_of("router");
    const json before = status();
    configure("[router]\nping_s = 8\n");
    EXPECT_EQ(restart(), 1);
    EXPECT_THAT(said(), HasSubstr("nothing has changed"));
    EXPECT_THAT(said(), HasSubstr("last words on stderr"));
    EXPECT_EQ(status()["router"]["pid"], first);
    EXPECT_EQ(status()["config_digest"], before["config_digest"]);
    EXPECT_THAT(events("router", "usr1"), IsEmpty()) << "it was not asked to let go";
    EXPECT_EQ(events("router", "start").size(), 2U);
    ASSERT_EQ(restart(), 0) << said();
    EXPECT_TRUE(events("router", "start").back()["flags"].contains("--ping-s=8"));
    EXPECT_NE(status()["config_digest"], before["config_digest"]);
    const std::string metrics = launcher_metrics();
    const std::string orders = "quadriga_launcher_router_restart_orders_total{outcome=";
    EXPECT_THAT(metrics, HasSubstr(orders + "\"serves\"} 1"));
    EXPECT_THAT(metrics, HasSubstr(orders + "\"failed\"} 1"));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(RestartRouterTest, OneThatDoesNotComeUpIsEndedAndAStopNeedNotWaitForThat) {
    json launches;
    launches["router"] = {json::object(), {{"keep_silent", true}}};
    script(launches);
    configure("");
    up_with_file();
    const pid_t first = pid_of("router");
    int code = -1;
    std::thread waiting([&] { code = restart(); });
    ASSERT_TRUE(wait_for("router", "start", 2));
    const pid_t second = pid_of("router");
    EXPECT_EQ(status()["router"]["successor_pid"], second);
    EXPECT_EQ(command({"restart", "router"}, "other"), 75);
    EXPECT_THAT(read("other.err"), HasSubstr("already"));
    waiting.join();
    EXPECT_EQ(code, 1);
    EXPECT_THAT(said(), HasSubstr("did not serve within 10 s"));
    EXPECT_FALSE(is_alive(second));
    EXPECT_EQ(status()["router"]["pid"], first);
    EXPECT_EQ(status()["router"]["successor_pid"], 0);

    waiting = std::thread([&] { code = restart(); });
    ASSERT_TRUE(wait_for("router", "start", 3));
    EXPECT_EQ(command({"down"}, "down"), 0);
    EXPECT_EQ(wait_for_end(), 0);
    waiting.join();
    EXPECT_NE(code, 0);
    EXPECT_THAT(living(), IsEmpty());
}

TEST_F(RestartRouterTest, ARouterThatDiesBesideItsSuccessorIsReplacedByIt) {
    json launches;
    launches["router"] = {json::object(), {{"serving_after_ms", 1000}}};
    script(launches);
    configure("");
    up_with_file();
    const pid_t first = pid_of("router");
    int code = -1;
    std::thread waiting([&] { code = restart(); });
    const bool has_second = wait_for("router", "start", 2);
    ::kill(first, SIGKILL);
    waiting.join();
    ASSERT_TRUE(has_second);
    EXPECT_EQ(code, 0) << said();
    EXPECT_EQ(events("router", "start").size(), 2U);
    EXPECT_EQ(status()["router"]["pid"], pid_of("router"));
    EXPECT_EQ(status()["router"]["state"], "RUNNING");
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(RestartRouterTest, OneThatDoesNotLetGoIsPassedAndEndsWithTheFleet) {
    script_router({{"keep_socket", true}});
    configure("");
    up_with_file();
    ASSERT_EQ(restart(), 0) << said();
    EXPECT_THAT(said(), HasSubstr("has not let go of the port yet"));
    EXPECT_EQ(events("router", "start").size(), 2U);
    EXPECT_EQ(earlier_routers(), 1U);
    EXPECT_TRUE(wait_for("router", "usr1", 2)) << "it is asked again";
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_EQ(events("router", "exit").size(), 2U);
    EXPECT_THAT(living(), IsEmpty());
}

TEST_F(RestartRouterTest, AFleetThatStopsRefusesIt) {
    script_router({{"drain_ms", 60000}});
    configure("");
    up_with_file();
    ::kill(launcher_, SIGTERM);
    ASSERT_TRUE(wait_for("router", "term"));
    EXPECT_EQ(restart(), 2);
    EXPECT_THAT(said(), HasSubstr("the fleet is stopping"));
    ::kill(launcher_, SIGTERM);
    ASSERT_TRUE(wait_for("router", "exit"));
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(RestartRouterTest, NoConnectionIsRefusedAndNobodyIsToldToWait) {
    const std::string admin = runtime_dir() + "/router-admin.sock";
    const std::string keys = folder_ + "/admin-keys.toml";
    // The SHA-256 of "key".
    std::ofstream(keys) << "[[key]]\nname = \"operator\"\nsha256 = "
                           "\"2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683\"\n";
    const auto table = [&](const std::string& address) {
        return "[router]\nadmin_keys_file = \"" + keys + "\"\nadmin_listen = \"" + address + "\"\n";
    };
    configure(table("127.0.0.1:0"));
    up_with_file({"--router-program", QUADRIGA_ROUTER, "--drain-grace-s", "0"});
    const std::uint16_t public_port = port();
    const std::uint16_t first_admin_port = admin_port();
    ASSERT_TRUE(wait_until(
        [&] { return get(connect_tcp(public_port), "/ready").starts_with("HTTP/1.1 200"); }));
    Knocking clients([&] { return get(connect_tcp(public_port), "/ready"); });
    Knocking operators([&] { return get(connect_unix(admin), "/admin/replicas"); });
    Knocking remote([&] {
        return get(connect_tcp(first_admin_port), "/admin/replicas",
                   "Authorization: Bearer key\r\n");
    });
    for (int round = 0; round < 4; ++round) {
        const int count = clients.count();
        if (round == 2) {
            configure(table("127.0.0.1:0") + "ping_s = -1\n");
            EXPECT_EQ(restart(), 2) << said();
        } else {
            configure(table("127.0.0.1:0") + "ping_s = " + std::to_string(5 + round) + "\n");
            EXPECT_EQ(restart(), 0) << said();
        }
        EXPECT_TRUE(wait_until([&] { return clients.count() > count + 20; }));
    }
    clients.stop();
    operators.stop();
    remote.stop();
    EXPECT_THAT(clients.wrong(), IsEmpty());
    EXPECT_THAT(operators.wrong(), IsEmpty());
    EXPECT_THAT(remote.wrong(), IsEmpty());
    EXPECT_GT(operators.count(), 10);
    EXPECT_GT(remote.count(), 10);

    configure(table("127.0.0.2:0"));
    EXPECT_EQ(restart(), 0) << said();
    EXPECT_TRUE(wait_until([&] { return connect_tcp(first_admin_port) < 0; }))
        << "another port now";
    configure("");
    EXPECT_EQ(restart(), 0) << said() << "none is wanted";
    const UniqueSocket taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(::bind(taken.fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(taken.fd, 1), 0);
    ::getsockname(taken.fd, reinterpret_cast<sockaddr*>(&address), &size);
    configure(table("127.0.0.1:" + std::to_string(ntohs(address.sin_port))));
    EXPECT_EQ(restart(), 6);
    EXPECT_THAT(said(), HasSubstr("admin_listen"));
    EXPECT_THAT(said(), HasSubstr("nothing has changed"));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_FALSE(std::filesystem::exists(admin));
}

TEST_F(RestartRouterTest, TheRealRouterHasItsNewSettingsAtTheNextRequest) {
    const std::string admin = runtime_dir() + "/router-admin.sock";
    configure("[router]\nallowed_hosts = \"first.example\"\n");
    up_with_file({"--router-program", QUADRIGA_ROUTER});
    ASSERT_TRUE(wait_until([&] { return read("err").find("listening on") != std::string::npos; }));
    const UniqueSocket kept(connect());
    const std::string ask = "GET /health HTTP/1.1\r\nHost: first.example\r\n\r\n";
    ASSERT_GT(::send(kept.fd, ask.data(), ask.size(), MSG_NOSIGNAL), 0);
    EXPECT_THAT(one_answer(kept.fd), Not(HasSubstr("Connection: close")));
    const std::string digest = "quadriga_router_config_info";
    const std::string before = get("/metrics");
    ASSERT_THAT(before, HasSubstr(digest));

    configure("[router]\nping_s = -1\n");
    EXPECT_EQ(restart(), 2);
    EXPECT_THAT(said(), HasSubstr("correct router.ping_s (file " + folder_ + "/quadriga.toml:2)"));
    const auto line_of = [&](const std::string& text) {
        const std::size_t at = text.rfind(digest + "{");
        return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
    };
    EXPECT_EQ(line_of(get("/metrics")), line_of(before)) << "a bad file changes nothing";

    for (int round = 0; round < 2; ++round) {
        configure("[router]\nping_s = " + std::to_string(5 + round) + "\n");
        const std::string old = line_of(get("/metrics"));
        ASSERT_EQ(restart(), 0) << said();
        EXPECT_NE(line_of(get("/metrics")), old) << "the next request is the new one's";
        EXPECT_TRUE(std::filesystem::exists(admin));
    }
    EXPECT_THAT(read("err"), Not(HasSubstr("internal_error")));
    EXPECT_TRUE(wait_until([&] { return earlier_routers() == 0; }));
    EXPECT_TRUE(std::filesystem::exists(admin)) << "the earlier ones took only their own";
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(RestartRouterTest, ACertificateComesWithItAndABadOneDoesNot) {
    const test_tls::TestCa ca;
    const auto write = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder_ + "/" + name) << text;
        return folder_ + "/" + name;
    };
    const auto table = [](const std::string& certificate, const std::string& key) {
        return "tls_cert = \"" + certificate + "\"\ntls_key = \"" + key + "\"\n";
    };
    configure("");
    up_with_file({"--router-program", QUADRIGA_ROUTER});
    const std::uint16_t public_port = port();
    const auto name_of_server = [&] {
        const test_tls::TlsClient client(public_port, ca);
        return client.failure().empty() ? client.server_name() : client.failure();
    };
    const auto files = ca.issue("first");
    const std::string certificate = write("cert.pem", files.certificate);
    configure(table(certificate, write("key.pem", files.key)));
    ASSERT_EQ(restart(), 0) << said();
    EXPECT_EQ(name_of_server(), "first");
    EXPECT_EQ(command({"status"}, "status"), 0);
    EXPECT_THAT(read("run/state.json"), HasSubstr("https://"));

    configure(table(certificate, write("other.pem", ca.issue("second").key)));
    EXPECT_EQ(restart(), 2);
    EXPECT_THAT(said(), HasSubstr("tls_key (file " + folder_ + "/quadriga.toml:2)"));
    EXPECT_THAT(said(), HasSubstr("nothing has changed"));
    EXPECT_EQ(name_of_server(), "first");

    const auto third = ca.issue("third");
    configure(table(write("third.pem", third.certificate), write("third-key.pem", third.key)));
    ASSERT_EQ(restart(), 0) << said();
    EXPECT_EQ(name_of_server(), "third");
    EXPECT_EQ(command({"reload"}), 0) << said();
    EXPECT_THAT(said(), HasSubstr("tls: ")) << "of the router that serves";
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(RestartRouterTest, AReloadWhileTheRouterDiesSaysThatItDied) {
    script_router({{"die_on_hup", true}});
    configure("");
    up_with_file();
    EXPECT_EQ(command({"reload"}), 1);
    EXPECT_THAT(said(), HasSubstr("the router has ended meanwhile"));
    EXPECT_THAT(said(), Not(HasSubstr("read again")));
    ASSERT_TRUE(wait_for("router", "start", 2));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0);
}

TEST_F(RestartRouterTest, ACommandToStopWaitsForNobodyWhoMayComeButASignalDoes) {
    configure("");
    up_with_file({"--router-program", QUADRIGA_ROUTER, "--drain-grace-s", "600"});
    ASSERT_TRUE(wait_until([&] { return read("err").find("listening on") != std::string::npos; }));
    const std::uint16_t public_port = port();
    ::kill(launcher_, SIGTERM);
    ASSERT_TRUE(
        wait_until([&] { return read("err").find("event=draining") != std::string::npos; }));
    EXPECT_THAT(get(connect_tcp(public_port), "/health"), HasSubstr("200 OK")) << "the grace";
    ::kill(launcher_, SIGTERM);
    EXPECT_EQ(wait_for_end(), 0);

    std::filesystem::remove_all(folder_ + "/log");
    std::filesystem::create_directory(folder_ + "/log");
    up_with_file({"--router-program", QUADRIGA_ROUTER, "--drain-grace-s", "600"});
    ASSERT_TRUE(wait_until([&] { return read("err").find("listening on") != std::string::npos; }));
    EXPECT_EQ(command({"down"}), 0);
    EXPECT_EQ(wait_for_end(), 0) << "nothing runs, so nothing is waited for";
}

TEST_F(RestartRouterTest, AKeptConnectionGetsOneMoreAnswerFromTheRouterThatItKnows) {
    configure("");
    up_with_file({"--router-program", QUADRIGA_ROUTER, "--drain-grace-s", "60"});
    ASSERT_TRUE(wait_until([&] { return read("err").find("listening on") != std::string::npos; }));
    const UniqueSocket kept(connect());
    const std::string ask = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    ASSERT_GT(::send(kept.fd, ask.data(), ask.size(), MSG_NOSIGNAL), 0);
    EXPECT_THAT(one_answer(kept.fd), HasSubstr("200 OK"));
    ASSERT_EQ(restart(), 0) << said();
    EXPECT_EQ(earlier_routers(), 1U);
    ASSERT_GT(::send(kept.fd, ask.data(), ask.size(), MSG_NOSIGNAL), 0);
    const std::string last = everything(kept.fd);
    EXPECT_THAT(last, HasSubstr("200 OK"));
    EXPECT_THAT(last, HasSubstr("Connection: close"));
    EXPECT_TRUE(wait_until([&] { return earlier_routers() == 0; })) << "it had nothing else";
}

}  // namespace
}  // namespace launcher_test
