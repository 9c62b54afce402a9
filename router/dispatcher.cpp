#include "router/dispatcher.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "proto/http_message.h"
#include "router/policy_record.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr int kRetryAfterDraining = 5;
constexpr int kRetryAfterUnknown = 30;  // when the launcher gives no estimate
constexpr std::size_t kQueueCountMin = 64;
constexpr std::size_t kQueuePerSlot = 4;

PolicyMemory::Options memory_options(const Config& config) {
    return {.affinity = {.ttl = config.affinity_ttl, .entries_max = config.affinity_entries_max},
            .cost = {.decode_weight = config.cost_decode_weight,
                     .kv_s = config.cost_kv_s,
                     .decay = config.cost_decay},
            .big_prefill_s = config.big_prefill_s,
            .big_prefills_max = config.big_prefills_max,
            .big_prefill_stagger = config.big_prefill_stagger,
            .light_hold = config.light_hold};
}

/// Whether time alone will mend it.
std::string nobody_is_ready_text(const ReplicaSet& set, const std::string& model) {
    const auto& replicas = set.replicas();
    const bool is_other_ready = std::ranges::any_of(
        replicas, [](const auto& entry) { return entry.second.state == ReplicaState::kReady; });
    if (is_other_ready && !model.empty()) {
        return "No replica that serves '" + proto::printable(model) + "' is ready.";
    }
    if (replicas.empty()) return "No replica is ready: this server has none.";
    const bool are_all_drained = std::ranges::all_of(
        replicas, [](const auto& entry) { return entry.second.drain_asked_at.has_value(); });
    if (!are_all_drained) return "No replica is ready.";
    return "No replica is ready: an operator has drained all of them; 'quadriga undrain N' brings "
           "one back.";
}

}  // namespace

/// A request in the queue. Lives in the frame of acquire(). `wake` ends its pause.
struct Waiter {
    Waiter(const asio::any_io_executor& executor, Ticket& of) : ticket(of), wake(executor) {}

    Ticket& ticket;
    asio::steady_timer wake;
    std::unique_ptr<Grant> grant;
};

Grant::Grant(Dispatcher& dispatcher, const Replica& from, const Ticket& ticket, Decision made,
             std::string id)
    : replica{from.index, from.life},
      endpoint(from.endpoint),
      instance(from.instance()),
      dispatch_id(std::move(id)),
      decision(std::move(made)),
      series(dispatcher.metrics_.replica(from.index)),
      charge(from.account, {.prefill_tokens = decision.uncached_tokens,
                            .output_tokens = ticket.output_tokens,
                            .sequences = ticket.sequences,
                            .blocks = decision.blocks}),
      selected_at(Clock::now()),
      dispatcher_(&dispatcher),
      permit_(from.account, ticket.sequences),
      account_(from.account) {
    placement_.emplace(dispatcher_->memory_, decision, ticket.boundaries, ticket.key,
                       ticket.output_tokens, selected_at);
    dispatcher_->ledger_.add(dispatch_id, {.model = ticket.served_model,
                                           .key = ticket.key,
                                           .sequences = ticket.sequences,
                                           .charged_service = placement_->charged_service(),
                                           .account = account_,
                                           .charge = charge.number(),
                                           .running = this});
    dispatcher_->grants_.push_back(this);
    place_ = std::prev(dispatcher_->grants_.end());
}

Grant::~Grant() {
    if (!has_verdict_) judge(AttemptVerdict::kNeutral);
    dispatcher_->grants_.erase(place_);
    dispatcher_->ledger_.note_end(dispatch_id);
    const bool was_key_full = dispatcher_->memory_.fair_share().is_at_limit(placement_->key());
    const bool has_place = permit_.is_held();
    charge.release();
    permit_.release();
    placement_.reset();
    if (has_place || was_key_full) dispatcher_->pump();
}

void Grant::give_back() {
    if (!permit_.is_held()) return;
    charge.release();
    permit_.release();
    placement_->end_big_prefill();
    dispatcher_->pump();
}

void Grant::judge(AttemptVerdict verdict) {
    if (std::exchange(has_verdict_, true)) return;
    dispatcher_->set_.on_attempt_end(replica, verdict, is_trial_, Clock::now());
}

void Grant::on_first_token(const Placement::FirstToken& first, Clock::time_point now) {
    const bool was_big = placement_->is_big_prefill();
    std::optional<std::int64_t> prompt_tokens;
    if (first.report) prompt_tokens = first.report->prompt_tokens;
    charge.mark_first_byte(now, prompt_tokens);
    placement_->on_first_token(first, now);
    if (placement_->predicted_tokens() > 0) {
        series.affinity_predicted->Increment(static_cast<double>(placement_->predicted_tokens()));
    }
    if (first.report && first.report->cached_tokens > 0) {
        series.affinity_confirmed->Increment(static_cast<double>(first.report->cached_tokens));
    }
    if (first.is_timely && decision.expected_ttft_s > 0) {
        const double actual_s = std::chrono::duration<double>(now - selected_at).count();
        dispatcher_->metrics_.ttft_prediction_error->Observe(actual_s / decision.expected_ttft_s);
    }
    if (was_big) dispatcher_->pump();  // the next long one may begin
}

Dispatcher::Dispatcher(asio::any_io_executor executor, const Config& config, ReplicaSet& set,
                       Metrics& metrics)
    : executor_(std::move(executor)),
      config_(config),
      set_(set),
      metrics_(metrics),
      memory_(memory_options(config)),
      queue_(config.queue_count_max.value_or(kQueueCountMin), &memory_.fair_share(),
             config.affinity_hold),
      bodies_(config.bodies_bytes_max),
      passes_(kQueueCountMin),
      stagger_(executor_),
      router_id_(proto::make_instance_id()),
      random_(std::random_device{}()) {
    set_.on_change = [this] { on_fleet_change(); };
    set_.on_lost = [this](const Replica&, const std::shared_ptr<Account>& account) {
        on_replica_lost(account);
    };
    set_.on_instance_end = [this](InstanceRef gone) { memory_.drop_instance(gone); };
}

asio::awaitable<tl::expected<std::unique_ptr<Grant>, proto::ApiError>> Dispatcher::acquire(
    Ticket& ticket) {
    using Refused = tl::unexpected<proto::ApiError>;
    if (is_draining_ && !ticket.in_front) co_return Refused(refuse(RejectReason::kDraining));
    on_fleet_change();  // the mode may have changed by time alone
    const bool is_first = !ticket.in_front;
    begin_wait(ticket, Clock::now());
    Clock::time_point deadline;
    if (const auto reason = overdue(ticket, Clock::now(), deadline)) {
        co_return Refused(refuse(*reason, ticket.model));
    }
    Waiter waiter(executor_, ticket);
    queue_.set_count_max(queue_count_max());
    WaitQueue::Entry entry{.priority = ticket.priority,
                           .in_front = ticket.in_front,
                           .arrival = ticket.arrival,
                           .body_bytes = ticket.body_bytes,
                           .prompt_tokens = ticket.prompt_tokens,
                           .output_tokens = ticket.output_tokens};
    entry.key = ticket.key;
    entry.demand.sequences = ticket.sequences;
    entry.demand.excluded = ticket.excluded;
    entry.demand.not_serving = ticket.not_serving;
    entry.demand.prompt_tokens = ticket.prompt_tokens;
    entry.demand.output_tokens_kept = ticket.output_tokens_kept;
    entry.demand.is_retry = !is_first;
    entry.refresh = [this, &ticket](Demand& demand) {
        if (ticket.models_version != set_.models_version()) {
            learn_servers(ticket);
            demand.not_serving = ticket.not_serving;
        }
        if (ticket.boundaries) memory_.fill(demand, *ticket.boundaries, Clock::now());
    };
    entry.on_dispatch = [this, &waiter, &ticket](const Decision& decision) {
        start(decision, ticket, waiter);
    };
    if (is_first) {
        const auto now = Clock::now();
        memory_.note_arrival(ticket.prompt_tokens, set_.snapshot(config_.dispatch_ahead, now), now);
    }
    const std::optional<Place> place = queue_.push(std::move(entry));
    if (!place) {
        co_return Refused(
            refuse(queue_.is_full() ? RejectReason::kQueueFull : RejectReason::kKeyQueueFull));
    }
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
    if (reason) co_return Refused(refuse(*reason, ticket.model));
    co_return Refused(proto::ApiError(proto::ErrorCode::kReplicaLost, "cancelled"));
}

/// The time a request spent on a replica that failed it is no part of its wait.
void Dispatcher::begin_wait(Ticket& ticket, Clock::time_point now) const {
    if (!ticket.in_front) {
        ticket.waiting_since = ticket.arrival;
        return;
    }
    const auto away = now - ticket.left_at;
    ticket.waiting_since += away;
    ticket.mode_since += away;
    ticket.stopped_before = pauses_.stopped(now);  // a stop of that time is part of it
}

/// Nor is the time for which this process was stopped.
void Dispatcher::forgive_stop(Ticket& ticket, Clock::time_point now) const {
    const auto stopped = pauses_.stopped(now);
    const auto length = stopped - std::exchange(ticket.stopped_before, stopped);
    ticket.waiting_since += length;
    ticket.mode_since += length;
}

void Dispatcher::start(const Decision& decision, Ticket& ticket, Waiter& waiter) {
    ticket.left_at = Clock::now();
    forgive_stop(ticket, ticket.left_at);
    const Replica& replica = *set_.find(decision.replica->index);
    const bool is_trial = set_.mark_dispatch(replica.index);
    waiter.grant = std::make_unique<Grant>(*this, replica, ticket, decision,
                                           router_id_ + "-" + std::to_string(next_dispatch_++));
    waiter.grant->series.decisions.at(static_cast<std::size_t>(decision.reason))->Increment();
    waiter.grant->is_trial_ = is_trial;
    if (spdlog::should_log(spdlog::level::debug)) {
        spdlog::debug("event=decision dispatch={} decision={}", waiter.grant->dispatch_id,
                      decision_json(decision));
    }
    waiter.wake.cancel();
}

void Dispatcher::cancel(Ticket& ticket) {
    ticket.is_cancelled = true;
    if (ticket.waiter != nullptr) ticket.waiter->wake.cancel();
}

/// Which replicas it must not go to for their models, as they are known now.
void Dispatcher::learn_servers(Ticket& ticket) const {
    if (ticket.models_version == set_.models_version()) return;
    ticket.models_version = set_.models_version();
    ticket.not_serving = set_.not_serving(ticket.model);
}

/// What the replicas that serve its model, or may, promise it.
FleetMode Dispatcher::mode_of(const Ticket& ticket, Clock::time_point now) const {
    return ticket.not_serving.empty() ? mode_ : set_.mode_for(ticket.model, now);
}

/// Why the request has waited long enough, or until when it may.
std::optional<RejectReason> Dispatcher::overdue(Ticket& ticket, Clock::time_point now,
                                                Clock::time_point& deadline) {
    forgive_stop(ticket, now);
    learn_servers(ticket);
    if (!ticket.not_serving.empty() && !set_.is_model_known(ticket.model)) {
        return RejectReason::kModelGone;
    }
    const FleetMode mode = mode_of(ticket, now);
    if (mode != ticket.mode) {
        ticket.mode_since = ticket.mode ? now : ticket.waiting_since;
        ticket.mode = mode;
    }
    if (mode == FleetMode::kNone) return RejectReason::kNoReplicaReady;
    if (mode == FleetMode::kServing && !ticket.excluded.empty()) {
        // A shut breaker opens again and a busy replica frees: those are waited for.
        const auto is_left = [this, &ticket](const auto& one) {
            const Replica& replica = one.second;
            const InstanceRef ref{replica.index, replica.life};
            return replica.state == ReplicaState::kReady &&
                   set_.serving(replica, ticket.model) != Serving::kNo &&
                   std::find(ticket.excluded.begin(), ticket.excluded.end(), ref) ==
                       ticket.excluded.end();
        };
        if (std::none_of(set_.replicas().begin(), set_.replicas().end(), is_left)) {
            return RejectReason::kAttemptsUsedUp;
        }
    }
    // Time spent before the fleet changed its mode is forgiven, but not without end.
    const bool is_starting = mode == FleetMode::kStarting;
    const auto allowance = is_starting ? config_.queue_wait_starting : config_.queue_wait;
    deadline = std::min(ticket.mode_since + allowance,
                        ticket.waiting_since + config_.queue_wait_starting + config_.queue_wait);
    if (now < deadline) return std::nullopt;
    return mode == FleetMode::kServing ? RejectReason::kQueueTimeout
                                       : RejectReason::kNoReplicaReady;
}

Snapshot Dispatcher::snapshot(int dispatch_ahead, Clock::time_point now) const {
    Snapshot snapshot = set_.snapshot(dispatch_ahead, now);
    memory_.fill(snapshot, now);
    return snapshot;
}

void Dispatcher::pump() {
    if (queue_.size() == 0) return;
    const auto now = Clock::now();
    end_reported_prefills();
    queue_.dispatch(now, [this, now] { return snapshot(config_.dispatch_ahead, now); });
    metrics_.overhead_seconds.at(static_cast<std::size_t>(Stage::kChoose))
        ->Observe(std::chrono::duration<double>(Clock::now() - now).count());
    update_gauges();
    wait_for_stagger(now);
}

/// Long prefills of answers that are no streams end by the replica's reports.
void Dispatcher::end_reported_prefills() {
    if (!memory_.has_big_prefills()) return;
    for (Grant* grant : grants_) {
        if (grant->charge.is_prefilled()) grant->placement_->end_big_prefill();
    }
}

/// The one timer between arrival and dispatch: a long prefill that waits because another one has
/// just begun.
void Dispatcher::wait_for_stagger(Clock::time_point now) {
    if (queue_.size() == 0 || memory_.big_start_at() <= now || is_staggering_) return;
    is_staggering_ = true;
    stagger_.expires_at(memory_.big_start_at());
    stagger_.async_wait([this](const boost::system::error_code& error) {
        if (error) return;  // the dispatcher is gone
        is_staggering_ = false;
        pump();
    });
}

Dispatcher::DoneOf Dispatcher::on_done(int index, const proto::DoneEvent& done,
                                       Estimator& estimator) {
    const std::optional<ChargeLedger::Entry> entry = ledger_.take(done.dispatch);
    if (!entry) return DoneOf::kNobody;
    // A cancelled answer says nothing about how long answers are.
    if (done.reason != "cancelled" && done.reason != "error") {
        estimator.on_output(entry->model, entry->key, done.generated / entry->sequences);
    }
    if (const auto account = entry->account.lock()) account->on_done(entry->charge);
    const std::int64_t cached = std::clamp<std::int64_t>(done.cached, 0, done.prompt);
    const double service = service_of(done.prompt - cached, done.generated);
    memory_.fair_share().add(entry->key, service - entry->charged_service, Clock::now());
    ReplicaSeries& series = metrics_.replica(index);
    series.prompt_tokens_cached->Increment(static_cast<double>(cached));
    series.prompt_tokens_uncached->Increment(static_cast<double>(done.prompt - cached));
    series.generation_tokens->Increment(static_cast<double>(done.generated));
    if (entry->running == nullptr) return DoneOf::kEnded;
    entry->running->generated_tokens = done.generated;
    // All of the answer is on its way: a client that reads slowly keeps nobody from the place.
    entry->running->give_back();
    return DoneOf::kRunning;
}

std::optional<proto::ApiError> Dispatcher::refuse_early(bool needs_queue, KeyId key) {
    if (is_draining_) return refuse(RejectReason::kDraining);
    if (!needs_queue) return std::nullopt;
    on_fleet_change();
    if (mode_ == FleetMode::kNone) return refuse(RejectReason::kNoReplicaReady);
    queue_.set_count_max(queue_count_max());
    const std::size_t room = queue_.arriving() > 0 ? room_now() : 0;
    if (queue_.is_full_for_heads(room)) return refuse(RejectReason::kQueueFull);
    if (queue_.is_key_full_for_heads(key, room)) return refuse(RejectReason::kKeyQueueFull);
    return std::nullopt;
}

/// Requests that could start at once; none while others wait.
std::size_t Dispatcher::room_now() const {
    if (queue_.size() > 0) return 0;
    std::size_t room = 0;
    for (const ReplicaView& view : set_.snapshot(config_.dispatch_ahead, Clock::now()).replicas) {
        if (!is_startable(view, 1, config_.dispatch_ahead)) continue;
        room += static_cast<std::size_t>(
            std::max(1, view.slots + config_.dispatch_ahead - view.occupied));
    }
    return room;
}

proto::ApiError Dispatcher::refuse_body(std::size_t bytes, KeyId key) {
    const bool is_half = bodies_.is_half_full(bytes, key);
    return refuse(is_half ? RejectReason::kKeyBodiesFull : RejectReason::kBodiesFull);
}

proto::Result<KeyBudget::Share> Dispatcher::enter(KeyId key) {
    passes_.set_most(queue_count_max());
    std::optional<KeyBudget::Share> place = passes_.take(1, key);
    if (place) return std::move(*place);
    const bool is_half = passes_.is_half_full(1, key);
    return tl::unexpected(
        refuse(is_half ? RejectReason::kKeyPassesFull : RejectReason::kPassesFull));
}

/// What was hit, and when to come back; the number is that of the header.
proto::ApiError Dispatcher::try_again(proto::ErrorCode code, const std::string& why) {
    const int wait_s = computed_retry_after_s();
    return {
        code,
        why + " Try again in " + std::to_string(wait_s) + (wait_s == 1 ? " second." : " seconds."),
        {},
        {},
        wait_s};
}

proto::ApiError Dispatcher::refuse(RejectReason reason, const std::string& model) {
    metrics_.rejected.at(static_cast<std::size_t>(reason))->Increment();
    switch (reason) {
        case RejectReason::kQueueFull:
            return try_again(
                proto::ErrorCode::kQueueFull,
                "The queue is full: " + std::to_string(queue_.size() + queue_.arriving()) + " of " +
                    std::to_string(queue_count_max()) + " places are taken.");
        case RejectReason::kKeyQueueFull:
            return try_again(proto::ErrorCode::kQueueFull,
                             "This key has its half of the queue, " +
                                 std::to_string(std::max<std::size_t>(1, queue_count_max() / 2)) +
                                 " places, while others wait.");
        case RejectReason::kBodiesFull:
            return try_again(proto::ErrorCode::kQueueFull,
                             "The queue is full: the requests that wait hold " +
                                 std::to_string(bodies_.used()) + " bytes.");
        case RejectReason::kKeyBodiesFull:
            return try_again(proto::ErrorCode::kQueueFull,
                             "This key has its half of the memory for requests, " +
                                 std::to_string(bodies_.most() / 2) + " bytes, while others wait.");
        case RejectReason::kPassesFull:
            return try_again(proto::ErrorCode::kQueueFull,
                             std::to_string(passes_.used()) +
                                 " requests of this kind are running, as many as may.");
        case RejectReason::kKeyPassesFull:
            return try_again(proto::ErrorCode::kQueueFull,
                             "This key runs half of the requests of this kind that may, while "
                             "others run some.");
        case RejectReason::kQueueTimeout:
            return try_again(proto::ErrorCode::kQueueTimeout,
                             "The request waited too long for a free replica.");
        case RejectReason::kNoReplicaReady:
            return {proto::ErrorCode::kNoReplicaReady,
                    nobody_is_ready_text(set_, model),
                    {},
                    {},
                    retry_when_ready_s()};
        case RejectReason::kAttemptsUsedUp:
            return {proto::ErrorCode::kReplicaLost,
                    "Every replica failed this request before its first token."};
        case RejectReason::kModelGone:
            return unknown_model(set_, model);
        case RejectReason::kDraining:
            break;
    }
    return {proto::ErrorCode::kDraining,
            "The server is shutting down. Send the request again in a moment.",
            {},
            {},
            kRetryAfterDraining};
}

std::size_t Dispatcher::queue_count_max() const {
    return config_.queue_count_max.value_or(std::max(
        kQueueCountMin, kQueuePerSlot * static_cast<std::size_t>(std::max(0, set_.slots_total()))));
}

void Dispatcher::on_fleet_change() {
    const auto now = Clock::now();
    const FleetMode mode = set_.mode(now);
    const bool is_mode_new = std::exchange(mode_, mode) != mode;
    const std::uint64_t version = set_.models_version();
    const bool has_changed = std::exchange(models_version_, version) != version || is_mode_new;
    pump();
    // Their deadlines have moved, or there is nothing left to wait for.
    for (Waiter* waiter : waiters_) {
        const Ticket& ticket = waiter->ticket;
        const bool is_concerned =
            has_changed || (!ticket.not_serving.empty() && mode_of(ticket, now) != ticket.mode);
        if (is_concerned) waiter->wake.cancel();
    }
}

void Dispatcher::on_replica_lost(const std::shared_ptr<Account>& account) {
    for (Grant* grant : grants_) {
        if (grant->account_ == account && grant->on_lost) grant->on_lost();
    }
}

Backlog Dispatcher::whole_backlog() const {
    Backlog backlog = set_.backlog();
    backlog.prompt_tokens += queue_.prompt_tokens();
    backlog.output_tokens += queue_.output_tokens();
    return backlog;
}

int Dispatcher::computed_retry_after_s() {
    return retry_after_s(whole_backlog(),
                         std::uniform_real_distribution<double>(0.0, 1.0)(random_));
}

int Dispatcher::retry_when_ready_s() const {
    if (is_draining_) return kRetryAfterDraining;
    const int eta_s = set_.eta_s();
    return eta_s > 0 ? eta_s : kRetryAfterUnknown;
}

std::pair<int, int> Dispatcher::retry_after_range_s() const {
    if (mode_ == FleetMode::kNone) return {retry_when_ready_s(), retry_when_ready_s()};
    const Backlog backlog = whole_backlog();
    return {retry_after_s(backlog, 0), retry_after_s(backlog, 1)};
}

void Dispatcher::update_gauges() {
    for (std::size_t i = 0; i < metrics_.queue_requests.size(); ++i) {
        const auto count = queue_.count_of(static_cast<PriorityClass>(i));
        metrics_.queue_requests.at(i)->Set(static_cast<double>(count));
    }
    metrics_.queue_bytes->Set(static_cast<double>(queue_.body_bytes()));
}

void Dispatcher::update_memory_gauges() {
    const auto now = Clock::now();
    metrics_.affinity_entries->Set(static_cast<double>(memory_.affinity().size()));
    metrics_.affinity_suspended->Set(memory_.is_affinity_suspended(now) ? 1 : 0);
    metrics_.fairness_jain_ratio->Set(memory_.fair_share().jain_ratio(now));
    for (std::size_t i = 0; i < kEvictionReasonCount; ++i) {
        const auto total =
            static_cast<double>(memory_.affinity().evictions(static_cast<EvictionReason>(i)));
        prometheus::Counter& counter = *metrics_.affinity_evictions.at(i);
        counter.Increment(total - counter.Value());
    }
}

}  // namespace router
