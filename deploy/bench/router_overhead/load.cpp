// overhead-load: the client of the benchmark, one thread. Keeps N connections busy, each with one
// request after the other, compares every byte of every answer, and prints one line of JSON:
// counts, quantiles of the time to the first body byte and to the last, its own CPU time.
//
// Requests that began during the warm-up are counted and checked but not timed. A number is worth
// something only when `failed` and `differing` are 0.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "deploy/bench/router_overhead/answer.h"
#include "deploy/bench/router_overhead/ends.h"

namespace deploy::overhead {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;
constexpr std::chrono::seconds kStragglers{10};  // what runs at the end may take this long

struct Options {
    std::uint16_t port = 0;
    int connections = 1;
    std::size_t prompt_bytes = 200;
    std::string text = "ascii";  // or cjk
    std::string reuse = "cold";  // cold: each prompt is new; hot: all are one; mixed: every other
    double seconds = 2, warmup = 0.3;
    std::uint64_t requests_max = ~std::uint64_t{0};
    Plan plan;
};

struct Sample {
    float first_us, total_us;
};

/// One connection and the request on it.
struct Connection {
    int fd = -1;
    std::array<std::string, 2> own;  // head with the front of the body; its end
    std::array<std::string_view, 3> parts;
    std::size_t part = 0;
    std::string input;  // of the head only
    bool has_head = false, is_chunked = false, has_first = false, is_busy = false;
    std::size_t length_left = 0;  // of the body or of a chunk
    enum class Chunk { kSize, kData, kDataEnd, kTrailer } chunk = Chunk::kSize;
    std::string size_line;
    std::size_t compared = 0;
    bool is_equal = true;
    Clock::time_point begin, first;
};

class Load {
public:
    explicit Load(Options options)
        : options_(std::move(options)),
          expected_(options_.plan.stream != 0
                        ? std::string(answers_.events(0, options_.plan.events)) +
                              std::string(Answers::tail())
                        : Answers::plain(options_.plan)),
          filler_(filler()) {}

    int run() {
        const auto begin = Clock::now();
        measure_from_ = begin + to_clock(options_.warmup);
        stop_at_ = measure_from_ + to_clock(options_.seconds);
        // Spread over the length of one answer, so that streams are not in step with each other.
        const double answer_s =
            1e-6 * (options_.plan.ttft_us + static_cast<double>(options_.plan.gap_us) *
                                                options_.plan.events / options_.plan.burst);
        connections_.resize(static_cast<std::size_t>(options_.connections));
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            const double share = static_cast<double>(i) / static_cast<double>(connections_.size());
            waiter_.at(begin + to_clock(std::min(answer_s, options_.warmup) * share), i);
        }
        std::size_t begun = 0;
        while ((begun < connections_.size() || busy_ > 0) &&
               Clock::now() < stop_at_ + kStragglers) {
            waiter_.turn(
                Clock::now() + std::chrono::milliseconds(100),
                [this](std::uint64_t tag, std::uint32_t events) {
                    on_ready(static_cast<std::size_t>(tag), events);
                },
                [this, &begun](std::uint64_t tag) {
                    ++begun;
                    open(static_cast<std::size_t>(tag));
                });
        }
        const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
        print(elapsed);
        return failed_ + differing_ + busy_ == 0 && completed_ > 0 ? 0 : 1;
    }

private:
    static Clock::duration to_clock(double seconds) {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    }

    std::string filler() const {
        const std::string_view words =
            options_.text == "cjk" ? "四頭の馬が草原を走る。" : "four horses run over the plain. ";
        std::string text;
        while (text.size() + words.size() <= options_.prompt_bytes)
            text += words;
        return text;
    }

    void open(std::size_t index) {
        Connection& connection = connections_[index];
        connection.fd = connect_to(options_.port);
        waiter_.add(connection.fd, index, EPOLLIN);
        start(index);
    }

    [[nodiscard]] bool may_start() const {
        return started_ < options_.requests_max && Clock::now() < stop_at_;
    }

    void start(std::size_t index) {
        if (!may_start()) return;
        Connection& connection = connections_[index];
        const std::uint64_t number = started_++;
        const bool is_new = options_.reuse == "cold" || (options_.reuse == "mixed" && number % 2);
        // The number comes first, so that no prefix is shared; padded, so that sizes are equal.
        std::array<char, 32> unique{};
        std::snprintf(unique.data(), unique.size(), "%012llu ",
                      static_cast<unsigned long long>(is_new ? number + 1 : 0));
        const std::string front = R"({"model":"bench","messages":[{"role":"user","content":")" +
                                  mark_of(options_.plan) + unique.data();
        const std::string back = std::string(R"("}],"max_tokens":)") +
                                 std::to_string(options_.plan.events) + R"(,"stream":)" +
                                 (options_.plan.stream != 0 ? "true}" : "false}");
        const std::size_t bytes = front.size() + filler_.size() + back.size();
        connection.own[0] =
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:" +
            std::to_string(options_.port) +
            "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(bytes) +
            "\r\n\r\n" + front;
        connection.own[1] = back;
        connection.parts = {connection.own[0], filler_, connection.own[1]};
        connection.part = 0;
        connection.has_head = connection.has_first = false;
        connection.compared = 0;
        connection.is_equal = connection.is_busy = true;
        ++busy_;
        connection.begin = Clock::now();
        write(index);
    }

    void write(std::size_t index) {
        Connection& connection = connections_[index];
        while (connection.part < connection.parts.size()) {
            std::array<iovec, 3> buffers{};
            std::size_t count = 0;
            for (std::size_t i = connection.part; i < connection.parts.size(); ++i) {
                buffers[count++] = {const_cast<char*>(connection.parts[i].data()),
                                    connection.parts[i].size()};
            }
            const ssize_t sent = ::writev(connection.fd, buffers.data(), static_cast<int>(count));
            if (sent < 0) {
                if (errno == EINTR) continue;
                if (errno == EAGAIN) {
                    waiter_.change(connection.fd, index, EPOLLIN | EPOLLOUT);
                    return;
                }
                fail(index);
                return;
            }
            auto left = static_cast<std::size_t>(sent);
            while (connection.part < connection.parts.size()) {
                std::string_view& part = connection.parts[connection.part];
                const std::size_t taken = std::min(left, part.size());
                part.remove_prefix(taken);
                left -= taken;
                if (!part.empty()) break;
                ++connection.part;
            }
        }
    }

    void on_ready(std::size_t index, std::uint32_t events) {
        Connection& connection = connections_[index];
        if (connection.fd < 0) return;
        if ((events & EPOLLOUT) != 0) {
            write(index);
            if (connection.fd < 0) return;
            if (connection.part == connection.parts.size()) {
                waiter_.change(connection.fd, index, EPOLLIN);
            }
        }
        if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
        const ssize_t count = ::recv(connection.fd, scratch_.data(), scratch_.size(), 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count <= 0) {
            fail(index);
            return;
        }
        const auto now = Clock::now();
        std::string_view bytes(scratch_.data(), static_cast<std::size_t>(count));
        if (!connection.has_head) {
            connection.input.append(bytes);
            const std::size_t end = connection.input.find("\r\n\r\n");
            if (end == std::string::npos) return;
            const std::string input = std::exchange(connection.input, {});
            if (!take_head(connection, std::string_view(input).substr(0, end + 4))) {
                fail(index);
                return;
            }
            take_body(index, std::string_view(input).substr(end + 4), now);
            return;
        }
        take_body(index, bytes, now);
    }

    bool take_head(Connection& connection, std::string_view head) {
        std::string lower(head);
        std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
            return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        });
        if (!head.starts_with("HTTP/1.1 200")) {
            if (first_refusal_.empty()) first_refusal_ = head.substr(0, head.find('\r'));
            return false;
        }
        connection.has_head = true;
        connection.chunk = Connection::Chunk::kSize;
        connection.size_line.clear();
        connection.is_chunked = lower.find("\r\ntransfer-encoding: chunked") != std::string::npos;
        const std::string_view name = "\r\ncontent-length: ";
        const std::size_t at = lower.find(name);
        if (at == std::string::npos) return connection.is_chunked;
        std::from_chars(lower.data() + at + name.size(), lower.data() + lower.size(),
                        connection.length_left);
        return !connection.is_chunked;
    }

    void compare(Connection& connection, std::string_view payload, Clock::time_point now) {
        if (payload.empty()) return;
        if (!std::exchange(connection.has_first, true)) connection.first = now;
        payload_bytes_ += payload.size();
        const std::string_view rest =
            std::string_view(expected_).substr(std::min(connection.compared, expected_.size()));
        if (!rest.starts_with(payload)) connection.is_equal = false;
        connection.compared += payload.size();
    }

    void take_body(std::size_t index, std::string_view bytes, Clock::time_point now) {
        Connection& connection = connections_[index];
        if (!connection.is_chunked) {
            compare(connection, bytes, now);
            connection.length_left -= std::min(connection.length_left, bytes.size());
            if (connection.length_left == 0) complete(index, now);
            return;
        }
        using Chunk = Connection::Chunk;
        while (!bytes.empty()) {
            if (connection.chunk == Chunk::kData) {
                const std::size_t taken = std::min(connection.length_left, bytes.size());
                compare(connection, bytes.substr(0, taken), now);
                bytes.remove_prefix(taken);
                connection.length_left -= taken;
                if (connection.length_left == 0) connection.chunk = Chunk::kDataEnd;
                continue;
            }
            const std::size_t end = bytes.find('\n');
            connection.size_line += bytes.substr(0, end);
            if (end == std::string_view::npos) return;
            bytes.remove_prefix(end + 1);
            const std::string line = std::exchange(connection.size_line, {});
            if (connection.chunk == Chunk::kDataEnd) {
                connection.chunk = Chunk::kSize;
            } else if (connection.chunk == Chunk::kTrailer) {
                if (line == "\r") {
                    complete(index, now);
                    return;
                }
            } else {
                std::size_t size = 0;
                std::from_chars(line.data(), line.data() + line.size(), size, 16);
                connection.length_left = size;
                connection.chunk = size == 0 ? Chunk::kTrailer : Chunk::kData;
            }
        }
    }

    void complete(std::size_t index, Clock::time_point now) {
        Connection& connection = connections_[index];
        if (!connection.is_equal || connection.compared != expected_.size()) ++differing_;
        ++completed_;
        connection.is_busy = false;
        --busy_;
        if (connection.begin >= measure_from_) {
            const auto us = [&](Clock::time_point at) {
                return std::chrono::duration<float, std::micro>(at - connection.begin).count();
            };
            samples_.push_back({us(connection.first), us(now)});
        }
        start(index);
    }

    void fail(std::size_t index) {
        Connection& connection = connections_[index];
        ::close(connection.fd);
        connection.fd = -1;
        if (!connection.is_busy) return;  // an idle connection may be closed at any time
        connection.is_busy = false;
        --busy_;
        ++failed_;
    }

    static float quantile(std::vector<float>& values, double share) {
        if (values.empty()) return 0;
        const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
        std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at),
                         values.end());
        return values[at];
    }

    void print(double elapsed) {
        std::vector<float> first, total;
        for (const Sample& sample : samples_) {
            first.push_back(sample.first_us);
            total.push_back(sample.total_us);
        }
        std::printf(
            R"({"completed":%llu,"failed":%llu,"differing":%llu,"unfinished":%llu,"timed":%zu,)"
            R"("events":%llu,"payload_bytes":%llu,"elapsed_s":%.4f,"cpu_s":%.4f,)"
            R"("first_us":{"p50":%.1f,"p99":%.1f},"total_us":{"p50":%.1f,"p99":%.1f},"refusal":"%s"})"
            "\n",
            static_cast<unsigned long long>(completed_), static_cast<unsigned long long>(failed_),
            static_cast<unsigned long long>(differing_), static_cast<unsigned long long>(busy_),
            samples_.size(),
            static_cast<unsigned long long>(completed_ *
                                            (options_.plan.stream != 0 ? options_.plan.events : 0)),
            static_cast<unsigned long long>(payload_bytes_), elapsed, cpu_seconds(),
            static_cast<double>(quantile(first, 0.5)), static_cast<double>(quantile(first, 0.99)),
            static_cast<double>(quantile(total, 0.5)), static_cast<double>(quantile(total, 0.99)),
            first_refusal_.c_str());
    }

    Options options_;
    Answers answers_;
    std::string expected_, filler_, first_refusal_;
    Waiter waiter_;
    std::deque<Connection> connections_;
    std::vector<Sample> samples_;
    std::vector<char> scratch_ = std::vector<char>(kReadBytes);
    Clock::time_point measure_from_, stop_at_;
    std::uint64_t started_ = 0, completed_ = 0, failed_ = 0, differing_ = 0, busy_ = 0;
    std::uint64_t payload_bytes_ = 0;
};

Options parse(int argc, char** argv) {
    Options options;
    CLI::App app("Client of the router benchmark; prints one line of JSON.", "overhead-load");
    app.add_option("--port", options.port, "Where it connects, on 127.0.0.1")->required();
    app.add_option("--connections", options.connections, "Requests open at once")
        ->check(CLI::Range(1, 20000))
        ->capture_default_str();
    app.add_option("--prompt-bytes", options.prompt_bytes, "Text of the message, bytes")
        ->check(CLI::Range(0, 16 << 20))
        ->capture_default_str();
    app.add_option("--text", options.text, "Kind of text")->check(CLI::IsMember({"ascii", "cjk"}));
    app.add_option("--reuse", options.reuse, "cold: each prompt new; hot: all one; mixed")
        ->check(CLI::IsMember({"cold", "hot", "mixed"}));
    app.add_option("--seconds", options.seconds, "Timed part, seconds")->capture_default_str();
    app.add_option("--warmup", options.warmup, "Before it, seconds")->capture_default_str();
    app.add_option("--requests", options.requests_max, "Stop after this many");
    app.add_option("--events", options.plan.events, "Events of a stream, words of an answer")
        ->check(CLI::Range(std::size_t{1}, kEventsMax));
    app.add_option("--burst", options.plan.burst, "Events in one write of the upstream");
    app.add_option("--gap-us", options.plan.gap_us, "Between these writes, microseconds");
    app.add_option("--ttft-us", options.plan.ttft_us, "Before the first, microseconds");
    app.add_option("--stream", options.plan.stream, "1: event streams, 0: whole answers")
        ->check(CLI::Range(0, 1));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    return options;
}

}  // namespace
}  // namespace deploy::overhead

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    deploy::overhead::raise_descriptor_limit();
    try {
        return deploy::overhead::Load(deploy::overhead::parse(argc, argv)).run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "overhead-load: %s\n", error.what());
        return 1;
    }
}
