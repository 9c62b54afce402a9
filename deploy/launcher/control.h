// The control socket: one JSON line asked, JSON lines answered.
//
//   {"command":"status"}                ▶ {"ok":true,"status":{...}}
//   {"command":"retry","replica":3}     ▶ {"ok":true}          also restart, drain, undrain
//   {"command":"reload"}                ▶ {"ok":true,"done":["keys: 2"]}
//   {"command":"restart_router"}        ▶ {"ok":true,"pid":4712,"earlier_pid":4711,
//                                          "is_alone":true,"not_applied":[]}
//   {"command":"down"}                  ▶ {"ok":true,"pid":4711}   then, when all has ended,
//                                         {"ok":true,"stopped":true,"code":0}
//   anything else                       ▶ {"ok":false,"error":"...","exit_code":2}
//
// The peer must be root, of our uid, or in the group `quadriga`; the kernel says who it is. Of at
// most 32 at once the one that has been silent longest makes room for the next.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <nlohmann/json.hpp>

#include "deploy/launcher/supervisor.h"
#include "deploy/launcher/unique_fd.h"

namespace deploy {

class ControlServer {
public:
    /// `listen_fd` is a listening Unix socket. The supervisor outlives the server.
    ControlServer(boost::asio::io_context& context, UniqueFd listen_fd, Supervisor& supervisor);
    void start();
    /// Tells those who wait for `down`, and closes everything.
    void finish(int code);

private:
    using Socket = boost::asio::local::stream_protocol::socket;
    struct Guests {
        std::set<std::shared_ptr<Socket>> all;
        std::list<std::shared_ptr<Socket>> silent;  // have not asked yet, oldest first
        void leave(const std::shared_ptr<Socket>& socket);
    };
    bool make_room();
    static void refuse(Socket& socket);
    boost::asio::awaitable<void> accept_all();
    boost::asio::awaitable<void> serve(std::shared_ptr<Socket> socket);
    boost::asio::awaitable<nlohmann::json> answer(const nlohmann::json& request);

    boost::asio::io_context& context_;
    boost::asio::local::stream_protocol::acceptor acceptor_;
    Supervisor& supervisor_;
    std::vector<std::shared_ptr<Socket>> waiting_for_end_;
    std::shared_ptr<Guests> guests_ = std::make_shared<Guests>();
};

/// Whether a peer with these credentials may give commands.
bool may_command(unsigned peer_uid, unsigned peer_gid);

/// A client's exchange, blocking. None when no launcher listens in that folder.
class ControlClient {
public:
    static std::optional<ControlClient> connect(const std::string& runtime_dir);
    /// Sends one line and reads one; an object with "ok" false when the launcher went away.
    nlohmann::json ask(const nlohmann::json& request);
    /// The next line, an empty object at the end of the connection.
    nlohmann::json read();
    /// The launcher's pid, from the kernel.
    int peer_pid() const;

private:
    explicit ControlClient(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
    std::string buffer_;
};

}  // namespace deploy
