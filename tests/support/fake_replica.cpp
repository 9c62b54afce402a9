// The process: HTTP, the engine model on timers, faults. See fake_replica.h.
#include "tests/support/fake_replica.h"

#include <csignal>
#include <cstdio>
#include <deque>
#include <list>
#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "proto/sse.h"
#include "proto/status.h"
#include "tests/support/garbage_front.h"

namespace fake {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using proto::HttpExchange;

/// Kills the process as a crash would: no destructor, no farewell to any socket.
void die_now() {
    std::raise(SIGKILL);
}

void log_line(const char* event, std::string_view dispatch, std::string_view request_id) {
    const auto at_us =
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch());
    std::printf("%s dispatch=%.*s request_id=%.*s at_us=%lld\n", event,
                static_cast<int>(dispatch.size()), dispatch.data(),
                static_cast<int>(request_id.size()), request_id.data(),
                static_cast<long long>(at_us.count()));
    std::fflush(stdout);
}

void log_trace(std::string_view dispatch, const proto::Headers& headers) {
    std::printf("trace dispatch=%s traceparent=%s tracestate=%s\n", std::string(dispatch).c_str(),
                std::string(headers.get("traceparent")).c_str(),
                std::string(headers.get("tracestate")).c_str());
    std::fflush(stdout);
}

// Outside the coroutines: GCC 12 cannot put the array of such a list into a coroutine's frame.
proto::Headers stream_headers() {
    return {{"content-type", std::string(proto::kSseContentType)}};
}

proto::Headers generation_headers(const Options& options, const Script& script) {
    return {{std::string(proto::kHeaderPromptTokens), std::to_string(script.prompt_tokens)},
            {std::string(proto::kHeaderCachedTokens), std::to_string(script.cached_tokens)},
            {std::string(proto::kHeaderInstance), options.instance}};
}

/// One generation in the engine.
struct Sequence {
    explicit Sequence(const asio::any_io_executor& executor) : timer(executor) {}

    asio::steady_timer timer;
    std::int64_t queued_tokens = 0;
    std::int64_t kept_tokens = 0;  // in KV memory: the prompt once it is prefilled, then the answer
    bool is_running = false;
    bool is_aborted = false;
};

class FakeReplica {
public:
    FakeReplica(asio::io_context& loop, Options options)
        : loop_(loop), options_(std::move(options)) {
        const auto generate = [this](HttpExchange& exchange, const std::string&) {
            return serve_generation(exchange);
        };
        const auto fixed = [](std::string body) {
            return [body](HttpExchange& exchange, const std::string&) -> asio::awaitable<void> {
                (void)co_await exchange.send(proto::json_response(body));
            };
        };
        routes_.add("POST", "/v1/chat/completions", generate);
        routes_.add("POST", "/v1/completions", generate);
        routes_.add("POST", "/tokenize",
                    [this](HttpExchange& exchange, const std::string&) -> asio::awaitable<void> {
                        const std::string& body = exchange.request().body;
                        const std::string& poison = options_.die_on;
                        if (!poison.empty() && body.find(poison) != std::string::npos) die_now();
                        const std::string& drop = options_.drop_on;
                        if (!drop.empty() && body.find(drop) != std::string::npos) {
                            exchange.abort();
                            co_return;
                        }
                        const auto wait = directive(body, "ttft_ms").value_or(0);
                        asio::steady_timer timer(loop_, std::chrono::milliseconds(wait));
                        exchange.on_disconnect([&timer] { timer.cancel(); });
                        (void)co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
                        exchange.on_disconnect({});
                        std::string answer = R"({"tokens":[1,2,3],"count":3})";
                        const auto more = directive(body, "answer_bytes").value_or(0);
                        answer.append(static_cast<std::size_t>(more), ' ');
                        (void)co_await exchange.send(proto::json_response(std::move(answer)));
                    });
        routes_.add("GET", "/health",
                    [this](HttpExchange& exchange, const std::string&) -> asio::awaitable<void> {
                        const int status = options_.health_lies ? 503 : 200;
                        std::string body = R"({"status":"ok"})";
                        (void)co_await exchange.send(proto::json_response(std::move(body), status));
                    });
        routes_.add("GET", "/v1/models",
                    fixed(R"({"object":"list","data":[{"id":")" + options_.model +
                          R"(","object":"model","created":1900000000,"owned_by":"quadriga"}]})"));
        routes_.add("GET", "/info",
                    [this](HttpExchange& exchange, const std::string&) -> asio::awaitable<void> {
                        const int status = info_fails_++ < options_.info_fails ? 503 : 200;
                        std::string body = R"({"model":{"name":")" + options_.model +
                                           R"(","aliases":["default"]}})";
                        (void)co_await exchange.send(proto::json_response(std::move(body), status));
                    });
        routes_.add("GET", "/fake/arrivals",
                    [this](HttpExchange& exchange, const std::string&) -> asio::awaitable<void> {
                        std::string count = std::to_string(arrivals_);
                        (void)co_await exchange.send(proto::json_response(std::move(count)));
                    });
        routes_.add("GET", "/metrics", [this](HttpExchange& exchange, const std::string&) {
            return serve_metrics(exchange);
        });
        routes_.add(
            "GET", "/internal/status",
            [this](HttpExchange& exchange, const std::string&) -> asio::awaitable<void> {
                (void)co_await exchange.send(proto::json_response(proto::to_json(status())));
            });
        if (!options_.no_stream) {
            routes_.add("GET", "/internal/status/stream",
                        [this](HttpExchange& exchange, const std::string&) {
                            return serve_status_stream(exchange);
                        });
        }
    }

    asio::awaitable<void> serve(HttpExchange& exchange) { return routes_.serve(exchange); }

private:
    struct StatusStream {
        explicit StatusStream(const asio::any_io_executor& executor) : wake(executor) {}
        asio::steady_timer wake;
        std::deque<std::string> done;
        bool has_change = false;
    };

    proto::ReplicaStatus status() {
        proto::ReplicaStatus status;
        status.replica = options_.index;
        status.instance = options_.instance;
        status.state = proto::ReplicaState::kReady;
        status.seq = ++seq_;
        status.step = options_.no_progress ? 1 : steps_;
        std::int64_t used = 0;
        for (const Sequence* sequence : sequences_) {
            ++(sequence->is_running ? status.running : status.waiting);
            status.queued_tokens += sequence->queued_tokens;
            used += (sequence->kept_tokens + kBlockTokens - 1) / kBlockTokens;
        }
        if (options_.kv_blocks > 0) {
            status.kv_blocks_total = options_.kv_blocks;
            status.kv_blocks_free = std::max<std::int64_t>(0, options_.kv_blocks - used);
            status.block_tokens = kBlockTokens;
        }
        status.gpus = options_.gpus;
        status.sequences_max = options_.slots;
        if (options_.reports_full) status.running = options_.slots;
        status.prefill_tokens_per_s = options_.prefill_rate;
        status.decode_tokens_per_s = 1000;
        status.max_model_len = options_.max_model_len;
        status.model = options_.model;
        return status;
    }

    void changed() {
        ++steps_;
        for (const auto& stream : streams_) {
            stream->has_change = true;
            stream->wake.cancel();
        }
    }

    asio::awaitable<void> serve_status_stream(HttpExchange& exchange) {
        const auto stream = std::make_shared<StatusStream>(exchange.executor());
        streams_.push_back(stream);
        bool is_open = true;
        exchange.on_disconnect([&is_open, stream] {
            is_open = false;
            stream->wake.cancel();
        });
        is_open = co_await exchange.start_stream(200, stream_headers());
        while (is_open) {
            std::string events;
            while (!stream->done.empty()) {
                events += proto::sse_event("done", stream->done.front());
                stream->done.pop_front();
            }
            events += proto::sse_event("status", proto::to_json(status()));
            stream->has_change = false;
            if (!co_await exchange.write(events)) break;
            // On change, at most every 20 ms, at least every second.
            const auto earliest = Clock::now() + proto::kStatusIntervalMin;
            if (!stream->has_change && is_open) {
                stream->wake.expires_after(proto::kStatusIntervalMax);
                (void)co_await stream->wake.async_wait(asio::as_tuple(asio::use_awaitable));
            }
            while (is_open && Clock::now() < earliest) {
                stream->wake.expires_at(earliest);
                (void)co_await stream->wake.async_wait(asio::as_tuple(asio::use_awaitable));
            }
        }
        exchange.on_disconnect({});
        streams_.remove(stream);
    }

    asio::awaitable<void> serve_metrics(HttpExchange& exchange) {
        const std::string label = R"({replica=")" + std::to_string(options_.index) + R"("} )";
        (void)co_await exchange.send(
            proto::text_response("# HELP quadriga_replica_requests_running Sequences that run.\n"
                                 "# TYPE quadriga_replica_requests_running gauge\n"
                                 "quadriga_replica_requests_running" +
                                 label + std::to_string(sequences_.size()) + "\n"));
    }

    /// Waits until `until`, or until the sequence is cancelled or started. False: cancelled.
    asio::awaitable<bool> pause(Sequence& sequence, Clock::time_point until) {
        while (!sequence.is_aborted && Clock::now() < until) {
            sequence.timer.expires_at(until);
            (void)co_await sequence.timer.async_wait(asio::as_tuple(asio::use_awaitable));
        }
        co_return !sequence.is_aborted;
    }

    /// A slot, then the prefill, one prompt after another.
    asio::awaitable<bool> prefill(Sequence& sequence, Script& script) {
        while (!sequence.is_aborted && !sequence.is_running) {
            int running = 0;
            bool is_next = true;  // of those that wait
            bool is_before = true;
            for (const Sequence* other : sequences_) {
                running += other->is_running ? 1 : 0;
                is_before = is_before && other != &sequence;
                if (is_before && !other->is_running) is_next = false;
            }
            if (is_next && running < options_.slots) {
                sequence.is_running = true;
                break;
            }
            sequence.timer.expires_at(Clock::time_point::max());
            (void)co_await sequence.timer.async_wait(asio::as_tuple(asio::use_awaitable));
        }
        if (sequence.is_aborted) co_return false;
        if (options_.no_progress) {
            const bool is_there = co_await pause(sequence, Clock::time_point::max());
            co_return is_there;
        }
        changed();
        if (options_.cache != "none") {
            // One token is always computed. What is being prefilled now is there when its turn
            // comes.
            script.cached_tokens = std::min(cache_.find(script.ends), script.prompt_tokens - 1);
            if (options_.cache == "evicting") cache_.clear();
            cache_.insert(script.ends);
        }
        const auto work = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
            static_cast<double>(script.prompt_tokens - script.cached_tokens) /
            options_.prefill_rate));
        prefill_free_at_ = std::max(prefill_free_at_, Clock::now()) + work;
        const auto ready_at = std::max(prefill_free_at_, Clock::now() + script.ttft);
        const bool is_there = co_await pause(sequence, ready_at);
        sequence.queued_tokens = 0;
        sequence.kept_tokens = script.prompt_tokens;
        changed();
        co_return is_there;
    }

    /// `event` behind a comment line, together `event_bytes` long.
    [[nodiscard]] std::string padded(std::string event) const {
        constexpr std::size_t kFrame = 2;  // the colon and the line feed
        if (event.size() + kFrame >= options_.event_bytes) return event;
        const std::size_t count = options_.event_bytes - event.size() - kFrame;
        return ":" + std::string(count, '.') + "\n" + event;
    }

    asio::awaitable<bool> write_event(HttpExchange& exchange, std::string_view event) {
        const std::size_t step =
            options_.segment_bytes == 0 ? event.size() : options_.segment_bytes;
        for (std::size_t at = 0; at < event.size(); at += step) {
            if (!co_await exchange.write(event.substr(at, step))) co_return false;
        }
        co_return true;
    }

    /// True when a fault ended the stream here, in the middle of `event`.
    asio::awaitable<bool> fail_at(HttpExchange& exchange, const Script& script, int events,
                                  std::string_view event) {
        const bool dies = options_.die_after_events && *options_.die_after_events == events;
        const bool resets = options_.reset_after_events == events;
        const bool truncates = options_.truncate_after_events == events;
        if (!script.has_fault_text || !(dies || resets || truncates)) co_return false;
        (void)co_await exchange.write(event.substr(0, event.size() / 2));
        if (dies) die_now();
        if (truncates) {
            (void)co_await exchange.finish();
            co_return true;
        }
        exchange.abort();
        co_return true;
    }

    asio::awaitable<bool> decode(HttpExchange& exchange, Sequence& sequence, const Script& script) {
        proto::Headers headers = generation_headers(options_, script);
        if (!script.is_stream) {
            const auto end = Clock::now() + script.token * script.tokens;
            if (!co_await pause(sequence, end)) co_return false;
            if (script.hold_after) {
                headers.add("content-type", "application/json");
                if (!co_await exchange.start_stream(200, std::move(headers))) co_return false;
                const std::string part(static_cast<std::size_t>(*script.hold_after), ' ');
                if (!co_await exchange.write(part)) co_return false;
                const bool is_there = co_await pause(sequence, Clock::time_point::max());
                co_return is_there;
            }
            proto::HttpResponse answer = proto::json_response(whole_answer(script));
            for (const auto& field : headers)
                answer.headers.add(field.name, field.value);
            co_return co_await exchange.send(std::move(answer));
        }
        headers.add("content-type", std::string(proto::kSseContentType));
        if (!co_await exchange.start_stream(200, std::move(headers))) co_return false;
        for (int i = 0; i < script.tokens; ++i) {
            const std::string event = padded(chunk_event(script, i));
            if (co_await fail_at(exchange, script, i, event)) co_return false;
            if (!co_await write_event(exchange, event)) co_return false;
            ++sequence.kept_tokens;
            changed();  // a token is a step
            if (!co_await pause(sequence, Clock::now() + script.token)) co_return false;
        }
        if (!co_await write_event(exchange, finish_event(script))) co_return false;
        if (!co_await write_event(exchange, proto::kSseDone)) co_return false;
        co_return co_await exchange.finish();
    }

    asio::awaitable<void> serve_generation(HttpExchange& exchange) {
        const proto::HttpRequest& request = exchange.request();
        const std::string dispatch(request.headers.get(proto::kHeaderDispatch));
        ++arrivals_;
        log_line("arrival", dispatch, request.request_id);
        log_trace(dispatch, request.headers);
        const std::string_view expected = request.headers.get(proto::kHeaderInstance);
        if (!expected.empty() && expected != options_.instance) {
            log_line("refused", dispatch, request.request_id);
            (void)co_await exchange.send(
                proto::error_response({proto::ErrorCode::kBadRequest, "other instance", {}, 421}));
            co_return;
        }
        const bool is_meant = request.body.find(options_.refuse_on) != std::string::npos;
        if (options_.refuse && is_meant) {
            log_line("refused", dispatch, request.request_id);
            const bool is_busy = *options_.refuse == 429 || *options_.refuse == 503;
            proto::ApiError error{proto::ErrorCode::kQueueFull, "scripted", {}, options_.refuse};
            if (is_busy && options_.retry_after > 0) error.retry_after_s = options_.retry_after;
            (void)co_await exchange.send(proto::error_response(error));
            co_return;
        }
        Script script = read_script(options_, request.path, request.body);
        if (script.has_die_text) die_now();
        const std::string& drop = options_.drop_on;
        if (!drop.empty() && request.body.find(drop) != std::string::npos) {
            exchange.abort();
            co_return;
        }
        if (script.prompt_tokens > options_.max_model_len) {
            log_line("refused", dispatch, request.request_id);
            (void)co_await exchange.send(proto::error_response(
                {proto::ErrorCode::kContextLengthExceeded, "scripted overflow", "messages"}));
            co_return;
        }
        co_await run_sequence(exchange, script, dispatch);
    }

    asio::awaitable<void> run_sequence(HttpExchange& exchange, Script& script,
                                       const std::string& dispatch) {
        Sequence sequence(exchange.executor());
        sequence.queued_tokens = script.prompt_tokens - cache_.find(script.ends);
        sequences_.push_back(&sequence);
        const auto place = std::prev(sequences_.end());
        exchange.on_disconnect([&sequence] {
            sequence.is_aborted = true;
            sequence.timer.cancel();
        });
        changed();
        bool is_complete = co_await prefill(sequence, script);
        if (is_complete) is_complete = co_await decode(exchange, sequence, script);
        exchange.on_disconnect({});
        sequences_.erase(place);
        for (Sequence* other : sequences_) {
            if (!other->is_running) other->timer.cancel();  // a slot is free
        }
        log_line(is_complete ? "end" : "abort", dispatch, exchange.request().request_id);
        const proto::DoneEvent done{.dispatch = dispatch,
                                    .prompt = script.prompt_tokens,
                                    .cached = script.cached_tokens,
                                    .generated = is_complete ? script.tokens : 0,
                                    .reason = is_complete ? "stop" : "cancelled"};
        for (const auto& stream : streams_)
            stream->done.push_back(proto::to_json(done));
        changed();
    }

    asio::io_context& loop_;
    Options options_;
    proto::RouteTable routes_;
    FakeCache cache_;
    std::list<Sequence*> sequences_;  // in order of arrival
    std::list<std::shared_ptr<StatusStream>> streams_;
    Clock::time_point prefill_free_at_;
    int info_fails_ = 0;
    std::uint64_t arrivals_ = 0;
    std::uint64_t seq_ = 0;
    std::uint64_t steps_ = 0;
};

Options parse(int argc, char** argv) {
    Options options;
    int ttft_ms = 0;
    int token_ms = 0;
    CLI::App app("A scripted replica for tests of the router.", "fake_replica");
    app.add_option("--port", options.port);
    app.add_option("--index", options.index);
    app.add_option("--instance", options.instance);
    app.add_option("--model", options.model);
    app.add_option("--slots", options.slots);
    app.add_option("--max-model-len", options.max_model_len);
    app.add_option("--kv-blocks", options.kv_blocks);
    app.add_option("--gpus", options.gpus);
    app.add_option("--prefill-rate", options.prefill_rate);
    app.add_option("--cache", options.cache)
        ->check(CLI::IsMember({"none", "boundary", "evicting"}));
    app.add_option("--ttft-ms", ttft_ms);
    app.add_option("--token-ms", token_ms);
    app.add_option("--tokens", options.tokens);
    app.add_option("--refuse", options.refuse);
    app.add_option("--retry-after", options.retry_after);
    app.add_option("--segment-bytes", options.segment_bytes);
    app.add_option("--die-after-events", options.die_after_events);
    app.add_option("--reset-after-events", options.reset_after_events);
    app.add_option("--truncate-after-events", options.truncate_after_events);
    app.add_option("--event-bytes", options.event_bytes);
    app.add_option("--refuse-on", options.refuse_on);
    app.add_flag("--reports-full", options.reports_full);
    app.add_option("--drop-on", options.drop_on);
    app.add_option("--garbage", options.garbage)->check(CLI::IsMember(garbage_kinds()));
    app.add_option("--garbage-on", options.garbage_on);
    app.add_option("--die-on", options.die_on);
    app.add_option("--events-on", options.events_on);
    app.add_flag("--no-progress", options.no_progress);
    app.add_flag("--health-lies", options.health_lies);
    app.add_flag("--no-stream", options.no_stream);
    app.add_option("--info-fails", options.info_fails);
    app.parse(argc, argv);
    options.ttft = std::chrono::milliseconds(ttft_ms);
    options.token = std::chrono::milliseconds(token_ms);
    return options;
}

int run(int argc, char** argv) {
    const Options options = parse(argc, argv);
    asio::io_context loop(1);
    FakeReplica replica(loop, options);
    proto::HttpServerOptions server_options;
    const bool has_front = !options.garbage.empty();
    server_options.port = has_front ? 0 : static_cast<std::uint16_t>(options.port);
    server_options.body_bytes_max = std::size_t{64} << 20;
    proto::HttpServer server(
        loop.get_executor(), std::move(server_options),
        [&replica](HttpExchange& exchange) { return replica.serve(exchange); });
    server.start();
    std::optional<GarbageFront> front;
    if (has_front) {
        front.emplace(loop, GarbageFront::Options{.kind = options.garbage,
                                                  .on = options.garbage_on,
                                                  .port = static_cast<std::uint16_t>(options.port),
                                                  .behind = server.port()});
    }
    std::printf("listening %d\n", static_cast<int>(front ? front->port() : server.port()));
    std::fflush(stdout);
    loop.run();
    return 0;
}

}  // namespace
}  // namespace fake

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    try {
        return fake::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "fake_replica: %s\n", error.what());
        return 1;
    }
}
