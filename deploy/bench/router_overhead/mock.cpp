// overhead-mock: four upstreams in one thread, as fast as sockets allow. Each answers generations
// as their mark asks (answer.h), and enough besides that every router in the comparison takes it
// for a replica: /health, /v1/models, /info, /tokenize and, for ours, the status stream with its
// done events.
//
//   overhead-mock [COUNT]   prints "listening PORT PORT …" and serves until it is killed
//
// It reads the head and the first 4 KiB of a body and only counts the rest, so that a large prompt
// costs it a recv() and nothing more.
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "deploy/bench/router_overhead/answer.h"
#include "deploy/bench/router_overhead/ends.h"
#include "proto/status.h"

namespace deploy::overhead {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;
constexpr std::size_t kHeadBytesMax = std::size_t{64} << 10;
constexpr std::uint64_t kTickTag = ~std::uint64_t{0};

/// The value of a header field of `head`, or nothing. `name` in lower case.
std::string_view field(std::string_view head, std::string_view name) {
    std::size_t at = head.find("\r\n");
    while (at != std::string_view::npos && at + 2 < head.size()) {
        at += 2;
        const std::size_t end = std::min(head.find("\r\n", at), head.size());
        const std::string_view line = head.substr(at, end - at);
        if (line.size() > name.size() && line[name.size()] == ':' &&
            ::strncasecmp(line.data(), name.data(), name.size()) == 0) {
            std::string_view value = line.substr(name.size() + 1);
            while (!value.empty() && value.front() == ' ')
                value.remove_prefix(1);
            return value;
        }
        at = head.find("\r\n", at);
    }
    return {};
}

struct Upstream {
    int fd = -1;
    std::uint16_t port = 0;
    std::string instance;
    int running = 0;
    std::uint64_t seq = 0, steps = 0;
    std::uint64_t served = 0;  // generations
    bool has_change = false;
    std::string done;                      // events since the last report
    std::vector<std::uint64_t> listeners;  // connections with a status stream
};

struct Connection {
    int fd = -1;
    std::size_t upstream = 0;
    std::string input;          // head, then up to kMarkWithin of the body
    std::size_t body_left = 0;  // not read yet
    bool has_head = false;
    std::string output;  // what the kernel did not take
    std::string method, path, dispatch;
    Plan plan;
    bool is_running = false, has_begun = false, is_blocked = false;
    std::size_t sent = 0;    // events
    Clock::time_point next;  // when the next write is due
};

class Mock {
public:
    explicit Mock(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            Upstream upstream;
            upstream.fd = listen_on(upstream.port);
            upstream.instance = "00000000000000a" + std::to_string(i);
            waiter_.add(upstream.fd, i, EPOLLIN);
            upstreams_.push_back(std::move(upstream));
        }
        next_id_ = count;
        std::printf("listening");
        for (const Upstream& upstream : upstreams_)
            std::printf(" %d", static_cast<int>(upstream.port));
        std::printf("\n");
        std::fflush(stdout);
        waiter_.at(Clock::now() + proto::kStatusIntervalMin, kTickTag);
    }

    [[noreturn]] void run() {
        for (;;) {
            waiter_.turn(
                Clock::now() + std::chrono::seconds(1),
                [this](std::uint64_t tag, std::uint32_t events) { on_ready(tag, events); },
                [this](std::uint64_t tag) { tag == kTickTag ? report() : on_time(tag); });
        }
    }

private:
    void on_ready(std::uint64_t tag, std::uint32_t events) {
        if (tag < upstreams_.size()) {
            accept_all(static_cast<std::size_t>(tag));
            return;
        }
        const auto at = connections_.find(tag);
        if (at == connections_.end()) return;
        if ((events & EPOLLOUT) != 0 && !flush(tag, *at->second)) return;
        if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(tag, *at->second);
    }

    void accept_all(std::size_t upstream) {
        for (;;) {
            const int fd = ::accept4(upstreams_[upstream].fd, nullptr, nullptr, SOCK_CLOEXEC);
            if (fd < 0) return;
            prepare(fd);
            auto connection = std::make_unique<Connection>();
            connection->fd = fd;
            connection->upstream = upstream;
            const std::uint64_t id = next_id_++;
            waiter_.add(fd, id, EPOLLIN);
            connections_.emplace(id, std::move(connection));
        }
    }

    void drop(std::uint64_t id, Connection& connection) {
        if (connection.is_running) end(connection, false);
        std::erase(upstreams_[connection.upstream].listeners, id);
        ::close(connection.fd);
        connections_.erase(id);
    }

    void read(std::uint64_t id, Connection& connection) {
        const ssize_t count = ::recv(connection.fd, scratch_.data(), scratch_.size(), 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count <= 0) {
            drop(id, connection);
            return;
        }
        std::string_view bytes(scratch_.data(), static_cast<std::size_t>(count));
        if (!connection.has_head) {
            connection.input.append(bytes);
            bytes = {};
            const std::size_t end = connection.input.find("\r\n\r\n");
            if (end == std::string::npos) {
                if (connection.input.size() > kHeadBytesMax) drop(id, connection);
                return;
            }
            if (!take_head(connection, end + 4)) {
                drop(id, connection);
                return;
            }
        }
        take_body(connection, bytes);
        if (connection.body_left == 0) serve(id, connection);
    }

    /// What follows the head stays in `input`.
    static bool take_head(Connection& connection, std::size_t size) {
        const std::string_view head = std::string_view(connection.input).substr(0, size);
        const std::size_t space = head.find(' ');
        connection.method = head.substr(0, space);
        connection.path = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
        connection.dispatch = field(head, proto::kHeaderDispatch);
        const std::string_view length = field(head, "content-length");
        std::size_t bytes = 0;
        std::from_chars(length.data(), length.data() + length.size(), bytes);
        if (!field(head, "transfer-encoding").empty()) return false;  // not spoken here
        const std::size_t here = connection.input.size() - size;
        if (here > bytes) return false;  // pipelined: nobody does
        connection.body_left = bytes - here;
        connection.input.erase(0, size);
        connection.input.resize(std::min(connection.input.size(), kMarkWithin));
        connection.has_head = true;
        return true;
    }

    static void take_body(Connection& connection, std::string_view bytes) {
        const std::size_t room = kMarkWithin - std::min(kMarkWithin, connection.input.size());
        connection.input.append(bytes.substr(0, std::min(room, bytes.size())));
        connection.body_left -= std::min(connection.body_left, bytes.size());
    }

    void serve(std::uint64_t id, Connection& connection) {
        connection.has_head = false;
        const std::string body = std::exchange(connection.input, {});
        if (connection.method == "GET") {
            serve_get(id, connection);
            return;
        }
        // A router that weighs prompts in tokens asks for them first; they cost it a round trip, as
        // short as one can be. Of what else it asks for nothing is here.
        if (connection.path == "/tokenize") {
            answer(id, connection, "200 OK", R"({"count":1,"max_model_len":131072,"tokens":[1]})");
            return;
        }
        if (connection.path != "/v1/chat/completions" && connection.path != "/v1/completions") {
            answer(id, connection, "404 Not Found", R"({"error":{"message":"unknown path"}})");
            return;
        }
        if (!read_mark(body, connection.plan)) {
            answer(id, connection, "400 Bad Request", R"({"error":{"message":"no mark"}})");
            return;
        }
        Upstream& upstream = upstreams_[connection.upstream];
        connection.is_running = true;
        connection.has_begun = connection.is_blocked = false;
        connection.sent = 0;
        ++upstream.running;
        ++upstream.served;
        upstream.has_change = true;
        if (connection.plan.ttft_us > 0) {
            connection.next = Clock::now() + std::chrono::microseconds(connection.plan.ttft_us);
            waiter_.at(connection.next, id);
        } else {
            on_time(id);
        }
    }

    void serve_get(std::uint64_t id, Connection& connection) {
        Upstream& upstream = upstreams_[connection.upstream];
        if (connection.path == "/internal/status/stream") {
            upstream.listeners.push_back(id);
            upstream.has_change = true;
            send(id, connection,
                 "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n");
        } else if (connection.path == "/internal/status") {
            answer(id, connection, "200 OK", status(connection.upstream));
        } else if (connection.path == "/v1/models") {
            answer(
                id, connection, "200 OK",
                R"({"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"bench"}]})");
        } else if (connection.path == "/served") {  // for the bench itself
            std::string counts;
            for (const Upstream& one : upstreams_)
                counts += (counts.empty() ? "[" : ",") + std::to_string(one.served);
            answer(id, connection, "200 OK", counts + "]");
        } else if (connection.path == "/info") {
            answer(id, connection, "200 OK", R"({"model":{"name":"bench","aliases":[]}})");
        } else {  // health, model and server information of others
            answer(
                id, connection, "200 OK",
                R"({"status":"ok","model_path":"bench","served_model_name":"bench","is_generation":true})");
        }
    }

    /// The next write of a generation is due.
    void on_time(std::uint64_t id) {
        const auto at = connections_.find(id);
        if (at == connections_.end() || !at->second->is_running) return;
        Connection& connection = *at->second;
        connection.is_blocked = !connection.output.empty();
        if (connection.is_blocked) return;  // flush() comes back here
        if (connection.plan.stream == 0) {
            const std::string body = Answers::plain(connection.plan);
            end(connection, true);
            answer(id, connection, "200 OK", body);
            return;
        }
        const std::size_t first = connection.sent;
        const std::size_t last =
            std::min<std::size_t>(first + connection.plan.burst, connection.plan.events);
        connection.sent = last;
        const bool is_last = last == connection.plan.events;
        std::string_view head;
        if (!std::exchange(connection.has_begun, true)) {
            head = stream_head(connection.upstream);
            connection.next = Clock::now();
        }
        ++upstreams_[connection.upstream].steps;
        if (is_last) end(connection, true);
        if (!send_chunk(id, connection, head, answers_.events(first, last), is_last)) return;
        if (is_last) return;
        connection.next += std::chrono::microseconds(connection.plan.gap_us);
        waiter_.at(connection.next, id);
    }

    void end(Connection& connection, bool is_complete) {
        Upstream& upstream = upstreams_[connection.upstream];
        connection.is_running = false;
        --upstream.running;
        upstream.has_change = true;
        if (connection.dispatch.empty() || upstream.listeners.empty()) return;
        const proto::DoneEvent done{.dispatch = connection.dispatch,
                                    .prompt = 1,
                                    .cached = 0,
                                    .generated = connection.plan.events,
                                    .reason = is_complete ? "stop" : "cancelled"};
        upstream.done += "event: done\ndata: " + proto::to_json(done) + "\n\n";
    }

    std::string status(std::size_t index) {
        Upstream& upstream = upstreams_[index];
        proto::ReplicaStatus status;
        status.replica = static_cast<int>(index);
        status.instance = upstream.instance;
        status.state = proto::ReplicaState::kReady;
        status.seq = ++upstream.seq;
        status.step = upstream.steps;
        status.running = upstream.running;
        status.sequences_max = 4096;
        status.kv_blocks_free = status.kv_blocks_total = 1 << 20;
        status.block_tokens = 64;
        status.prefill_tokens_per_s = 1e9;
        status.decode_tokens_per_s = 1e6;
        status.max_model_len = 1 << 20;
        status.model = "bench";
        return proto::to_json(status);
    }

    /// What has changed, every 20 ms, as a replica reports; everything once a second.
    void report() {
        const bool is_full = ++ticks_ % 50 == 0;
        for (std::size_t i = 0; i < upstreams_.size(); ++i) {
            Upstream& upstream = upstreams_[i];
            if (upstream.listeners.empty() || !(upstream.has_change || is_full)) continue;
            upstream.has_change = false;
            const std::string events =
                std::exchange(upstream.done, {}) + "event: status\ndata: " + status(i) + "\n\n";
            for (const std::uint64_t id : std::vector(upstream.listeners)) {
                const auto at = connections_.find(id);
                if (at != connections_.end()) send_chunk(id, *at->second, {}, events, false);
            }
        }
        waiter_.at(Clock::now() + proto::kStatusIntervalMin, kTickTag);
    }

    std::string_view stream_head(std::size_t index) {
        head_ =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            "x-quadriga-prompt-tokens: 1\r\nx-quadriga-cached-tokens: 0\r\n"
            "x-quadriga-instance: " +
            upstreams_[index].instance + "\r\nTransfer-Encoding: chunked\r\n\r\n";
        return head_;
    }

    bool send_chunk(std::uint64_t id, Connection& connection, std::string_view head,
                    std::string_view payload, bool is_last) {
        std::array<char, 24> size{};
        const std::size_t bytes = payload.size() + (is_last ? Answers::tail().size() : 0);
        const int count = std::snprintf(size.data(), size.size(), "%zx\r\n", bytes);
        out_.assign(head);
        out_.append(size.data(), static_cast<std::size_t>(count));
        out_.append(payload);
        if (is_last) out_.append(Answers::tail());
        out_.append(is_last ? "\r\n0\r\n\r\n" : "\r\n");
        return send(id, connection, out_);
    }

    void answer(std::uint64_t id, Connection& connection, std::string_view status,
                std::string_view body) {
        out_ = "HTTP/1.1 ";
        out_ += status;
        out_ +=
            "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\n\r\n";
        out_ += body;
        send(id, connection, out_);
    }

    /// False: the connection is gone, and `connection` with it.
    bool send(std::uint64_t id, Connection& connection, std::string_view bytes) {
        if (!connection.output.empty()) {
            connection.output += bytes;
            return true;
        }
        const ssize_t count = ::send(connection.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN && errno != EINTR) {
            drop(id, connection);
            return false;
        }
        const std::size_t taken = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
        if (taken == bytes.size()) return true;
        connection.output = bytes.substr(taken);
        waiter_.change(connection.fd, id, EPOLLIN | EPOLLOUT);
        return true;
    }

    bool flush(std::uint64_t id, Connection& connection) {
        const std::string bytes = std::exchange(connection.output, {});
        if (!send(id, connection, bytes)) return false;
        if (!connection.output.empty()) return true;
        waiter_.change(connection.fd, id, EPOLLIN);
        if (connection.is_running && connection.is_blocked) waiter_.at(Clock::now(), id);
        return true;
    }

    Waiter waiter_;
    Answers answers_;
    std::vector<Upstream> upstreams_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::uint64_t next_id_ = 0, ticks_ = 0;
    std::string head_, out_;
    std::vector<char> scratch_ = std::vector<char>(kReadBytes);
};

}  // namespace
}  // namespace deploy::overhead

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    deploy::overhead::raise_descriptor_limit();
    const long count = argc > 1 ? std::atol(argv[1]) : 4;
    if (count < 1 || count > 64) {
        std::fprintf(stderr, "usage: overhead-mock [COUNT], 1 to 64\n");
        return 2;
    }
    try {
        deploy::overhead::Mock mock(static_cast<std::size_t>(count));
        mock.run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "overhead-mock: %s\n", error.what());
        return 1;
    }
}
