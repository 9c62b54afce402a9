// What both ends of our connections ask of the kernel: no delay for small writes, and a look after
// a peer that has been silent for half a minute. Seen on the sockets of this very process.
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_future.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "proto/http_client.h"
#include "tests/unit/proto/support/running_server.h"

namespace proto_test {
namespace {

namespace asio = boost::asio;

/// Connected TCP sockets of this process.
std::vector<int> connected_sockets() {
    constexpr int kDescriptorsLookedAt = 1024;
    std::vector<int> found;
    for (int fd = 0; fd < kDescriptorsLookedAt; ++fd) {
        sockaddr_storage peer{};
        socklen_t size = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
        if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) found.push_back(fd);
    }
    return found;
}

int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(fd, level, name, &value, &size);
    return value;
}

asio::awaitable<int> fetch_status(proto::HttpClient& client, std::uint16_t port) {
    proto::HttpClientRequest request;
    proto::Endpoint endpoint("127.0.0.1", port);
    auto answer = co_await client.request(std::move(endpoint), std::move(request));
    if (!answer) co_return 0;
    (void)co_await answer->read_all(std::size_t{1} << 20);
    co_return answer->status;
}

TEST(SocketOptionsTest, BothEndsOfAConnectionSendAtOnceAndLookAfterASilentPeer) {
    RunningServer server({}, [](proto::HttpExchange& exchange) -> asio::awaitable<void> {
        proto::HttpResponse answer = proto::text_response("hi");
        (void)co_await exchange.send(std::move(answer));
    });
    Loop loop;
    std::optional<proto::HttpClient> client(std::in_place, loop.context.get_executor());
    EXPECT_EQ(loop.run(fetch_status(*client, server.server->port())), 200);
    const std::vector<int> sockets = connected_sockets();  // kept alive, so both ends are there
    EXPECT_EQ(sockets.size(), 2U);
    for (const int fd : sockets) {
        EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
        EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 30) << "seconds";
    }
    loop.call([&] { client.reset(); });
}

}  // namespace
}  // namespace proto_test
