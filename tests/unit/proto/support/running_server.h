// An HttpServer on a free port with its own loop thread, and a mailbox for what happens inside it.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <gtest/gtest.h>

#include "proto/http_server.h"
#include "tests/unit/proto/support/raw_socket.h"

namespace proto_test {

/// Values pass from the loop's thread to the test's thread; taking waits for the next one.
template <class T>
class Mailbox {
public:
    void put(T value) {
        const std::lock_guard lock(mutex_);
        values_.push_back(std::move(value));
        arrived_.notify_all();
    }
    T take() {
        std::unique_lock lock(mutex_);
        if (!arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return !values_.empty(); })) {
            ADD_FAILURE() << "nothing arrived in the mailbox";
            return T{};
        }
        T value = std::move(values_.front());
        values_.pop_front();
        return value;
    }
    bool empty() {
        const std::lock_guard lock(mutex_);
        return values_.empty();
    }

private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<T> values_;
};

/// An io_context and the one thread that runs it.
class Loop {
public:
    Loop() : work_(context.get_executor()), thread_([this] { context.run(); }) {}
    ~Loop() { stop(); }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    void stop() {
        if (!thread_.joinable()) return;
        context.stop();
        thread_.join();
    }

    /// Runs `function` on the loop and waits for its result.
    template <class Function>
    auto call(Function function) {
        std::packaged_task<decltype(function())()> task(std::move(function));
        auto result = task.get_future();
        boost::asio::post(context, [&task] { task(); });
        return result.get();
    }

    /// Runs a coroutine on the loop and waits for its result.
    template <class T>
    T run(boost::asio::awaitable<T> coroutine) {
        return boost::asio::co_spawn(context, std::move(coroutine), boost::asio::use_future).get();
    }

    boost::asio::io_context context{1};

private:
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    std::thread thread_;
};

class RunningServer {
public:
    RunningServer(proto::HttpServerOptions options, proto::HttpHandler handler) {
        const auto on_access = options.on_access;
        options.on_access = [this, on_access](const proto::HttpAccess& access) {
            accesses.put(access);
            if (on_access) on_access(access);
        };
        server.emplace(loop.context.get_executor(), std::move(options), std::move(handler));
        loop.call([&] { server->start(); });
    }
    ~RunningServer() {
        loop.call([&] { server->abort_all(); });
        loop.stop();
    }
    RunningServer(const RunningServer&) = delete;
    RunningServer& operator=(const RunningServer&) = delete;

    [[nodiscard]] RawSocket connect() const { return RawSocket(server->port()); }
    /// Sends bytes on a fresh connection and reads until the server ends it.
    [[nodiscard]] std::string exchange(std::string_view bytes) const {
        const RawSocket socket = connect();
        socket.send(bytes);
        return socket.read_to_end();
    }
    proto::HttpServerStats stats() {
        return loop.call([&] { return server->stats(); });
    }

    Mailbox<proto::HttpAccess> accesses;
    Loop loop;
    std::optional<proto::HttpServer> server;
};

/// Answers 200 with "METHOD path?query" and the body.
inline boost::asio::awaitable<void> echo(proto::HttpExchange& exchange) {
    const proto::HttpRequest& request = exchange.request();
    co_await exchange.send(proto::text_response(request.method + " " + request.path + "?" +
                                                request.query + "\n" + request.body));
}

inline int status_of(std::string_view answer) {
    if (answer.substr(0, 9) != "HTTP/1.1 ") return 0;
    return std::stoi(std::string(answer.substr(9, 3)));
}

}  // namespace proto_test
