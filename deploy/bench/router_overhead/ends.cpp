#include "deploy/bench/router_overhead/ends.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace deploy::overhead {
namespace {

constexpr int kBacklog = 4096;

void check(bool is_good, const char* what) {
    if (!is_good) throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

}  // namespace

int listen_on(std::uint16_t& port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "socket");
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = loopback(port);
    check(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "bind");
    check(::listen(fd, kBacklog) == 0, "listen");
    socklen_t size = sizeof(address);
    check(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
    port = ntohs(address.sin_port);
    prepare(fd);
    return fd;
}

int connect_to(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "socket");
    sockaddr_in address = loopback(port);
    check(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "connect");
    prepare(fd);
    return fd;
}

void prepare(int fd) {
    check(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

double cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Waiter::Waiter() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    check(epoll_ >= 0, "epoll_create1");
}

Waiter::~Waiter() {
    ::close(epoll_);
}

void Waiter::add(int fd, std::uint64_t tag, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = tag}};
    check(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

void Waiter::change(int fd, std::uint64_t tag, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = tag}};
    check(::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0, "epoll_ctl");
}

int Waiter::wait(Clock::time_point until) {
    if (!timers_.empty()) until = std::min(until, timers_.top().when);
    const auto left = std::max(until - Clock::now(), Clock::duration::zero());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
    const int count =
        ::epoll_pwait2(epoll_, events_.data(), static_cast<int>(events_.size()), &timeout, nullptr);
    check(count >= 0 || errno == EINTR, "epoll_pwait2");
    return std::max(count, 0);
}

}  // namespace deploy::overhead
