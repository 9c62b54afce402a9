// Sockets first: every port is bound and listening before anything loads, so that a taken port is
// an immediate error that names its holder, and a foreign server can never be mistaken for ours.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/launcher/unique_fd.h"

namespace deploy {

struct ListenSocket {
    UniqueFd fd;  // non-blocking, close-on-exec
    std::uint16_t port = 0;
};

/// Binds and listens on `host`:`port` (an IPv4 or IPv6 address; port 0 takes a free one). `purpose`
/// is for the error text, for example "replica 2". Throws StartError: kPort with the holder's pid,
/// start time and command line; kConfig for an address that is none.
ListenSocket listen_tcp(const std::string& host, std::uint16_t port, const std::string& purpose);

/// Binds and listens on a Unix socket, replacing a stale file. Mode 0660. Throws StartError.
UniqueFd listen_unix(const std::string& path);
/// Connects; empty when nobody listens there.
UniqueFd connect_unix(const std::string& path);

/// Accepts whatever waits on `listen_fd` and closes it at once. Returns how many.
int close_waiting(int listen_fd);

}  // namespace deploy
