// Starts a child process: fork, a few async-signal-safe calls, exec. Nothing else happens between
// fork and exec, because device libraries may own threads in the launcher.
//
// The child gets its own process group, dies with its parent (PR_SET_PDEATHSIG and a getppid
// check), and holds exactly the descriptors it is given: numbered 3, 4, 5 ... in the order of
// `fds`, with 0 from /dev/null and 1 and 2 into `output`. Everything else is closed.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "deploy/launcher/unique_fd.h"

namespace deploy {

inline constexpr int kFirstChildFd = 3;

struct Pipe {
    UniqueFd read;
    UniqueFd write;
};
/// Closed in children unless it is given to them. Throws std::system_error.
Pipe make_pipe();

struct SpawnRequest {
    std::string program;                   // path, exec'd as it is
    std::vector<std::string> argv;         // without argv[0], which is `program`
    std::vector<int> fds;                  // become kFirstChildFd, kFirstChildFd + 1, ...
    bool has_listen_socket = false;        // fds[0] is passed by the LISTEN_FDS convention
    int output_fd = -1;                    // stdout and stderr of the child
    int death_signal = 9;                  // sent by the kernel when the launcher ends
    std::vector<int> ignored_signals;      // ignored from the start, until the child handles them
    std::vector<std::string> environment;  // "NAME=value", in place of the launcher's own
    std::vector<int> cpus;                 // cores it may run on; empty: no restriction
};

struct SpawnedProcess {
    pid_t pid = -1;
    UniqueFd pidfd;  // empty on kernels without it
};

/// Blocks until the exec has happened (microseconds). Throws std::system_error when fork or exec
/// fails.
SpawnedProcess spawn(const SpawnRequest& request);

/// Sends by pidfd where there is one, else by pid. False: the process is gone.
bool send_signal(const SpawnedProcess& process, int signal);
/// To the whole process group that spawn() made.
bool send_group_signal(pid_t pid, int signal);

/// Start time of `pid` in clock ticks since boot, 0 when there is no such process (or it is a
/// zombie): pid and start time together name a process for good.
unsigned long long start_ticks_of(pid_t pid);

}  // namespace deploy
