// Runs the real `quadriga up` over fake_child in a folder of its own, on ephemeral ports, and reads
// what both wrote. Waiting means looking for an event until a deadline that only a failure reaches.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launcher_test {

using nlohmann::json;
inline constexpr std::chrono::seconds kPatience{20};

inline bool is_alive(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t end = text.rfind(')');
    return end != std::string::npos && text.size() > end + 2 && text[end + 2] != 'Z';
}

inline bool wait_until(const std::function<bool()>& is_true,
                       std::chrono::milliseconds patience = kPatience) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (!is_true()) {
        if (std::chrono::steady_clock::now() > limit) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

/// Starts a program with its output in files; the test reaps it.
inline pid_t start_process(std::vector<std::string> argv, const std::string& out,
                           const std::string& err) {
    std::vector<char*> raw;
    for (std::string& text : argv)
        raw.push_back(text.data());
    raw.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
        const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::dup2(out_fd, 1);
        ::dup2(err_fd, 2);
        ::execv(raw[0], raw.data());
        ::_exit(127);
    }
    return pid;
}

class LauncherTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "quadriga-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        std::filesystem::create_directory(folder_ + "/log");
        std::ofstream(folder_ + "/model.gguf") << "GGUF" << std::string(996, 'x');
        script(json::object());
        ::setenv("QUADRIGA_FAKE_SCRIPT", (folder_ + "/script.json").c_str(), 1);
        ::setenv("QUADRIGA_FAKE_LOG", (folder_ + "/log").c_str(), 1);
    }

    void TearDown() override {
        if (HasFailure()) {
            std::cerr << "stdout:\n" << read("out") << "stderr:\n" << read("err").substr(0, 8000);
        }
        if (launcher_ > 0) ::kill(launcher_, SIGKILL);
        if (launcher_ > 0) ::waitpid(launcher_, nullptr, 0);
        wait_until([&] { return living().empty(); });
        std::filesystem::remove_all(folder_);
    }

    void script(const json& launches) {
        std::ofstream(folder_ + "/script.json") << launches.dump();
    }

    std::string runtime_dir() const { return folder_ + "/run"; }

    /// `quadriga up` with everything ephemeral; `more` is appended.
    void up(std::vector<std::string> more = {}, int replicas = 2) {
        std::vector<std::string> argv{QUADRIGA_PROGRAM,
                                      "up",
                                      folder_ + "/model.gguf",
                                      "--layout",
                                      std::to_string(replicas) + "x1",
                                      "--port",
                                      "0",
                                      "--replica-port-base",
                                      "0",
                                      "--metrics-port",
                                      "0",
                                      "--runtime-dir",
                                      runtime_dir(),
                                      "--replica-program",
                                      FAKE_CHILD_PROGRAM,
                                      "--router-program",
                                      FAKE_CHILD_PROGRAM,
                                      "--drain-grace-s",
                                      "0",
                                      "--backoff-first-s",
                                      "0.05",
                                      "--backoff-max-s",
                                      "0.1"};
        argv.insert(argv.end(), more.begin(), more.end());
        launcher_ = start_process(argv, folder_ + "/out", folder_ + "/err");
    }

    /// Runs a subcommand to its end and returns its exit code.
    int command(std::vector<std::string> words, const std::string& name = "command") {
        words.insert(words.begin(), QUADRIGA_PROGRAM);
        words.insert(words.end(), {"--runtime-dir", runtime_dir()});
        const pid_t pid =
            start_process(words, folder_ + "/" + name + ".out", folder_ + "/" + name + ".err");
        int status = 0;
        ::waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    json status() {
        if (command({"status", "--json"}, "status") != 0) return json::object();
        return json::parse(read("status.out"), nullptr, false);
    }
    bool is_state(int replica, const std::string& state) {
        const json now = status();
        return now.contains("replicas") &&
               now["replicas"][static_cast<std::size_t>(replica)]["state"] == state;
    }

    /// The router's last news of a replica; null before the first.
    json last_announced(int index) {
        json last;
        for (const json& one : events("router", "announced")) {
            if (one["line"]["index"] == index) last = one["line"];
        }
        return last;
    }

    /// Waits for the launcher's end and returns its exit code, -1 when it does not end.
    int wait_for_end(std::chrono::milliseconds patience = kPatience) {
        int status = 0;
        if (!wait_until([&] { return ::waitpid(launcher_, &status, WNOHANG) == launcher_; },
                        patience)) {
            return -1;
        }
        launcher_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    std::string read(const std::string& name) const {
        std::ifstream file(folder_ + "/" + name);
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
    }

    /// What the fakes wrote, in order; a line being written is left out.
    std::vector<json> events() const {
        std::vector<json> all;
        std::istringstream lines(read("log/events.jsonl"));
        for (std::string line; std::getline(lines, line);) {
            json event = json::parse(line, nullptr, false);
            if (event.is_object()) all.push_back(std::move(event));
        }
        return all;
    }
    std::vector<json> events(const std::string& who, const std::string& what) const {
        std::vector<json> some;
        for (json& event : events()) {
            if (event["who"] == who && event["what"] == what) some.push_back(event);
        }
        return some;
    }
    bool wait_for(const std::string& who, const std::string& what, std::size_t count = 1) {
        return wait_until([&] { return events(who, what).size() >= count; });
    }
    pid_t pid_of(const std::string& who) const {
        const auto starts = events(who, "start");
        return starts.empty() ? -1 : starts.back()["pid"].get<pid_t>();
    }
    /// Pids of fakes that still run.
    std::vector<pid_t> living() const {
        std::vector<pid_t> pids;
        for (const json& event : events()) {
            const pid_t pid = event["pid"].get<pid_t>();
            if (event["what"] == "start" && is_alive(pid)) pids.push_back(pid);
        }
        return pids;
    }

    std::string folder_;
    pid_t launcher_ = -1;
};

}  // namespace launcher_test
