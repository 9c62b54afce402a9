// Processes for tests of the router: the real quadriga-router in front of scripted replicas.
//
// Every child writes lines (its log, its arrivals) into a pipe that a reader thread collects, so a
// test waits for what happened, never for time: `wait_line` returns as soon as the line is there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace fleet {

/// Long enough for a loaded machine, short enough to fail visibly. Nothing waits this long when
/// all is well.
inline constexpr std::chrono::seconds kPatience{20};

class Child {
public:
    enum class Listen { kStdout, kStderr };  // which of its streams is collected
    struct Inherited {
        int fd = -1;  // ours; becomes `as` in the child
        int as = -1;
    };
    Child(std::vector<std::string> arguments, Listen listen, std::vector<Inherited> fds = {},
          std::vector<std::string> environment = {});
    /// Kills the process and waits for it.
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void signal(int number) const;
    /// The exit code, or minus the signal; none when it still runs after kPatience.
    std::optional<int> wait_exit();

    /// The first line that has all of `parts`, from line `from` on; none after kPatience or when
    /// the process has closed its stream.
    std::optional<std::string> wait_line(const std::vector<std::string>& parts,
                                         std::size_t from = 0);
    /// Waits until `count` lines contain `part`.
    bool wait_count(const std::string& part, std::size_t count);
    [[nodiscard]] std::size_t count(const std::string& part);
    [[nodiscard]] std::size_t line_count();
    [[nodiscard]] std::string text();

private:
    void read_lines(int fd);

    pid_t pid_ = -1;
    std::optional<int> exit_;
    std::mutex mutex_;  // guards lines_ and is_closed_
    std::condition_variable changed_;
    std::vector<std::string> lines_;
    bool is_closed_ = false;
    std::thread reader_;
};

/// A port that refuses connections until a replica listens on it, and that nobody else gets
/// meanwhile: bound, not listening, address reuse allowed.
class ReservedPort {
public:
    ReservedPort();
    ~ReservedPort();
    ReservedPort(const ReservedPort&) = delete;
    ReservedPort& operator=(const ReservedPort&) = delete;
    [[nodiscard]] int port() const { return port_; }

private:
    int fd_ = -1;
    int port_ = 0;
};

/// A scripted replica (tests/support/fake_replica.h has its flags).
class Fake {
public:
    explicit Fake(int index, const std::vector<std::string>& flags = {}, int port = 0);

    [[nodiscard]] int port() const { return port_; }
    [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    [[nodiscard]] const std::string& instance() const { return instance_; }
    Child& process() { return *child_; }
    /// Generations that have arrived so far, as the replica counts them.
    [[nodiscard]] std::size_t arrivals() const;

private:
    std::string instance_;
    std::unique_ptr<Child> child_;
    int port_ = 0;
};

class Router {
public:
    /// `before`: words in front of the program's, as "prlimit …".
    explicit Router(const std::vector<std::string>& flags, std::vector<Child::Inherited> fds = {},
                    const std::vector<std::string>& before = {});

    [[nodiscard]] int port() const { return port_; }
    [[nodiscard]] std::string url(const std::string& path) const {
        return "http://127.0.0.1:" + std::to_string(port_) + path;
    }
    Child& process() { return *child_; }
    /// Waits until the log says that replica `index` is in `state` (the latest word counts).
    bool wait_state(int index, const std::string& state);
    /// Value of one series of /metrics, with its labels as printed; none when it is not there.
    std::optional<double> metric(const std::string& series);

private:
    std::unique_ptr<Child> child_;
    int port_ = 0;
};

/// `count` replicas with the same flags and a router in front, all READY.
struct Fleet {
    explicit Fleet(int count, const std::vector<std::string>& fake_flags = {},
                   const std::vector<std::string>& router_flags = {});

    /// Waits until every gauge of work in the router is exactly zero; the first that is not.
    std::string wait_idle();

    std::vector<std::unique_ptr<Fake>> fakes;
    std::unique_ptr<Router> router;
};

/// SHA-256 of a key as hex digits, by the tool that the documentation names.
std::string digest_of(const std::string& key);

/// `--replica URL` for each.
std::vector<std::string> replica_flags(const std::vector<std::unique_ptr<Fake>>& fakes);

/// Bodies of requests; `text` holds the directives of the fake.
std::string chat_body(const std::string& text, bool stream, int max_tokens = 0);

}  // namespace fleet
