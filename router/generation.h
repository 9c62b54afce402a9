// One generation on its way through the router: queue, attempts, relay, end.
//
//   run() ─▶ acquire a grant ─▶ attempt ─▶ relay ─▶ outcome
//                 ▲                 │ before the first byte to the client:
//                 └── refused ◀─────┤   refused or 421 ─▶ another replica
//                     busy, lost    │   429, 503       ─▶ another, or the front of the queue
//                                   │   died           ─▶ one more try
//                                   └ after it: whole events, one error event, end
//
// The client's leaving (FIN, RST, stalled write) is a callback at any of these points: it takes the
// request out of the queue or closes the upstream connection at once, and the coroutine then ends.
// In these coroutines arguments of awaited calls are named first: GCC 12 evaluates both arms of a
// conditional expression inside a co_await.
// Whatever it holds — place, charge, permit, body memory, gauge — it gives back by destruction.
// Decision thread only.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/http_client.h"
#include "proto/http_server.h"
#include "router/access_log.h"
#include "router/boundaries.h"
#include "router/config.h"
#include "router/dispatcher.h"
#include "router/estimator.h"
#include "router/key_ring.h"
#include "router/key_source.h"
#include "router/metrics.h"
#include "router/parse_pool.h"
#include "router/pinger.h"
#include "router/retry_budget.h"
#include "router/stream_relay.h"
#include "router/trace_context.h"
#include "router/upstream.h"

namespace router {

/// What all requests share. References outlive every request.
struct Services {
    const Config& config;
    ReplicaSet& set;
    Dispatcher& dispatcher;
    proto::HttpClient& client;
    Metrics& metrics;
    AccessLog& access_log;
    DecisionRing& decisions;  // written by the access log
    Estimator& estimator;
    RetryBudget& retry_budget;
    const KeyRing& keys;
    KeySource& key_source;
    KeySource& admin_key_source;
    const std::shared_ptr<const proto::TlsContext>& tls;  // in use; null: clients speak without
    SipKey hash_key;  // of this process, for the boundaries of prompts
    ParsePool& parse_pool;
    const proto::HttpServer& server;  // of the clients
    KeyBudget& scrapes;               // of /metrics/all at once
    /// A connection to a replica failed: look at it now.
    std::function<void(int index)> on_suspicion;
    /// A replica was removed: nobody needs to look at it any more.
    std::function<void(int index)> on_removal;
    /// An operator drained or undrained an announced replica here: its launcher is to know.
    std::function<void(int index, bool is_drained)> on_drain;
    std::list<class Generation*> generations;  // all that run, for the deadline of shutdown
};

/// A validated request.
struct GenerationJob {
    std::string target;                    // path
    std::shared_ptr<const Caller> caller;  // whose it is; null in tests: anonymous
    std::string model;                     // as the client names it; empty: any
    std::string served_model;  // what that stands for: averages and prefixes are kept under it
    bool is_stream = false;
    int priority = 0;
    int sequences = 1;
    std::size_t prompt_bytes = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    std::int64_t output_tokens_kept = 0;  // KV room asked for beside the prompt, each sequence
    KeyId key = kAnonymousKey;
    std::shared_ptr<const Boundaries> boundaries;
    Clock::time_point arrival;
    KeyBudget::Share body_share;
};

class Generation {
public:
    Generation(Services& services, proto::HttpExchange& exchange, GenerationJob job);
    ~Generation();
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;

    boost::asio::awaitable<void> run();

    /// The deadline of shutdown: in the queue it is answered 503, in a stream by the error event.
    void expire() { cut(Cut::kShutdown); }
    /// Its replica is taken out of service: without a byte to the client it goes elsewhere, in a
    /// stream it ends by the error event. False when it was told before.
    bool evict();
    /// Ends it when it has gone on for too long. To be called a few times per second.
    void check_time(Clock::time_point now);

    /// The replica that has it now; none while it waits.
    [[nodiscard]] std::optional<int> running_on() const { return running_on_; }

private:
    enum class Next : std::uint8_t { kEnd, kAgain };
    /// Why the router itself ends an attempt or the whole request.
    enum class Cut : std::uint8_t { kNone, kEvicted, kTtftMax, kTotalMax, kShutdown };
    struct CutAnswer {
        proto::ApiError error;
        Outcome outcome = Outcome::kDrained;
    };

    boost::asio::awaitable<void> run_attempts();
    boost::asio::awaitable<Next> attempt(Grant& grant);
    boost::asio::awaitable<Next> after_failure(Grant& grant, AttemptResult result);
    boost::asio::awaitable<Next> relay_stream(Grant& grant, proto::UpstreamResponse& response);
    boost::asio::awaitable<Next> relay_whole(Grant& grant, proto::UpstreamResponse& response);
    boost::asio::awaitable<AttemptOutcome> relay_long(Grant& grant,
                                                      proto::UpstreamResponse& response,
                                                      proto::Headers headers, std::string held);
    boost::asio::awaitable<bool> try_elsewhere(Grant& grant, proto::UpstreamResponse& response);
    boost::asio::awaitable<void> end_broken_stream(bool is_stalled);
    void note_stream_end(Grant& grant, const StreamRelay& relay, std::int64_t events);
    [[nodiscard]] CutAnswer broken_end(bool is_stalled);
    AttemptOutcome cut_long_answer(const Grant& grant, bool is_stalled);
    [[nodiscard]] bool is_given_up(const Grant& grant, Clock::time_point now,
                                   Clock::time_point heard_at) const;
    boost::asio::awaitable<void> answer_error(const proto::ApiError& error, Outcome outcome);
    boost::asio::awaitable<void> answer_whole(proto::HttpResponse response);

    [[nodiscard]] proto::HttpClientRequest upstream_request(const Grant& grant);
    [[nodiscard]] proto::Headers head_for_client(const proto::UpstreamResponse& response) const;
    void add_decision(proto::Headers& headers) const;
    [[nodiscard]] bool is_replica_lost(const Grant& grant) const { return has_died(grant.replica); }
    [[nodiscard]] Outcome outcome_of(int status) const;
    [[nodiscard]] Outcome outcome_of(proto::ErrorCode refusal) const;
    void on_first_byte(Grant& grant, const proto::UpstreamResponse& response);
    void on_client_gone();
    void cut(Cut why);
    [[nodiscard]] CutAnswer cut_answer() const;
    [[nodiscard]] CutAnswer lost_answer() const;
    [[nodiscard]] std::chrono::milliseconds look_interval() const;
    [[nodiscard]] bool has_died(InstanceRef instance) const;
    boost::asio::awaitable<bool> learn_fate(Grant& grant);
    boost::asio::awaitable<bool> may_try_again(Grant& grant);
    void count_attempt(Grant& grant, AttemptOutcome outcome);
    [[nodiscard]] bool tells_ends(const Grant& grant) const;
    void account(Grant& grant, const std::optional<AnswerEnd>& end, std::int64_t events);
    void free_body();

    Services& services_;
    proto::HttpExchange& exchange_;
    GenerationJob job_;
    Ticket ticket_;
    std::shared_ptr<const std::string> body_;
    InflightGauge gauge_;
    Pinger pinger_;
    TraceContext trace_;                    // one for all attempts, also where it began here
    const Clock::duration stopped_before_;  // of this process, when the request came
    RequestRecord record_;
    std::shared_ptr<proto::CancelHandle> cancel_;  // of the attempt in progress
    std::optional<Clock::time_point> client_gone_at_;
    std::vector<InstanceRef> lost_;   // those that broke off with it
    int failure_count_ = 0;           // attempts that came to nothing, refusals for lack of room
    int stall_count_ = 0;             // not counted; of them those whose replica hung
    bool has_hung_ = false;           // the replica of the attempt in progress
    boost::asio::steady_timer fate_;  // runs while a look at a broken replica is awaited
    int busy_count_ = 0;
    Cut cut_ = Cut::kNone;
    std::optional<int> running_on_;
    std::optional<Clock::time_point> dispatched_at_;  // of the attempt, until its first byte
    std::list<Generation*>::iterator place_;
};

}  // namespace router
