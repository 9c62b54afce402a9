#include "proto/socket_options.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace proto {
namespace {

void set_int(int fd, int level, int option, int value) {
    static_cast<void>(::setsockopt(fd, level, option, &value, sizeof(value)));
}

}  // namespace

void set_close_on_exec(int fd) {
    static_cast<void>(::fcntl(fd, F_SETFD, FD_CLOEXEC));
}

void set_stream_options(int fd) {
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace proto
