// Admission: brings queue, policy and replica set together and hands out grants.
//
//   acquire(ticket) ──▶ queue ──choose──▶ Grant{replica, charge, permit}      or a refusal (429,
//   503)
//
// The queue moves when a request arrives, a grant ends, a report comes in or a replica changes its
// state. A request that can start at once starts within the same call: no timer, no turn of the
// loop. Decision thread only.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <tl/expected.hpp>

#include "proto/error.h"
#include "proto/http_client.h"
#include "router/charge.h"
#include "router/charge_ledger.h"
#include "router/config.h"
#include "router/estimator.h"
#include "router/key_budget.h"
#include "router/metrics.h"
#include "router/pause_watch.h"
#include "router/policy_memory.h"
#include "router/replica_set.h"
#include "router/wait_queue.h"

namespace router {

class Dispatcher;
struct Waiter;

/// One request on its way through the router, as admission sees it. Lives in the request's
/// coroutine, over all its attempts.
struct Ticket {
    Clock::time_point arrival;
    Clock::duration stopped_before{};  // as PauseWatch counts: later stops are no part of its wait
    int priority = 0;
    int sequences = 1;
    std::size_t body_bytes = 0;
    std::int64_t prompt_tokens = 0;       // estimate
    std::int64_t output_tokens = 0;       // expected, all sequences
    std::int64_t output_tokens_kept = 0;  // KV room asked for beside the prompt, each sequence
    std::string model;                    // as the client names it; empty: any
    std::string served_model;             // what averages are kept under
    KeyId key = kAnonymousKey;
    std::shared_ptr<const Boundaries> boundaries;  // null: nothing to match
    std::vector<InstanceRef> excluded;             // those that failed this request
    bool in_front = false;                         // was dispatched before
    /// The deadline of shutdown has passed or the client has left.
    bool is_cancelled = false;

    // The dispatcher's own.
    Waiter* waiter = nullptr;              // set while it waits
    std::vector<InstanceRef> not_serving;  // as of `models_version`
    std::uint64_t models_version = 0;
    std::optional<FleetMode> mode;  // of those that may serve its model, since `mode_since`
    Clock::time_point mode_since;
    Clock::time_point waiting_since;  // as if the wait had had no breaks
    Clock::time_point left_at;        // when it last went to a replica
};

/// The right to use a replica for one attempt. Destroying it gives charge and permit back and lets
/// the queue move.
class Grant {
public:
    Grant(Dispatcher& dispatcher, const Replica& replica, const Ticket& ticket, Decision decision,
          std::string dispatch_id);
    Grant(const Grant&) = delete;
    Grant& operator=(const Grant&) = delete;
    ~Grant();

    InstanceRef replica;
    proto::Endpoint endpoint;
    std::string instance;
    std::string dispatch_id;
    Decision decision;
    ReplicaSeries& series;  // of the replica
    Charge charge;
    const Clock::time_point selected_at;

    /// The replica's head is here: charge, affinity and trust follow what it says.
    void on_first_token(const Placement::FirstToken& first, Clock::time_point now);

    /// Tokens generated in all, once the replica has reported the end.
    std::optional<std::int64_t> generated_tokens;

    /// The replica has done its part: its place and what was charged are free for others, while
    /// the client takes the rest of its answer. Until the end of the grant the key still has it
    /// running. Idempotent.
    void give_back();

    /// What the attempt says about the replica; the first word counts, none is neutral.
    void judge(AttemptVerdict verdict);

    /// Called when the replica is lost while this attempt has no first byte. Unset it afterwards.
    std::function<void()> on_lost;

private:
    friend class Dispatcher;
    Dispatcher* dispatcher_;
    bool is_trial_ = false;
    bool has_verdict_ = false;
    Permit permit_;
    std::shared_ptr<Account> account_;
    std::optional<Placement> placement_;
    std::list<Grant*>::iterator place_;
};

class Dispatcher {
public:
    Dispatcher(boost::asio::any_io_executor executor, const Config& config, ReplicaSet& set,
               Metrics& metrics);
    Dispatcher(const Dispatcher&) = delete;
    Dispatcher& operator=(const Dispatcher&) = delete;

    /// Waits for a replica. The error says what the client gets; code kReplicaLost with
    /// `is_cancelled` set means that nobody waits for an answer any more.
    boost::asio::awaitable<tl::expected<std::unique_ptr<Grant>, proto::ApiError>> acquire(
        Ticket& ticket);

    /// Ends the wait of `ticket` at once, if it waits.
    void cancel(Ticket& ticket);

    /// Refuses new requests from now on; those that wait go on.
    void start_draining() { is_draining_ = true; }
    [[nodiscard]] bool is_draining() const { return is_draining_; }

    /// The refusal a request gets on its head alone, before its body is read. One that needs no
    /// queue is refused only when the router leaves.
    [[nodiscard]] std::optional<proto::ApiError> refuse_early(bool needs_queue,
                                                              KeyId key = kAnonymousKey);
    /// A head was accepted: it counts as one that waits until it has its place, or is gone.
    [[nodiscard]] WaitQueue::Arrival arrive(KeyId key) { return queue_.arrive(key); }
    /// The refusal of a body of `key` that found no memory.
    [[nodiscard]] proto::ApiError refuse_body(std::size_t bytes, KeyId key);

    /// Moves what can move.
    void pump();
    /// The same, after time alone may have changed what the fleet promises. Called by a timer.
    void look_at_fleet() {
        on_fleet_change();
        update_memory_gauges();
    }

    /// Whose end it was: of an attempt that still runs here and has been told, of one that has
    /// ended here, or of none of ours, whether another router's or invented: that counts nowhere.
    enum class DoneOf : std::uint8_t { kRunning, kEnded, kNobody };
    /// Replica `index` reported the end of a dispatch.
    DoneOf on_done(int index, const proto::DoneEvent& done, Estimator& estimator);

    /// The stops of this process; whoever runs its tick tells of them.
    PauseWatch& pauses() { return pauses_; }

    /// The bodies of all requests before their first answer byte.
    KeyBudget& bodies() { return bodies_; }
    /// A place for a request that needs no queue, of as many as may wait there.
    [[nodiscard]] proto::Result<KeyBudget::Share> enter(KeyId key);
    /// Requests that have such a place.
    [[nodiscard]] std::size_t passes() const { return passes_.used(); }
    [[nodiscard]] const WaitQueue& queue() const { return queue_; }
    /// How many may wait.
    [[nodiscard]] std::size_t queue_count_max() const;
    PolicyMemory& memory() { return memory_; }
    /// All that a choice sees now.
    [[nodiscard]] Snapshot snapshot(int dispatch_ahead, Clock::time_point now) const;
    /// The least and the most that a request refused now would be told to wait, in seconds.
    [[nodiscard]] std::pair<int, int> retry_after_range_s() const;
    /// What one is told of them: from the work that waits, and a random part.
    [[nodiscard]] int computed_retry_after_s();
    /// What one is told who found nothing ready: the launcher's estimate where there is one.
    [[nodiscard]] int retry_when_ready_s() const;
    /// Counts and returns the error of a refused request, which may have named its model.
    proto::ApiError refuse(RejectReason reason, const std::string& model = {});

private:
    friend class Grant;
    void forgive_stop(Ticket& ticket, Clock::time_point now) const;
    void begin_wait(Ticket& ticket, Clock::time_point now) const;
    void learn_servers(Ticket& ticket) const;
    [[nodiscard]] FleetMode mode_of(const Ticket& ticket, Clock::time_point now) const;
    [[nodiscard]] std::optional<RejectReason> overdue(Ticket& ticket, Clock::time_point now,
                                                      Clock::time_point& deadline);
    [[nodiscard]] std::size_t room_now() const;
    void on_fleet_change();
    void on_replica_lost(const std::shared_ptr<Account>& account);
    [[nodiscard]] proto::ApiError try_again(proto::ErrorCode code, const std::string& why);
    [[nodiscard]] Backlog whole_backlog() const;
    void update_gauges();
    void update_memory_gauges();
    void start(const Decision& decision, Ticket& ticket, Waiter& waiter);
    void end_reported_prefills();
    void wait_for_stagger(Clock::time_point now);

    boost::asio::any_io_executor executor_;
    const Config& config_;
    ReplicaSet& set_;
    Metrics& metrics_;
    PolicyMemory memory_;
    ChargeLedger ledger_;
    WaitQueue queue_;
    KeyBudget bodies_;  // bytes
    KeyBudget passes_;  // requests
    std::list<Waiter*> waiters_;
    std::list<Grant*> grants_;
    PauseWatch pauses_;
    FleetMode mode_ = FleetMode::kNone;
    std::uint64_t models_version_ = 0;  // that those who wait have heard of
    bool is_draining_ = false;
    boost::asio::steady_timer stagger_;  // runs while a long prefill waits for another's start
    bool is_staggering_ = false;
    std::string router_id_;
    std::uint64_t next_dispatch_ = 1;
    std::mt19937_64 random_;
};

}  // namespace router
