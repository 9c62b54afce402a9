#include "deploy/launcher/sockets.h"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "deploy/launcher/failure.h"
#include "deploy/launcher/port_holder.h"

namespace deploy {
namespace {

constexpr int kUnixSendSeconds = 3;  // connecting included

constexpr int kBacklog = 1024;

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;
};

Address parse_address(const std::string& host, std::uint16_t port) {
    Address address;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        address.length = sizeof(sockaddr_in);
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        address.length = sizeof(sockaddr_in6);
    } else {
        throw StartError({.kind = FailureClass::kConfig,
                          .what = "host '" + host + "' is not an address",
                          .why = "an IPv4 or IPv6 address is needed, names are not looked up",
                          .fix = "for example --host 127.0.0.1"});
    }
    return address;
}

Failure taken(const std::string& host, std::uint16_t port, const std::string& purpose, int error) {
    Failure failure{.kind = FailureClass::kPort};
    failure.what = "port " + std::to_string(port) + " (" + purpose + ") cannot be used";
    failure.why = std::strerror(error);
    failure.fix = "use another port: --port, --replica-port-base, --metrics-port";
    if (error == EADDRINUSE) {
        failure.what = "port " + std::to_string(port) + " (" + purpose + ") is in use";
        const std::optional<ProcessName> holder = holder_of_port(port);
        failure.why = holder.has_value() ? "held by " + to_text(*holder)
                                         : "its holder belongs to another user or namespace";
        failure.fix = "stop it, or " + failure.fix;
    } else if (error == EADDRNOTAVAIL) {
        failure.fix = "address " + host + " is not one of this machine: see --host";
    }
    return failure;
}

sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        throw StartError({.kind = FailureClass::kConfig,
                          .what = "the runtime folder's path is too long for a socket",
                          .why = path + " has more than " +
                                 std::to_string(sizeof address.sun_path - 1) + " bytes",
                          .fix = "use a shorter --runtime-dir"});
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

}  // namespace

ListenSocket listen_tcp(const std::string& host, std::uint16_t port, const std::string& purpose) {
    const Address address = parse_address(host, port);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address.storage);
    ListenSocket result;
    result.fd = UniqueFd(::socket(address.storage.ss_family,
                                  SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    const int on = 1;
    // SO_REUSEADDR passes over connections in TIME_WAIT; never SO_REUSEPORT, which would share.
    if (!result.fd ||
        ::setsockopt(result.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(result.fd.get(), generic, address.length) != 0 ||
        ::listen(result.fd.get(), kBacklog) != 0) {
        throw StartError(taken(host, port, purpose, errno));
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    ::getsockname(result.fd.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    result.port = ntohs(bound.ss_family == AF_INET
                            ? reinterpret_cast<const sockaddr_in*>(&bound)->sin_port
                            : reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port);
    return result;
}

UniqueFd listen_unix(const std::string& path) {
    const sockaddr_un address = unix_address(path);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::unlink(path.c_str());
    const mode_t old_mask = ::umask(0117);
    const bool is_bound =
        fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const int error = errno;
    ::umask(old_mask);
    if (!is_bound || ::listen(fd.get(), 16) != 0) {
        throw StartError({.kind = FailureClass::kInternal,
                          .what = "cannot listen on " + path,
                          .why = std::strerror(error),
                          .fix = "check the rights of the runtime folder, or use --runtime-dir"});
    }
    return fd;
}

UniqueFd connect_unix(const std::string& path) {
    const sockaddr_un address = unix_address(path);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // A listener that hangs takes no more than its backlog; whoever asks must not hang with it.
    const timeval limit{.tv_sec = kUnixSendSeconds, .tv_usec = 0};
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (!fd ||
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return {};
    }
    return fd;
}

int close_waiting(int listen_fd) {
    int count = 0;
    for (;;) {
        const UniqueFd client(::accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) return count;
        ++count;
    }
}

}  // namespace deploy
