#include "tests/integration/router_fleet.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/http_client.h"
#include "proto/json.h"

namespace fleet {
namespace {

using Clock = std::chrono::steady_clock;

std::string program(const char* path) {
    return std::string(QUADRIGA_BINARY_DIR) + path;
}

/// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* arguments, char* const* environment, int stream, int pipe_end,
                         const std::vector<Child::Inherited>& fds) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves nothing behind
    ::dup2(pipe_end, stream);
    for (const Child::Inherited& one : fds) {
        // dup2 clears close-on-exec, except onto itself.
        one.fd == one.as ? ::fcntl(one.fd, F_SETFD, 0) : ::dup2(one.fd, one.as);
    }
    ::execve(arguments[0], arguments, environment);
    ::_exit(127);
}

bool has_all(const std::string& line, const std::vector<std::string>& parts) {
    return std::all_of(parts.begin(), parts.end(), [&line](const std::string& part) {
        return line.find(part) != std::string::npos;
    });
}

}  // namespace

Child::Child(std::vector<std::string> arguments, Listen listen, std::vector<Inherited> fds,
             std::vector<std::string> environment) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    std::vector<char*> argv;
    for (std::string& argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<char*> envp;
    for (std::string& variable : environment)
        envp.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable)
        envp.push_back(*variable);
    envp.push_back(nullptr);
    const int stream = listen == Listen::kStdout ? STDOUT_FILENO : STDERR_FILENO;
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) become(argv.data(), envp.data(), stream, ends[1], fds);
    ::close(ends[1]);
    reader_ = std::thread([this, fd = ends[0]] { read_lines(fd); });
}

Child::~Child() {
    if (!exit_) {
        ::kill(pid_, SIGKILL);
        ::kill(pid_, SIGCONT);
        ::waitpid(pid_, nullptr, 0);
    }
    reader_.join();
}

void Child::signal(int number) const {
    ::kill(pid_, number);
}

std::optional<int> Child::wait_exit() {
    // Its stream closes when it ends; that is the event to wait for.
    {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kPatience, [this] { return is_closed_; })) return std::nullopt;
    }
    int status = 0;
    if (!exit_ && ::waitpid(pid_, &status, 0) == pid_) {
        exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return exit_;
}

void Child::read_lines(int fd) {
    std::string partial;
    std::array<char, 4096> buffer;
    for (;;) {
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        partial.append(buffer.data(), static_cast<std::size_t>(got));
        const std::lock_guard lock(mutex_);
        for (std::size_t end = partial.find('\n'); end != std::string::npos;
             end = partial.find('\n')) {
            lines_.push_back(partial.substr(0, end));
            partial.erase(0, end + 1);
        }
        changed_.notify_all();
    }
    ::close(fd);
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
}

std::optional<std::string> Child::wait_line(const std::vector<std::string>& parts,
                                            std::size_t from) {
    const auto deadline = Clock::now() + kPatience;
    std::unique_lock lock(mutex_);
    for (std::size_t at = from;;) {
        for (; at < lines_.size(); ++at) {
            if (has_all(lines_[at], parts)) return lines_[at];
        }
        if (is_closed_ || changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
            return std::nullopt;
        }
    }
}

bool Child::wait_count(const std::string& part, std::size_t wanted) {
    const auto deadline = Clock::now() + kPatience;
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] {
        return static_cast<std::size_t>(
                   std::count_if(lines_.begin(), lines_.end(), [&part](const std::string& line) {
                       return line.find(part) != std::string::npos;
                   })) >= wanted;
    });
}

std::size_t Child::count(const std::string& part) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(
        lines_.begin(), lines_.end(),
        [&part](const std::string& line) { return line.find(part) != std::string::npos; }));
}

std::size_t Child::line_count() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
}

std::string Child::text() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& line : lines_)
        all += line + "\n";
    return all;
}

ReservedPort::ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw std::runtime_error("no free port");
    }
    port_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() {
    ::close(fd_);
}

Fake::Fake(int index, const std::vector<std::string>& flags, int port) {
    static int lives = 0;  // every process has an instance of its own, restarted ones too
    instance_ = "fa0000000000" + std::to_string(1000 + ++lives);
    std::vector<std::string> arguments = {program("/tests/fake_replica"),
                                          "--index",
                                          std::to_string(index),
                                          "--port",
                                          std::to_string(port),
                                          "--instance",
                                          instance_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    child_ = std::make_unique<Child>(std::move(arguments), Child::Listen::kStdout);
    const auto line = child_->wait_line({"listening "});
    if (!line) throw std::runtime_error("the fake replica did not start");
    port_ = std::stoi(line->substr(10));
}

std::size_t Fake::arrivals() const {
    const std::string count = proto::http_get(url() + "/fake/arrivals", kPatience).body;
    return count.empty() ? 0 : std::stoul(count);
}

Router::Router(const std::vector<std::string>& flags, std::vector<Child::Inherited> fds,
               const std::vector<std::string>& before) {
    std::vector<std::string> arguments = before;
    arguments.insert(arguments.end(),
                     {program("/bin/quadriga-router"), "--port", "0", "--drain-grace", "0"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    child_ = std::make_unique<Child>(std::move(arguments), Child::Listen::kStderr, std::move(fds));
    const auto line = child_->wait_line({"listening on http", "://127.0.0.1:"});
    if (!line) throw std::runtime_error("the router did not start:\n" + child_->text());
    port_ = std::stoi(line->substr(line->rfind(':') + 1));
}

bool Router::wait_state(int index, const std::string& state) {
    const std::string replica = "replica=" + std::to_string(index) + " ";
    return child_->wait_line({"event=replica_state", replica, "to=" + state}).has_value();
}

std::optional<double> Router::metric(const std::string& series) {
    const std::string text = "\n" + proto::http_get(url("/metrics"), kPatience).body;
    const std::size_t at = text.find("\n" + series + " ");
    if (at == std::string::npos) return std::nullopt;
    return std::strtod(text.c_str() + at + series.size() + 2, nullptr);
}

std::vector<std::string> replica_flags(const std::vector<std::unique_ptr<Fake>>& fakes) {
    std::vector<std::string> flags;
    for (const auto& fake : fakes) {
        flags.emplace_back("--replica");
        flags.push_back(fake->url());
    }
    return flags;
}

Fleet::Fleet(int count, const std::vector<std::string>& fake_flags,
             const std::vector<std::string>& router_flags) {
    for (int i = 0; i < count; ++i)
        fakes.push_back(std::make_unique<Fake>(i, fake_flags));
    std::vector<std::string> flags = replica_flags(fakes);
    flags.insert(flags.end(), router_flags.begin(), router_flags.end());
    router = std::make_unique<Router>(flags);
    for (int i = 0; i < count; ++i) {
        if (!router->wait_state(i, "READY")) throw std::runtime_error("a replica is not READY");
    }
}

std::string Fleet::wait_idle() {
    const auto deadline = Clock::now() + kPatience;
    std::string first_bad;
    do {  // each look is a round trip; the last event of a cancelled request is one or two turns
          // away
        first_bad.clear();
        std::string text = proto::http_get(router->url("/metrics"), kPatience).body;
        for (std::size_t at = 0; at < text.size() && first_bad.empty();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string line = text.substr(at, end - at);
            at = end + 1;
            const bool is_work = line.rfind("quadriga_router_requests_inflight{", 0) == 0 ||
                                 line.rfind("quadriga_router_queue_requests{", 0) == 0 ||
                                 line.rfind("quadriga_router_queue_bytes", 0) == 0 ||
                                 line.rfind("quadriga_router_body_bytes", 0) == 0 ||
                                 line.rfind("quadriga_router_upstream_inflight{", 0) == 0;
            if (is_work && line.substr(line.rfind(' ')) != " 0") first_bad = line;
        }
    } while (!first_bad.empty() && Clock::now() < deadline);
    return first_bad;
}

std::string digest_of(const std::string& key) {
    const std::string command = "printf %s '" + key + "' | sha256sum";
    std::string hex(64, '\0');
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr || std::fread(hex.data(), 1, hex.size(), pipe) != hex.size()) {
        throw std::runtime_error("sha256sum does not work");
    }
    ::pclose(pipe);
    return hex;
}

std::string chat_body(const std::string& text, bool stream, int max_tokens) {
    proto::Json body;
    body["model"] = "fake";
    body["messages"] = proto::Json::array({{{"role", "user"}, {"content", text}}});
    body["stream"] = stream;
    if (max_tokens > 0) body["max_tokens"] = max_tokens;
    return body.dump();
}

}  // namespace fleet
