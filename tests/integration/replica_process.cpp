#include "tests/integration/replica_process.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace replica::testing {
namespace {

std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    return ends;
}

/// The next bytes, "" at the end; throws when nothing comes.
std::string read_some(int fd) {
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kProcessPatience).count();
    if (::poll(&wanted, 1, static_cast<int>(ms)) <= 0)
        throw std::runtime_error("the replica is silent");
    std::array<char, 4096> buffer{};
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

ReplicaProcess::ReplicaProcess(std::vector<std::string> arguments) {
    const auto ready = make_pipe(), death = make_pipe(), error = make_pipe();
    std::vector<std::string> argv = {QUADRIGA_REPLICA, "--ready-fd", std::to_string(ready[1]),
                                     "--death-fd", std::to_string(death[0])};
    const auto add_unless_given = [&](const std::string& flag, const std::string& value) {
        if (std::find(arguments.begin(), arguments.end(), flag) != arguments.end()) return;
        argv.insert(argv.end(), {flag, value});
    };
    add_unless_given("--port", "0");
    add_unless_given("--model", QUADRIGA_SOURCE_DIR "/models/foal-iq4_xs.gguf");
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : argv)
        pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
        ::dup2(error[1], 2);
        for (const int fd : {ready[0], death[1], error[0], error[1]})
            ::close(fd);
        ::execv(pointers[0], pointers.data());
        ::_exit(127);
    }
    for (const int fd : {ready[1], death[0], error[1]})
        ::close(fd);
    ready_fd_ = ready[0];
    death_fd_ = death[1];
    error_fd_ = error[0];
}

ReplicaProcess::~ReplicaProcess() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        wait_for_exit();
    }
    for (const int fd : {ready_fd_, death_fd_, error_fd_}) {
        if (fd >= 0) ::close(fd);
    }
}

const std::vector<proto::PipeEvent>& ReplicaProcess::wait_until_ready() {
    while (!is_ready()) {
        const std::string bytes = read_some(ready_fd_);
        if (bytes.empty()) break;
        lines_.feed(bytes);
        while (const auto line = lines_.next()) {
            const auto event = proto::parse_pipe_event(*line);
            if (!event) throw std::runtime_error("a garbled line: " + *line);
            events_.push_back(*event);
        }
    }
    return events_;
}

bool ReplicaProcess::is_ready() const {
    return !events_.empty() && std::holds_alternative<proto::ReadyEvent>(events_.back().event);
}

int ReplicaProcess::port() {
    constexpr std::string_view kBefore = "listening on http://127.0.0.1:";
    for (;;) {
        const std::size_t begin = error_text_.find(kBefore);
        if (begin != std::string::npos && error_text_.find('\n', begin) != std::string::npos) {
            return std::stoi(error_text_.substr(begin + kBefore.size()));
        }
        const std::string bytes = read_some(error_fd_);
        if (bytes.empty()) throw std::runtime_error("it ended: " + error_text_);
        error_text_ += bytes;
    }
}

std::string ReplicaProcess::url(const std::string& path) {
    return "http://127.0.0.1:" + std::to_string(port()) + path;
}

proto::HttpResult ReplicaProcess::get(const std::string& path) {
    return proto::http_get(url(path), kProcessPatience);
}

proto::HttpResult ReplicaProcess::post(const std::string& path, std::string body) {
    return post(path, std::move(body), {});
}

proto::HttpResult ReplicaProcess::post(const std::string& path, std::string body,
                                       std::function<bool(std::string_view)> on_body) {
    proto::BlockingRequest request;
    request.url = url(path);
    request.method = "POST";
    request.body = std::move(body);
    request.timeout = kProcessPatience;
    if (on_body) {
        request.on_body = [on_body = std::move(on_body)](int, std::string_view bytes) {
            return on_body(bytes);
        };
    }
    return proto::http_call(std::move(request));
}

void ReplicaProcess::signal(int number) {
    ::kill(pid_, number);
}

void ReplicaProcess::close_death_pipe() {
    ::close(death_fd_);
    death_fd_ = -1;
}

int ReplicaProcess::wait_for_exit() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ReplicaProcess::fill_error_pipe() {
    const std::string path = "/proc/" + std::to_string(pid_) + "/fd/2";
    const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) throw std::runtime_error("its stderr cannot be opened");
    while (::write(fd, ".", 1) == 1) {
    }
    ::close(fd);
}

std::string ReplicaProcess::error_text() {
    for (;;) {
        const std::string bytes = read_some(error_fd_);
        if (bytes.empty()) return error_text_;
        error_text_ += bytes;
    }
}

double metric(const std::string& text, const std::string& beginning) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(beginning)) return std::stod(line.substr(line.rfind(' ') + 1));
    }
    return -1;
}

}  // namespace replica::testing
