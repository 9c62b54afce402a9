// A replica in this process over real sockets, with a scripted model.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "proto/http_client.h"
#include "proto/sse.h"
#include "replica/server/app.h"
#include "tests/unit/server/support.h"

namespace replica::server::testing {

using proto::Json;

inline constexpr std::string_view kInstance = "9f2c41d07ab35e18";
inline constexpr std::chrono::seconds kPatience{60};

/// A replica in this process: I/O thread, engine, scripted runner, a port of its own.
class TestReplica {
public:
    struct Setup {
        int sequences = 2;
        std::string script = "A horse neighs.";
        std::optional<std::string> internal_key;
        bool is_loaded = true;
        std::int64_t queued_tokens_max = 0;
    };
    explicit TestReplica(Setup setup)
        : runner(small_limits(setup.sequences), said(setup.script)),
          app_(io_, options(setup), setup.internal_key, std::nullopt) {
        if (setup.is_loaded) load(setup);
        app_.start();
        thread_ = std::thread([this] { io_.run(); });
    }
    ~TestReplica() {
        runner.allow_all();
        std::promise<void> stopped;
        on_io([&] { app_.drain(std::chrono::milliseconds{0}, [&] { stopped.set_value(); }); });
        stopped.get_future().wait();
        io_.stop();
        thread_.join();
    }
    TestReplica(const TestReplica&) = delete;
    TestReplica& operator=(const TestReplica&) = delete;

    proto::HttpResult get(const std::string& path, proto::Headers headers = {}) {
        return call("GET", path, {}, std::move(headers));
    }
    proto::HttpResult post(const std::string& path, std::string body, proto::Headers headers = {}) {
        return call("POST", path, std::move(body), std::move(headers));
    }
    proto::HttpResult chat(std::string body, proto::Headers headers = {}) {
        return post("/v1/chat/completions", std::move(body), std::move(headers));
    }
    std::string url(const std::string& path) const {
        return "http://127.0.0.1:" + std::to_string(app_.port()) + path;
    }

    /// Runs `work` on the I/O thread and waits for it.
    template <class Work>
    void on_io(Work work) {
        std::promise<void> done;
        boost::asio::post(io_, [&] {
            work();
            done.set_value();
        });
        done.get_future().wait();
    }
    int inside() {
        int count = 0;
        on_io([&] { count = app_.state().admission.inside(); });
        return count;
    }
    App& app() { return app_; }

    /// Until `holds` is true; tries again with every look of the I/O thread.
    template <class Predicate>
    bool eventually(Predicate holds) {
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        while (!holds()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::yield();
        }
        return true;
    }

    ScriptedRunner runner;

private:
    static ServerOptions options(const Setup& setup) {
        ServerOptions options;
        options.served_name = "pony";
        options.instance = kInstance;
        options.port = 0;
        options.sequences = setup.sequences;
        return options;
    }

    void load(const Setup& setup) {
        EngineOptions engine;
        engine.sequences_max = setup.sequences;
        engine.waiting_max = 256;
        engine.step_token_budget = 64;
        engine.queued_tokens_max = setup.queued_tokens_max;
        engine.end_tokens = {kImEnd};
        auto started = std::make_unique<Engine>(runner, std::move(engine));
        started->on_status_change([this] { app_.engine_changed(); });
        app_.model_loaded({nullptr, small_model(setup.sequences), std::move(started)});
        app_.ready();
    }

    proto::HttpResult call(std::string method, const std::string& path, std::string body,
                           proto::Headers headers) {
        proto::BlockingRequest request;
        request.url = url(path);
        request.method = std::move(method);
        request.headers = std::move(headers);
        request.body = std::move(body);
        request.timeout = kPatience;
        return proto::http_call(std::move(request));
    }

    boost::asio::io_context io_{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
        io_.get_executor()};  // a drained server leaves the loop without work
    App app_;
    std::thread thread_;
};

inline std::string chat_body(const std::string& more = {}) {
    return R"({"messages":[{"role":"user","content":"What does a horse do?"}],"temperature":0)" +
           (more.empty() ? "" : "," + more) + "}";
}

inline std::vector<std::string> events_of(const std::string& body) {
    proto::SseDecoder decoder;
    decoder.feed(body);
    std::vector<std::string> events;
    while (const auto event = decoder.next()) {
        events.push_back(event->name.empty() ? event->data : event->name + ": " + event->data);
    }
    return events;
}

inline std::string streamed_content(const std::string& body) {
    std::string text;
    for (const std::string& event : events_of(body)) {
        if (!event.starts_with("{")) continue;
        const Json chunk = Json::parse(event);
        for (const Json& choice : chunk["choices"]) {
            if (choice["delta"].contains("content")) {
                text += choice["delta"]["content"].get<std::string>();
            }
        }
    }
    return text;
}

inline std::string error_code(const proto::HttpResult& result) {
    const Json body = Json::parse(result.body, nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"]["code"].get<std::string>()
                                                      : "no error body: " + result.body;
}

/// One call on its own thread, which can be broken off.
class Call {
public:
    Call(const TestReplica& replica, std::string body, proto::Headers headers = {}) {
        proto::BlockingRequest request;
        request.url = replica.url("/v1/chat/completions");
        request.method = "POST";
        request.headers = std::move(headers);
        request.body = std::move(body);
        request.timeout = kPatience;
        request.on_body = [this](int status, std::string_view bytes) {
            const std::lock_guard lock(mutex_);
            status_ = status;
            received_.append(bytes);
            return !must_leave_;
        };
        result_ = std::async(std::launch::async, [request] { return proto::http_call(request); });
    }
    std::string received() {
        const std::lock_guard lock(mutex_);
        return received_;
    }
    /// Leaves when the next bytes come.
    void leave() {
        const std::lock_guard lock(mutex_);
        must_leave_ = true;
    }
    proto::HttpResult finish() { return result_.get(); }

private:
    std::mutex mutex_;
    std::string received_;
    int status_ = 0;
    bool must_leave_ = false;
    std::future<proto::HttpResult> result_;
};

}  // namespace replica::server::testing
