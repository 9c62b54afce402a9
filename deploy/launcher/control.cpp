#include "deploy/launcher/control.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/json.h"

namespace deploy {
namespace {

using boost::asio::as_tuple;
using boost::asio::use_awaitable;
using nlohmann::json;

constexpr std::size_t kLineBytesMax = 64 * 1024;
constexpr std::size_t kAnswerBytesMax = 16 * 1024 * 1024;
constexpr std::size_t kConnectionsMax = 32;
constexpr std::chrono::seconds kRequestTime{10};  // for its line, and again for taking the answer

json refused(std::string error, int exit_code) {
    return {{"ok", false}, {"error", std::move(error)}, {"exit_code", exit_code}};
}

std::optional<Order> order_of(const std::string& command) {
    if (command == "retry") return Order::kRetry;
    if (command == "restart") return Order::kRestart;
    if (command == "drain") return Order::kDrain;
    if (command == "undrain") return Order::kUndrain;
    return std::nullopt;
}

bool is_peer_allowed(int fd) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           may_command(peer.uid, peer.gid);
}

}  // namespace

bool may_command(unsigned peer_uid, unsigned peer_gid) {
    if (peer_uid == 0 || peer_uid == ::geteuid()) return true;
    const group* quadriga = ::getgrnam("quadriga");
    return quadriga != nullptr && quadriga->gr_gid == peer_gid;
}

ControlServer::ControlServer(boost::asio::io_context& context, UniqueFd listen_fd,
                             Supervisor& supervisor)
    : context_(context),
      acceptor_(context, boost::asio::local::stream_protocol(), listen_fd.release()),
      supervisor_(supervisor) {}

void ControlServer::start() {
    boost::asio::co_spawn(context_, accept_all(), boost::asio::detached);
}

boost::asio::awaitable<void> ControlServer::accept_all() {
    for (;;) {
        auto [error, peer] = co_await acceptor_.async_accept(as_tuple(use_awaitable));
        if (error == boost::asio::error::operation_aborted || !acceptor_.is_open()) co_return;
        if (error) {  // out of descriptors: pause instead of spinning
            boost::asio::steady_timer pause(context_, std::chrono::milliseconds(100));
            co_await pause.async_wait(as_tuple(use_awaitable));
            continue;
        }
        if (!is_peer_allowed(peer.native_handle())) continue;
        auto socket = std::make_shared<Socket>(std::move(peer));
        if (!make_room()) {
            refuse(*socket);
            continue;
        }
        guests_->all.insert(socket);
        guests_->silent.push_back(socket);
        boost::asio::co_spawn(context_, serve(std::move(socket)), boost::asio::detached);
    }
}

/// Who says nothing must not keep others out: the one that has been silent longest is closed.
bool ControlServer::make_room() {
    if (guests_->all.size() < kConnectionsMax) return true;
    if (guests_->silent.empty()) return false;  // all have asked for something
    const std::shared_ptr<Socket> oldest = guests_->silent.front();
    guests_->leave(oldest);
    boost::system::error_code ignored;
    oldest->close(ignored);
    return true;
}

/// Without a wait: it has just connected, so there is room for a line.
void ControlServer::refuse(Socket& socket) {
    const std::string text =
        proto::json_text(refused("the launcher is answering " + std::to_string(kConnectionsMax) +
                                     " others at this moment; try again",
                                 exit_code_of(FailureClass::kBusy))) +
        "\n";
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(boost::asio::buffer(text), ignored);
}

void ControlServer::Guests::leave(const std::shared_ptr<Socket>& socket) {
    all.erase(socket);
    silent.remove(socket);
}

boost::asio::awaitable<void> ControlServer::serve(std::shared_ptr<Socket> socket) {
    const std::shared_ptr<Guests> guests = guests_;  // this may be gone before the frame is
    const auto leave = [guests, socket](void*) { guests->leave(socket); };  // whatever happens
    const std::unique_ptr<void, decltype(leave)> counted(guests.get(), leave);
    const auto close_when_over = [socket](boost::system::error_code error) {
        if (!error) socket->close();
    };
    boost::asio::steady_timer limit(context_, kRequestTime);
    limit.async_wait(close_when_over);
    std::string line;
    auto [error, size] = co_await boost::asio::async_read_until(
        *socket, boost::asio::dynamic_buffer(line, kLineBytesMax), '\n', as_tuple(use_awaitable));
    limit.cancel();
    guests->silent.remove(socket);
    if (!error && socket->is_open()) {
        const json request = json::parse(line.substr(0, size), nullptr, false);
        const json outcome = co_await answer(request);
        const std::string text = proto::json_text(outcome) + "\n";
        limit.expires_after(kRequestTime);
        limit.async_wait(close_when_over);
        const auto [write_error, written] = co_await boost::asio::async_write(
            *socket, boost::asio::buffer(text), as_tuple(use_awaitable));
        limit.cancel();
        if (!write_error && request.is_object() && request.value("command", json()) == "down") {
            // Who is too many sees the end by the end of the connection.
            if (waiting_for_end_.size() < kConnectionsMax) waiting_for_end_.push_back(socket);
            supervisor_.ask_stop();
        }
    }
}

boost::asio::awaitable<json> ControlServer::answer(const json& request) {
    if (!request.is_object() || !request.contains("command") || !request["command"].is_string()) {
        co_return refused("a JSON object with a string \"command\" is wanted", 2);
    }
    const std::string command = request["command"].get<std::string>();
    if (command == "status") {
        json status = co_await supervisor_.fresh_status();
        co_return json{{"ok", true}, {"status", std::move(status)}};
    }
    if (command == "reload") {
        json outcome = co_await supervisor_.reload();
        co_return outcome;
    }
    if (command == "restart_router") {
        json outcome = co_await supervisor_.restart_router();
        co_return outcome;
    }
    if (command == "down") co_return json{{"ok", true}, {"pid", ::getpid()}};
    const std::optional<Order> order = order_of(command);
    if (!order.has_value()) co_return refused("unknown command", 2);
    if (!request.contains("replica") || !request["replica"].is_number_unsigned() ||
        request["replica"].get<std::uint64_t>() > std::numeric_limits<int>::max()) {
        co_return refused("the number of a replica is wanted", 2);
    }
    const ReplicaOrder replica_order{request["replica"].get<int>(), *order};
    const std::string refusal = supervisor_.refusal(replica_order);
    if (!refusal.empty()) co_return refused(refusal, 2);
    supervisor_.give(replica_order);
    co_return json{{"ok", true}};
}

void ControlServer::finish(int code) {
    const std::string text =
        proto::json_text(json{{"ok", true}, {"stopped", true}, {"code", code}}) + "\n";
    for (const auto& socket : waiting_for_end_) {
        boost::system::error_code ignored;
        boost::asio::write(*socket, boost::asio::buffer(text), ignored);
        socket->close(ignored);
    }
    waiting_for_end_.clear();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
}

std::optional<ControlClient> ControlClient::connect(const std::string& runtime_dir) {
    UniqueFd fd = connect_unix(runtime_dir + "/control.sock");
    if (!fd) return std::nullopt;
    return ControlClient(std::move(fd));
}

json ControlClient::ask(const json& request) {
    const std::string text = proto::json_text(request) + "\n";
    if (::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(text.size())) {
        return refused("the launcher went away", 1);
    }
    json answer = read();
    return answer.empty() ? refused("the launcher closed the connection: is this user allowed?", 1)
                          : answer;
}

json ControlClient::read() {
    for (;;) {
        if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
            json line = json::parse(buffer_.substr(0, end), nullptr, false);
            buffer_.erase(0, end + 1);
            return line.is_object() ? line : json::object();
        }
        if (buffer_.size() > kAnswerBytesMax) return json::object();
        char chunk[4096];
        const ssize_t got = ::read(fd_.get(), chunk, sizeof chunk);
        if (got <= 0) return json::object();
        buffer_.append(chunk, static_cast<std::size_t>(got));
    }
}

int ControlClient::peer_pid() const {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return 0;
    return peer.pid;
}

}  // namespace deploy
