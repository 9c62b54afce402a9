// fake_child: plays quadriga-replica and quadriga-router for the launcher's fault tests.
//
// It takes the same flags and descriptors as the real programs and does what a script says: load
// slowly, stall, crash, flood its stderr, refuse TERM, lie about its instance. Everything it does
// is appended, with monotonic time, to a log that the test reads.
//
//   QUADRIGA_FAKE_SCRIPT  JSON: {"replica 0": [launch, launch, ...], "replica": [...], "router":
//   [...]}
//                         the n-th start of a process takes the n-th launch, later ones the last
//   QUADRIGA_FAKE_LOG     folder of events.jsonl and of the launch counters
//
// With --check-config it says what the script's "router_check" says, and exits with 2 then.
//
// A launch, all keys optional:
//   load_ms 20, load_steps 4   time and progress lines of each phase
//   stall_in "LOADING"         no more progress in that phase, for ever
//   end_in "LOADING"           ends there (or in "START", "READY"): with `exit` N, else `signal` 9
//   fatal {class, what, why, fix}   said before it ends
//   lie "instance" | "garbled" | "hello_twice" | "no_hello"
//   tokens "…", uuid "CPU-0"   what self-test and placement report
//   ignore_term true           does not end on TERM
//   flood_bytes N              on stderr, at the start
//   running N                  in its status page, whose step never moves
//   drain_ms N                 the router's time from TERM to its end
//   tell_on_hup "line"         said by the router to the launcher at each SIGHUP
//   die_on_hup true            the router dies of a SIGHUP
//   serving_after_ms N         the router's time from its start to its word that it serves
//   keep_silent true           the router never says that it serves
//   keep_socket true           the router does not answer a SIGUSR1
//   rest_ms N                  the router's time from SIGUSR1 to its end
//   tell ["line", …]           said by the router to the launcher when replica 0 is READY
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr int kListenFd = 3;

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

void write_all(int fd, const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t put = ::write(fd, text.data() + done, text.size() - done);
        if (put < 0 && errno != EINTR) return;
        if (put > 0) done += static_cast<std::size_t>(put);
    }
}

class FakeChild {
public:
    FakeChild(int argc, char** argv) {
        for (int i = 1; i < argc; ++i) {
            const std::string flag = argv[i];
            const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
            flags_[flag] = has_value ? argv[++i] : "";
        }
        is_router_ = flags_.contains("--announce-fd");
        name_ = is_router_ ? "router" : "replica " + flags_["--replica-index"];
        sigset_t term;
        ::sigemptyset(&term);
        ::sigaddset(&term, SIGTERM);
        if (is_router_) ::sigaddset(&term, SIGHUP);
        if (is_router_) ::sigaddset(&term, SIGUSR1);
        if (is_router_) ::sigaddset(&term, SIGQUIT);
        ::sigprocmask(SIG_BLOCK, &term, nullptr);
        signal_fd_ = ::signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
        choose_launch();
    }

    int run() {
        log("start",
            {{"launch", launch_number_},
             {"listen_pid_is_mine", environment("LISTEN_PID") == std::to_string(::getpid())},
             {"listen_fds", environment("LISTEN_FDS")},
             {"flags", flags_},
             {"visible_devices", environment("CUDA_VISIBLE_DEVICES")},
             {"descriptors", open_descriptors()},
             {"group_is_own", ::getpgrp() == ::getpid()}});
        if (const int bytes = number("flood_bytes", 0); bytes > 0) {
            std::string flood;
            while (flood.size() < static_cast<std::size_t>(bytes)) {
                flood += "flood line " + std::to_string(flood.size()) + "\n";
            }
            write_all(2, flood + "the flood is over\n");
        }
        maybe_end("START");
        if (is_router_) {
            if (const int wait_ms = number("serving_after_ms", 0); wait_ms > 0) serve(wait_ms);
            if (!launch_.value("keep_silent", false)) {
                write_all(announce_fd(), "{\"router\":\"serving\"}\n");
            }
            return serve(-1);
        }
        load();
        return serve(-1);
    }

private:
    void choose_launch() {
        const std::string counter = environment("QUADRIGA_FAKE_LOG") + "/" + name_ + ".launches";
        std::ifstream(counter) >> launch_number_;
        std::ofstream(counter) << launch_number_ + 1;
        std::ifstream file(environment("QUADRIGA_FAKE_SCRIPT"));
        const json script = json::parse(file, nullptr, false);
        if (!script.is_object()) return;
        const std::string kind = is_router_ ? "router" : "replica";
        const auto found = script.contains(name_) ? script.find(name_) : script.find(kind);
        if (found == script.end() || found->empty()) return;
        const std::size_t last = found->size() - 1;
        launch_ = found->at(std::min(static_cast<std::size_t>(launch_number_), last));
    }

    int number(const std::string& key, int otherwise) const {
        return launch_.value(key, otherwise);
    }
    std::string text(const std::string& key, const std::string& otherwise) const {
        return launch_.value(key, otherwise);
    }

    std::vector<int> open_descriptors() const {
        std::vector<int> open;
        for (int fd = 0; fd < 64; ++fd) {
            if (fd != signal_fd_ && ::fcntl(fd, F_GETFD) >= 0) open.push_back(fd);
        }
        return open;
    }

    void log(const std::string& what, json more = json::object()) const {
        more["t_us"] =
            std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
                .count();
        more["who"] = name_;
        more["what"] = what;
        more["pid"] = ::getpid();
        const std::string path = environment("QUADRIGA_FAKE_LOG") + "/events.jsonl";
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        write_all(fd, more.dump() + "\n");
        ::close(fd);
    }

    void say(const std::string& event, json more = json::object()) {
        more["event"] = event;
        const bool is_lie = text("lie", "") == "instance";
        more["instance"] = is_lie ? "0123456789abcdef" : flags_["--instance"];
        write_all(std::stoi(flags_["--ready-fd"]), more.dump() + "\n");
    }

    void maybe_end(const std::string& point) {
        if (text("end_in", "") != point) return;
        if (launch_.contains("fatal")) {
            json fatal = launch_["fatal"];
            fatal["id"] = "Q0412";
            say("fatal", fatal);
        }
        log("end");
        std::fputs("last words on stderr, and a byte that is no text: \xff\n", stderr);
        if (launch_.contains("exit")) std::_Exit(number("exit", 1));
        ::raise(number("signal", SIGKILL));
    }

    void phase(const std::string& name) {
        log(name);
        const int steps = number("load_steps", 4);
        if (text("stall_in", "") == name) {
            say("phase", {{"phase", name}, {"done", 1}, {"total", steps}});
            serve(-1);
        }
        for (int step = 0; step <= steps; ++step) {
            say("phase", {{"phase", name}, {"done", step}, {"total", steps}});
            if (step == steps / 2) maybe_end(name);
            if (step < steps) serve(number("load_ms", 20) / steps);
        }
    }

    void load() {
        const std::string lie = text("lie", "");
        if (lie == "garbled") write_all(std::stoi(flags_["--ready-fd"]), "this is no JSON\n");
        if (lie != "no_hello") say("hello", {{"pid", ::getpid()}, {"build", "0"}, {"config", ""}});
        if (lie == "hello_twice")
            say("hello", {{"pid", ::getpid()}, {"build", "0"}, {"config", ""}});
        if (lie == "no_hello") serve(-1);
        state_ = "LOADING";
        phase("LOADING");
        phase("WARMING");
        phase("SELFTEST");
        say("kernels", {{"kernels", json::array()}});
        say("selftest", {{"passed", true},
                         {"tokens_sha256", text("tokens", "same")},
                         {"prefill_tokens_per_s", 1.0},
                         {"decode_tokens_per_s", 1.0}});
        state_ = "READY";
        log("ready");
        say("ready", {{"gpu_uuids", {text("uuid", "CPU-" + flags_["--replica-index"])}}});
        maybe_end("READY");
    }

    /// Answers status requests, reads announcements and watches TERM and the death pipe, for
    /// `time_ms`, or for ever when negative.
    int serve(int time_ms) {
        const auto until = Clock::now() + Milliseconds(time_ms);
        for (;;) {
            const auto rest =
                std::chrono::duration_cast<Milliseconds>(until - Clock::now()).count();
            if (time_ms >= 0 && rest <= 0) return 0;
            std::vector<pollfd> fds{
                {.fd = std::stoi(flags_["--death-fd"]), .events = POLLIN, .revents = 0},
                {.fd = signal_fd_, .events = POLLIN, .revents = 0},
                {.fd = is_router_ ? -1 : kListenFd, .events = POLLIN, .revents = 0},
                {.fd = announce_fd(), .events = POLLIN, .revents = 0}};
            if (::poll(fds.data(), fds.size(), time_ms < 0 ? -1 : static_cast<int>(rest)) <= 0) {
                continue;
            }
            if (fds[0].revents != 0) {
                log("orphaned");
                std::_Exit(0);
            }
            if (fds[1].revents != 0) take_signals();
            if (fds[2].revents != 0) answer();
            if (fds[3].revents != 0) read_announcements();
        }
    }

    int announce_fd() {
        return is_router_ && !is_announce_over_ ? std::stoi(flags_["--announce-fd"]) : -1;
    }

    void take_signals() {
        signalfd_siginfo info{};
        bool is_term = false;
        while (::read(signal_fd_, &info, sizeof info) > 0) {
            if (info.ssi_signo == SIGHUP) hang_up();
            if (info.ssi_signo == SIGUSR1) hand_over();
            is_term = is_term || info.ssi_signo == SIGTERM || info.ssi_signo == SIGQUIT;
        }
        if (!is_term) return;
        log("term");
        if (launch_.value("ignore_term", false)) return;
        if (const int drain_ms = number("drain_ms", 0); drain_ms > 0 && !is_draining_) {
            is_draining_ = true;
            serve(drain_ms);
        }
        log("exit");
        std::_Exit(0);
    }

    void hang_up() {
        log("hup");
        if (launch_.value("die_on_hup", false)) ::raise(SIGKILL);
        const std::string words = launch_.value("tell_on_hup", "");
        if (!words.empty()) write_all(announce_fd(), words + "\n");
    }

    void hand_over() {
        log("usr1");
        if (launch_.value("keep_socket", false)) return;
        write_all(announce_fd(), "{\"router\":\"let_go\"}\n");
        serve(number("rest_ms", 0));
        log("exit");
        std::_Exit(0);
    }

    void answer() {
        const int client = ::accept4(kListenFd, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) return;
        char head[4096];
        [[maybe_unused]] const ssize_t got = ::read(client, head, sizeof head);
        const std::string body = json{
            {"v", 1},
            {"replica", std::stoi(flags_["--replica-index"])},
            {"instance", flags_["--instance"]},
            {"state", state_},
            {"seq", ++seq_},
            {"step", 7},
            {"running", number("running", 0)},
            {"sequences_max", 4},
            {"kv_blocks_free", 75},
            {"kv_blocks_total", 100}}.dump();
        write_all(client,
                  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                  "Content-Length: " +
                      std::to_string(body.size()) + "\r\n\r\n" + body);
        ::close(client);
    }

    void read_announcements() {
        char bytes[8192];
        const ssize_t got = ::read(announce_fd(), bytes, sizeof bytes);
        if (got <= 0) {
            is_announce_over_ = true;
            return;
        }
        announcements_.append(bytes, static_cast<std::size_t>(got));
        for (std::size_t end; (end = announcements_.find('\n')) != std::string::npos;) {
            const json line = json::parse(announcements_.substr(0, end));
            log("announced", {{"line", line}});
            announcements_.erase(0, end + 1);
            if (has_told_ || line["index"] != 0 || line["state"] != "READY") continue;
            has_told_ = true;
            for (const json& words : launch_.value("tell", json::array()))
                write_all(announce_fd(), words.get<std::string>() + "\n");
        }
    }

    std::map<std::string, std::string> flags_;
    bool is_router_ = false;
    std::string name_;
    int launch_number_ = 0;
    json launch_ = json::object();
    int signal_fd_ = -1;
    std::string state_ = "LOADING";
    int seq_ = 0;
    bool is_draining_ = false;
    bool is_announce_over_ = false;
    bool has_told_ = false;
    std::string announcements_;
};

int check_config() {
    std::ifstream file(environment("QUADRIGA_FAKE_SCRIPT"));
    const json script = json::parse(file, nullptr, false);
    if (!script.is_object() || !script.contains("router_check")) return 0;
    std::fputs((script["router_check"].get<std::string>() + "\n").c_str(), stderr);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "--gpu-architectures") {
        std::puts(environment("QUADRIGA_FAKE_ARCHITECTURES").c_str());
        return 0;
    }
    if (argc > 1 && std::string_view(argv[argc - 1]) == "--check-config") return check_config();
    return FakeChild(argc, argv).run();
}
