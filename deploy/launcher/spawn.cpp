#include "deploy/launcher/spawn.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char** environ;

namespace deploy {
namespace {

/// Where the child parks its descriptors before it puts them in place: above all of those places,
/// and low, so that a small limit of descriptors still has room.
constexpr int kParking = 32;
constexpr std::size_t kPidDigitsMax = 12;

int pidfd_open(pid_t pid) {
    return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

/// Everything the child needs, prepared before the fork: it must not allocate.
struct Prepared {
    std::vector<char*> argv;
    std::vector<std::string> environment_text;
    std::vector<char*> environment;
    char* listen_pid = nullptr;  // where LISTEN_PID's digits go
    cpu_set_t cpus{};
    int null_fd = -1;
    int status_fd = -1;
    pid_t parent = 0;
};

bool is_inherited(const char* entry) {
    for (const char* name : {"LISTEN_FDS=", "LISTEN_PID=", "LISTEN_FDNAMES=", "NOTIFY_SOCKET=",
                             "WATCHDOG_USEC=", "WATCHDOG_PID="}) {
        if (std::strncmp(entry, name, std::strlen(name)) == 0) return false;
    }
    return true;
}

Prepared prepare(const SpawnRequest& request) {
    Prepared prepared;
    prepared.argv.push_back(const_cast<char*>(request.program.c_str()));
    for (const std::string& text : request.argv) {
        prepared.argv.push_back(const_cast<char*>(text.c_str()));
    }
    prepared.argv.push_back(nullptr);
    const auto is_replaced = [&request](const char* entry) {
        const std::string_view name(entry, std::strcspn(entry, "="));
        return std::ranges::any_of(request.environment, [&](const std::string& own) {
            return own.substr(0, own.find('=')) == name;
        });
    };
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (is_inherited(*entry) && !is_replaced(*entry))
            prepared.environment_text.emplace_back(*entry);
    }
    prepared.environment_text.insert(prepared.environment_text.end(), request.environment.begin(),
                                     request.environment.end());
    if (request.has_listen_socket) {
        prepared.environment_text.emplace_back("LISTEN_FDS=1");
        prepared.environment_text.emplace_back("LISTEN_PID=" + std::string(kPidDigitsMax, '\0'));
        prepared.listen_pid = prepared.environment_text.back().data() + std::strlen("LISTEN_PID=");
    }
    for (std::string& text : prepared.environment_text) {
        prepared.environment.push_back(text.data());
    }
    prepared.environment.push_back(nullptr);
    // The short string of LISTEN_PID must not have moved: its vector is complete above.
    if (request.has_listen_socket) {
        prepared.listen_pid = prepared.environment_text.back().data() + std::strlen("LISTEN_PID=");
    }
    CPU_ZERO(&prepared.cpus);
    for (int cpu : request.cpus)
        CPU_SET(static_cast<unsigned>(cpu), &prepared.cpus);
    prepared.parent = ::getpid();
    return prepared;
}

void write_digits(char* out, pid_t pid) {
    char digits[kPidDigitsMax];
    std::size_t count = 0;
    for (; pid > 0 && count < sizeof digits - 1; pid /= 10) {
        digits[count++] = static_cast<char>('0' + pid % 10);
    }
    for (std::size_t i = 0; i < count; ++i)
        out[i] = digits[count - 1 - i];
    out[count] = '\0';
}

/// In the child. Async-signal-safe calls only.
[[noreturn]] void become(const SpawnRequest& request, Prepared& prepared) {
    const auto fail = [&prepared]() {
        const int error = errno;
        [[maybe_unused]] const ssize_t ignored = ::write(prepared.status_fd, &error, sizeof error);
        ::_exit(127);
    };
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, request.death_signal);
    if (::getppid() != prepared.parent) ::_exit(127);  // it died before the prctl
    for (int signal = 1; signal < NSIG; ++signal)
        ::signal(signal, SIG_DFL);
    for (const int number : request.ignored_signals)
        ::signal(number, SIG_IGN);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (!request.cpus.empty()) ::sched_setaffinity(0, sizeof prepared.cpus, &prepared.cpus);

    // First out of the way, then into place; the status pipe keeps its close-on-exec.
    const int count = static_cast<int>(request.fds.size());
    const int status_fd = ::fcntl(prepared.status_fd, F_DUPFD_CLOEXEC, kParking);
    const int output_fd = ::fcntl(request.output_fd, F_DUPFD_CLOEXEC, kParking);
    const int null_fd = ::fcntl(prepared.null_fd, F_DUPFD_CLOEXEC, kParking);
    if (status_fd < 0 || output_fd < 0 || null_fd < 0) fail();
    prepared.status_fd = status_fd;
    constexpr int kFdsMax = 16;
    static_assert(kFirstChildFd + kFdsMax <= kParking);
    int parked[kFdsMax];
    if (count > kFdsMax) fail();
    for (int i = 0; i < count; ++i) {
        parked[i] = ::fcntl(request.fds[static_cast<std::size_t>(i)], F_DUPFD_CLOEXEC, kParking);
        if (parked[i] < 0) fail();
    }
    if (::dup2(null_fd, 0) < 0 || ::dup2(output_fd, 1) < 0 || ::dup2(output_fd, 2) < 0) fail();
    for (int i = 0; i < count; ++i) {
        if (::dup2(parked[i], kFirstChildFd + i) < 0) fail();
    }
    ::syscall(SYS_close_range, kFirstChildFd + count, kParking - 1, 0);
    ::syscall(SYS_close_range, kParking, ~0U, 1U << 2);  // CLOSE_RANGE_CLOEXEC
    if (prepared.listen_pid != nullptr) write_digits(prepared.listen_pid, ::getpid());
    ::execve(request.program.c_str(), prepared.argv.data(), prepared.environment.data());
    fail();
    ::_exit(127);
}

}  // namespace

Pipe make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        throw std::system_error(errno, std::generic_category(), "pipe");
    }
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

SpawnedProcess spawn(const SpawnRequest& request) {
    Prepared prepared = prepare(request);
    const UniqueFd null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    int status_pipe[2];
    if (!null_fd || ::pipe2(status_pipe, O_CLOEXEC) != 0) {
        throw std::system_error(errno, std::generic_category(), "pipe");
    }
    const UniqueFd read_end(status_pipe[0]);
    UniqueFd write_end(status_pipe[1]);
    prepared.null_fd = null_fd.get();
    prepared.status_fd = write_end.get();

    const pid_t pid = ::fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid == 0) become(request, prepared);

    SpawnedProcess process;
    process.pid = pid;
    process.pidfd = UniqueFd(pidfd_open(pid));
    ::setpgid(pid, pid);  // also here: a signal to the group may come before the child has run
    write_end.reset();
    int error = 0;
    ssize_t got = 0;
    do {
        got = ::read(read_end.get(), &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof error)) {
        ::waitpid(pid, nullptr, 0);
        throw std::system_error(error, std::generic_category(), "cannot start " + request.program);
    }
    return process;
}

bool send_signal(const SpawnedProcess& process, int signal) {
    if (process.pidfd) {
        return ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), signal, nullptr, 0) == 0;
    }
    return process.pid > 0 && ::kill(process.pid, signal) == 0;
}

bool send_group_signal(pid_t pid, int signal) {
    return pid > 1 && ::kill(-pid, signal) == 0;
}

unsigned long long start_ticks_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return 0;
    // The command name may contain anything, so count fields from the last parenthesis.
    const std::size_t end = line.rfind(')');
    if (end == std::string::npos) return 0;
    std::istringstream rest(line.substr(end + 1));
    std::string field;
    for (int number = 3; rest >> field; ++number) {
        if (number == 3 && (field == "Z" || field == "X")) return 0;
        if (number == 22) return std::strtoull(field.c_str(), nullptr, 10);
    }
    return 0;
}

}  // namespace deploy
