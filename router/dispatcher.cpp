#include "router/dispatcher.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/http_message.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr int kRetryAfterDraining = 5;
constexpr int kRetryAfterUnknown = 30;  // when the launcher gives no estimate
constexpr std::size_t kQueueCountMin = 64;
constexpr std::size_t kQueuePerSlot = 4;

}  // namespace

/// A request in the queue. Lives in the frame of acquire(). `wake` ends its pause.
struct Waiter {
    explicit Waiter(const asio::any_io_executor& executor) : wake(executor) {}

    asio::steady_timer wake;
    std::unique_ptr<Grant> grant;
};

Grant::Grant(Dispatcher& dispatcher, const Replica& from, const Ticket& ticket, Decision made,
             std::string id)
    : replica{from.index, from.life},
      endpoint(from.endpoint),
      instance(from.instance()),
      dispatch_id(std::move(id)),
      decision(made),
      charge(from.account, {.prefill_tokens = ticket.prompt_tokens,
                            .output_tokens = ticket.output_tokens,
                            .sequences = ticket.sequences}),
      dispatcher_(&dispatcher),
      permit_(from.account, ticket.sequences),
      account_(from.account) {
    dispatcher_->grants_.push_back(this);
    place_ = std::prev(dispatcher_->grants_.end());
}

Grant::~Grant() {
    dispatcher_->grants_.erase(place_);
    charge.release();
    permit_.release();
    dispatcher_->pump();
}

Dispatcher::Dispatcher(asio::any_io_executor executor, const Config& config, ReplicaSet& set,
                       Metrics& metrics)
    : executor_(std::move(executor)),
      config_(config),
      set_(set),
      metrics_(metrics),
      queue_(config.queue_count_max.value_or(kQueueCountMin)),
      bodies_(config.bodies_bytes_max),
      mode_since_(Clock::now()),
      router_id_(proto::make_instance_id()),
      random_(std::random_device{}()) {
    set_.on_change = [this] { on_fleet_change(); };
    set_.on_lost = [this](const Replica&, const std::shared_ptr<Account>& account) {
        on_replica_lost(account);
    };
}

asio::awaitable<tl::expected<std::unique_ptr<Grant>, proto::ApiError>> Dispatcher::acquire(
    Ticket& ticket) {
    using Refused = tl::unexpected<proto::ApiError>;
    if (is_draining_ && !ticket.in_front) co_return Refused(refuse(RejectReason::kDraining));
    on_fleet_change();  // the mode may have changed by time alone
    Clock::time_point deadline;
    if (const auto reason = overdue(ticket, Clock::now(), deadline)) {
        co_return Refused(refuse(*reason));
    }
    Waiter waiter(executor_);
    queue_.set_count_max(queue_count_max());
    const std::optional<Place> place =
        queue_.push({.priority = ticket.priority,
                     .in_front = ticket.in_front,
                     .arrival = ticket.arrival,
                     .body_bytes = ticket.body_bytes,
                     .prompt_tokens = ticket.prompt_tokens,
                     .output_tokens = ticket.output_tokens,
                     .demand = {.sequences = ticket.sequences, .excluded = ticket.excluded},
                     .on_dispatch = [this, &waiter, &ticket](const Decision& decision) {
                         const Replica& replica = *set_.find(decision.replica->index);
                         set_.mark_dispatch(replica.index);
                         metrics_.replica(replica.index).decisions_least_load->Increment();
                         waiter.grant = std::make_unique<Grant>(
                             *this, replica, ticket, decision,
                             router_id_ + "-" + std::to_string(next_dispatch_++));
                         waiter.wake.cancel();
                     }});
    if (!place) co_return Refused(refuse(RejectReason::kQueueFull));
    pump();
    if (waiter.grant) co_return std::move(waiter.grant);

    ticket.waiter = &waiter;
    waiters_.push_back(&waiter);
    const auto waiter_place = std::prev(waiters_.end());
    std::optional<RejectReason> reason;
    while (!waiter.grant && !ticket.is_cancelled) {
        reason = overdue(ticket, Clock::now(), deadline);
        if (reason) break;
        waiter.wake.expires_at(deadline);
        (void)co_await waiter.wake.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    ticket.waiter = nullptr;
    waiters_.erase(waiter_place);
    if (waiter.grant) co_return std::move(waiter.grant);
    queue_.remove(*place);
    update_gauges();
    if (reason) co_return Refused(refuse(*reason));
    co_return Refused(proto::ApiError(proto::ErrorCode::kReplicaLost, "cancelled"));
}

void Dispatcher::cancel(Ticket& ticket) {
    ticket.is_cancelled = true;
    if (ticket.waiter != nullptr) ticket.waiter->wake.cancel();
}

/// Why the request has waited long enough, or until when it may.
std::optional<RejectReason> Dispatcher::overdue(const Ticket& ticket, Clock::time_point now,
                                                Clock::time_point& deadline) {
    if (mode_ == FleetMode::kNone) return RejectReason::kNoReplicaReady;
    if (mode_ == FleetMode::kServing && !ticket.excluded.empty()) {
        const Demand demand{.sequences = ticket.sequences, .excluded = ticket.excluded};
        const Snapshot snapshot = set_.snapshot(config_.dispatch_ahead, now);
        if (choose(snapshot, demand).verdict == Verdict::kUnavailable) {
            return RejectReason::kAttemptsUsedUp;
        }
    }
    // Time spent before the fleet changed its mode is forgiven, but not without end.
    const bool is_starting = mode_ == FleetMode::kStarting;
    const auto allowance = is_starting ? config_.queue_wait_starting : config_.queue_wait;
    deadline = std::min(std::max(ticket.arrival, mode_since_) + allowance,
                        ticket.arrival + config_.queue_wait_starting + config_.queue_wait);
    if (now < deadline) return std::nullopt;
    return mode_ == FleetMode::kServing ? RejectReason::kQueueTimeout
                                        : RejectReason::kNoReplicaReady;
}

void Dispatcher::pump() {
    if (queue_.size() == 0) return;
    const auto now = Clock::now();
    queue_.dispatch(now, [this, now] { return set_.snapshot(config_.dispatch_ahead, now); });
    metrics_.overhead_seconds.at(static_cast<std::size_t>(Stage::kChoose))
        ->Observe(std::chrono::duration<double>(Clock::now() - now).count());
    update_gauges();
}

std::optional<proto::ApiError> Dispatcher::refuse_early(bool needs_queue) {
    if (is_draining_) return refuse(RejectReason::kDraining);
    if (!needs_queue) return std::nullopt;
    on_fleet_change();
    if (mode_ == FleetMode::kNone) return refuse(RejectReason::kNoReplicaReady);
    if (queue_.size() >= queue_count_max()) return refuse(RejectReason::kQueueFull);
    return std::nullopt;
}

proto::ApiError Dispatcher::refuse(RejectReason reason) {
    metrics_.rejected.at(static_cast<std::size_t>(reason))->Increment();
    switch (reason) {
        case RejectReason::kQueueFull: {
            const std::string places = std::to_string(queue_count_max());
            return {proto::ErrorCode::kQueueFull,
                    "The queue is full: " + std::to_string(queue_.size()) + " of " + places +
                        " places are taken.",
                    {},
                    {},
                    computed_retry_after_s()};
        }
        case RejectReason::kBodiesFull:
            return {proto::ErrorCode::kQueueFull,
                    "The queue is full: the requests that wait hold " +
                        std::to_string(bodies_.bytes_used()) + " bytes.",
                    {},
                    {},
                    computed_retry_after_s()};
        case RejectReason::kQueueTimeout:
            return {proto::ErrorCode::kQueueTimeout,
                    "The request waited too long for a free replica.",
                    {},
                    {},
                    computed_retry_after_s()};
        case RejectReason::kNoReplicaReady: {
            const int eta_s = set_.eta_s();
            return {proto::ErrorCode::kNoReplicaReady,
                    "No replica is ready.",
                    {},
                    {},
                    eta_s > 0 ? eta_s : kRetryAfterUnknown};
        }
        case RejectReason::kAttemptsUsedUp:
            return {proto::ErrorCode::kReplicaLost,
                    "Every replica failed this request before its first token."};
        case RejectReason::kDraining:
            break;
    }
    return {
        proto::ErrorCode::kDraining, "The server is shutting down.", {}, {}, kRetryAfterDraining};
}

std::size_t Dispatcher::queue_count_max() const {
    return config_.queue_count_max.value_or(std::max(
        kQueueCountMin, kQueuePerSlot * static_cast<std::size_t>(std::max(0, set_.slots_total()))));
}

void Dispatcher::on_fleet_change() {
    const auto now = Clock::now();
    const FleetMode mode = set_.mode(now);
    const bool has_changed = mode != mode_;
    if (has_changed) {
        mode_ = mode;
        mode_since_ = now;
    }
    pump();
    // Their deadlines have moved, or there is nothing left to wait for.
    if (has_changed) {
        for (Waiter* waiter : waiters_)
            waiter->wake.cancel();
    }
}

void Dispatcher::on_replica_lost(const std::shared_ptr<Account>& account) {
    for (Grant* grant : grants_) {
        if (grant->account_ == account && grant->on_lost) grant->on_lost();
    }
}

int Dispatcher::computed_retry_after_s() {
    Backlog backlog = set_.backlog();
    backlog.prompt_tokens += queue_.prompt_tokens();
    backlog.output_tokens += queue_.output_tokens();
    return retry_after_s(backlog, std::uniform_real_distribution<double>(0.0, 1.0)(random_));
}

void Dispatcher::update_gauges() {
    for (std::size_t i = 0; i < metrics_.queue_requests.size(); ++i) {
        const auto count = queue_.count_of(static_cast<PriorityClass>(i));
        metrics_.queue_requests.at(i)->Set(static_cast<double>(count));
    }
    metrics_.queue_bytes->Set(static_cast<double>(queue_.body_bytes()));
}

}  // namespace router
