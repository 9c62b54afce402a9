// Who holds a TCP port: procfs only. /proc/net/tcp* gives the inode of the listening socket, and
// the process with a descriptor "socket:[inode]" is the holder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace deploy {

struct ProcessName {
    pid_t pid = 0;
    std::string command;  // command line, at most 128 characters, unprintable ones replaced
    std::string started;  // "2024-05-01 14:02:11" local time, empty if unknown
};

/// Inodes of the sockets that listen on `port`, from the text of /proc/net/tcp or tcp6.
std::vector<std::uint64_t> listening_inodes(std::string_view proc_net_tcp, std::uint16_t port);

/// The process that listens on `port`; none when procfs does not show it to us.
std::optional<ProcessName> holder_of_port(std::uint16_t port);

/// Command line and start time of a process; none when it is gone.
std::optional<ProcessName> describe_process(pid_t pid);

/// "pid 4711 (python3 -m http.server 8080), started 2024-05-01 14:02:11"
std::string to_text(const ProcessName& name);

}  // namespace deploy
