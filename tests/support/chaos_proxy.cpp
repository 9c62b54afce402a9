#include "tests/support/chaos_proxy.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace support {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Error = boost::system::error_code;

/// Bytes of one direction that may wait here; then its sender waits.
constexpr std::size_t kHeldBytesMax = std::size_t{1} << 20;
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
/// A limited bandwidth is given out in steps of this, so that it flows and does not pulse.
constexpr std::chrono::milliseconds kBandwidthStep{10};

/// Two connected ends and how both are ended.
struct Link : std::enable_shared_from_this<Link> {
    explicit Link(tcp::socket accepted)
        : client(std::move(accepted)),
          server(client.get_executor()),
          deadline(client.get_executor()) {}

    tcp::socket client, server;
    asio::steady_timer deadline;  // of timeout and reset_after

    void close() {
        Error ignored;
        deadline.cancel();
        client.close(ignored);
        server.close(ignored);
    }
    void reset() {
        Error ignored;
        for (tcp::socket* side : {&client, &server})
            side->set_option(asio::socket_base::linger(true, 0), ignored);
        close();
    }
    /// Does `end` this long from now, unless the link has ended by then.
    void end_after(std::chrono::milliseconds time, void (Link::*end)()) {
        deadline.expires_after(time);
        deadline.async_wait([self = shared_from_this(), end](const Error& error) {
            if (!error) ((*self).*end)();
        });
    }
};

/// One direction of a link: reads, decides for each piece when it is due, and writes in order.
class Pump : public std::enable_shared_from_this<Pump> {
public:
    Pump(std::shared_ptr<Link> link, tcp::socket& from, tcp::socket& to, const Chaos& chaos)
        : link_(std::move(link)),
          from_(from),
          to_(to),
          chaos_(chaos),
          timer_(from.get_executor()),
          last_due_(Clock::now()) {}

    void read() {
        if (is_reading_ || is_ended_ || held_bytes_ >= kHeldBytesMax) return;
        is_reading_ = true;
        from_.async_read_some(asio::buffer(buffer_),
                              [self = shared_from_this()](const Error& error, std::size_t count) {
                                  self->is_reading_ = false;
                                  self->on_read(error, {self->buffer_.data(), count});
                              });
    }

private:
    struct Piece {
        Clock::time_point due;
        std::string bytes;
        enum class End { kNone, kHalf, kBoth } end = End::kNone;
    };

    void on_read(const Error& error, std::string_view bytes) {
        if (chaos_.timeout) bytes = {};
        if (chaos_.limit_bytes) {
            const std::size_t room = *chaos_.limit_bytes - std::min(*chaos_.limit_bytes, passed_);
            bytes = bytes.substr(0, room);
        }
        passed_ += bytes.size();
        while (!bytes.empty()) {
            const std::size_t size = std::min(piece_size(), bytes.size());
            queue(std::string(bytes.substr(0, size)));
            bytes.remove_prefix(size);
        }
        if (chaos_.limit_bytes && passed_ >= *chaos_.limit_bytes) {
            is_ended_ = true;
            pieces_.push_back({last_due_, {}, Piece::End::kBoth});
        } else if (error) {
            is_ended_ = true;
            // What silently swallows bytes swallows the end as well.
            if (!chaos_.timeout) {
                const auto due = std::max(last_due_, Clock::now() + chaos_.latency);
                pieces_.push_back({due + chaos_.slow_close, {}, Piece::End::kHalf});
            }
        }
        write();
        read();
    }

    [[nodiscard]] std::size_t piece_size() const {
        std::size_t size = kReadBytes;
        if (chaos_.slice_bytes > 0) size = std::min(size, chaos_.slice_bytes);
        if (chaos_.bytes_per_s > 0) {
            const std::size_t steps = std::chrono::seconds(1) / kBandwidthStep;
            size = std::min(size, std::max<std::size_t>(1, chaos_.bytes_per_s / steps));
        }
        return size;
    }

    void queue(std::string bytes) {
        auto due = std::max(Clock::now() + chaos_.latency, last_due_ + chaos_.slice_gap);
        if (chaos_.bytes_per_s > 0) {
            const std::chrono::duration<double> time(static_cast<double>(bytes.size()) /
                                                     static_cast<double>(chaos_.bytes_per_s));
            due = std::max(due, last_due_ + std::chrono::duration_cast<Clock::duration>(time));
        }
        last_due_ = due;
        held_bytes_ += bytes.size();
        pieces_.push_back({due, std::move(bytes)});
    }

    void write() {
        if (is_writing_ || pieces_.empty()) return;
        is_writing_ = true;
        timer_.expires_at(pieces_.front().due);
        timer_.async_wait([self = shared_from_this()](const Error& error) {
            if (!error) self->write_front();
        });
    }

    void write_front() {
        const Piece& piece = pieces_.front();
        if (piece.end == Piece::End::kBoth) {
            link_->close();
            return;
        }
        if (piece.end == Piece::End::kHalf) {
            Error ignored;
            to_.shutdown(tcp::socket::shutdown_send, ignored);
            return;
        }
        asio::async_write(to_, asio::buffer(piece.bytes),
                          [self = shared_from_this()](const Error& error, std::size_t) {
                              if (error) {
                                  self->link_->close();
                                  return;
                              }
                              self->held_bytes_ -= self->pieces_.front().bytes.size();
                              self->pieces_.pop_front();
                              self->is_writing_ = false;
                              self->write();
                              self->read();
                          });
    }

    std::shared_ptr<Link> link_;
    tcp::socket& from_;
    tcp::socket& to_;
    Chaos chaos_;
    asio::steady_timer timer_;
    Clock::time_point last_due_;
    std::array<char, kReadBytes> buffer_{};
    std::deque<Piece> pieces_;
    std::size_t held_bytes_ = 0, passed_ = 0;
    bool is_reading_ = false, is_writing_ = false, is_ended_ = false;
};

}  // namespace

/// The proxy's thread and what lives on it.
class ChaosProxy::Loop {
public:
    explicit Loop(std::uint16_t server_port)
        : server_(asio::ip::address_v4::loopback(), server_port),
          acceptor_(loop_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
          port_(acceptor_.local_endpoint().port()) {
        accept();
        thread_ = std::thread([this] { loop_.run(); });
    }
    ~Loop() {
        loop_.stop();
        thread_.join();
    }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] std::size_t accepted() const { return accepted_; }

    /// Runs `work` on the thread and waits for it.
    template <class Work>
    void call(Work work) {
        std::promise<void> done;
        asio::post(acceptor_.get_executor(), [&] {
            work();
            done.set_value();
        });
        done.get_future().wait();
    }

    void set(const Chaos& up, const Chaos& down) {
        up_ = up;
        down_ = down;
    }

    void reset_all() {
        for (const std::weak_ptr<Link>& open : std::exchange(links_, {})) {
            if (const auto link = open.lock()) link->reset();
        }
    }

private:
    void accept() {
        acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
            if (!error) open(std::move(socket));
            accept();
        });
    }

    void open(tcp::socket socket) {
        ++accepted_;
        const auto link = std::make_shared<Link>(std::move(socket));
        std::erase_if(links_, [](const std::weak_ptr<Link>& one) { return one.expired(); });
        links_.push_back(link);
        link->server.async_connect(server_, [link, up = up_, down = down_](const Error& error) {
            if (error) {  // nobody there: the client sees it as it would without us
                link->reset();
                return;
            }
            Error ignored;
            link->client.set_option(tcp::no_delay(true), ignored);
            link->server.set_option(tcp::no_delay(true), ignored);
            for (const Chaos& chaos : {up, down}) {
                if (chaos.reset_after) link->end_after(*chaos.reset_after, &Link::reset);
                if (chaos.timeout && chaos.timeout->count() > 0) {
                    link->end_after(*chaos.timeout, &Link::close);
                }
            }
            std::make_shared<Pump>(link, link->client, link->server, up)->read();
            std::make_shared<Pump>(link, link->server, link->client, down)->read();
        });
    }

    asio::io_context loop_{1};
    tcp::endpoint server_;
    tcp::acceptor acceptor_;
    std::uint16_t port_;
    Chaos up_, down_;
    std::list<std::weak_ptr<Link>> links_;
    std::atomic<std::size_t> accepted_{0};
    std::thread thread_;
};

ChaosProxy::ChaosProxy(std::uint16_t server_port) : loop_(std::make_unique<Loop>(server_port)) {}

ChaosProxy::~ChaosProxy() = default;

std::uint16_t ChaosProxy::port() const {
    return loop_->port();
}

void ChaosProxy::set(Chaos up, Chaos down) {
    loop_->call([&] { loop_->set(up, down); });
}

std::size_t ChaosProxy::accepted() const {
    return loop_->accepted();
}

void ChaosProxy::reset_all() {
    loop_->call([&] { loop_->reset_all(); });
}

}  // namespace support
