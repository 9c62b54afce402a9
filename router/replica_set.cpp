#include "router/replica_set.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include <spdlog/spdlog.h>

namespace router {
namespace {

/// Launcher's words to ours, where the announcement alone decides; nothing for READY.
std::optional<ReplicaState> state_by_announcement(proto::ReplicaState announced) {
    switch (announced) {
        case proto::ReplicaState::kReady:
            return std::nullopt;
        case proto::ReplicaState::kWaitVram:
        case proto::ReplicaState::kWaitLock:
        case proto::ReplicaState::kLoading:
        case proto::ReplicaState::kWarming:
        case proto::ReplicaState::kSelftest:
        case proto::ReplicaState::kBackoff:  // it will be tried again: worth waiting for
            return ReplicaState::kStarting;
        case proto::ReplicaState::kDraining:
            return ReplicaState::kDraining;
        case proto::ReplicaState::kAbsent:
        case proto::ReplicaState::kStopping:
        case proto::ReplicaState::kQuarantined:
        case proto::ReplicaState::kUnkillable:
            return ReplicaState::kDown;
    }
    assert(false && "every announced state is in the table");
    return ReplicaState::kDown;
}

/// The same for what a replica says of itself.
ReplicaState state_by_report(proto::ReplicaState reported) {
    if (reported == proto::ReplicaState::kReady) return ReplicaState::kReady;
    return state_by_announcement(reported).value_or(ReplicaState::kDown);
}

/// What a report says about room and speed.
void describe(const proto::ReplicaStatus& status, ReplicaView& view) {
    view.slots = std::max(1, status.sequences_max);
    if (status.prefill_tokens_per_s > 0) view.prefill_tokens_per_s = status.prefill_tokens_per_s;
    if (status.decode_tokens_per_s > 0) view.decode_tokens_per_s = status.decode_tokens_per_s;
    view.blocks_total = status.kv_blocks_total;
    view.blocks_used = std::max<std::int64_t>(0, status.kv_blocks_total - status.kv_blocks_free);
    view.block_tokens = status.block_tokens;
    view.gpus = std::max(1, status.gpus);
}

/// Requests of ours run there.
bool has_work(const Replica& replica) {
    return replica.account && replica.account->sequences() > 0;
}

bool is_serving(ReplicaState state) {
    return state == ReplicaState::kReady || state == ReplicaState::kSuspect ||
           state == ReplicaState::kDraining;
}

}  // namespace

Replica& ReplicaSet::add_fixed(const std::string& url, proto::Endpoint endpoint,
                               Clock::time_point now) {
    const int index = index_next_++;
    Replica& replica = replicas_[index];
    replica.index = index;
    replica.url = url;
    replica.endpoint = std::move(endpoint);
    replica.watched_since = replica.state_since = now;
    ++models_version_;
    return replica;
}

bool ReplicaSet::announce(const proto::ReplicaAnnouncement& announcement, Clock::time_point now) {
    const std::optional<proto::UrlParts> url = proto::parse_http_url(announcement.url);
    if (!url) return false;
    const auto [at, is_new] = replicas_.try_emplace(announcement.index);
    Replica& replica = at->second;
    if (is_new) {
        replica.index = announcement.index;
        index_next_ = std::max(index_next_, announcement.index + 1);
        replica.is_announced = true;
        replica.state_since = now;
    } else if (!replica.is_announced) {
        return false;
    }
    const bool was_ready = replica.announced == proto::ReplicaState::kReady && !is_new;
    ++models_version_;
    replica.url = announcement.url;
    replica.endpoint = url->endpoint;
    replica.announced = announcement.state;
    replica.eta_s = announcement.eta_s;
    replica.watts = announcement.watts;
    replica.celsius = announcement.celsius;
    const bool is_drain_news = replica.announced_drained != announcement.is_drained;
    replica.announced_drained = announcement.is_drained;
    if (!announcement.instance.empty() && announcement.instance != replica.instance()) {
        start_instance(replica, announcement.instance, now);
    } else if (announcement.state == proto::ReplicaState::kReady && !was_ready) {
        replica.watched_since = now;
        replica.is_gone = false;
    }
    if (is_drain_news) (void)set_drain(replica.index, announcement.is_drained, now);
    refresh(replica, now);
    return true;
}

ReplicaSet::Report ReplicaSet::on_report(int index, const proto::ReplicaStatus& status,
                                         Clock::time_point now) {
    Replica* known = find(index);
    if (known == nullptr) return Report::kWrongInstance;  // removed meanwhile
    Replica& replica = *known;
    const bool is_new = status.instance != replica.instance();
    if (is_new && replica.is_announced) return Report::kWrongInstance;
    if (!replica.is_announced) {
        look_for_holder(replica, status.instance);
        if (replica.same_as && (is_new || !has_work(replica))) {
            replica.is_gone = is_new && replica.account;  // what it was before has ended
            refresh(replica, now);
            return Report::kSameProcess;
        }
    }
    if (is_new) start_instance(replica, status.instance, now);
    if (!replica.status || replica.status->model != status.model) ++models_version_;
    // A poll repeats the number of the last event; only an older one is out of order.
    const bool is_behind = replica.seq && status.seq < *replica.seq;
    if (is_behind && *replica.seq - status.seq <= kSeqBehindMax) return Report::kStale;
    if (!replica.status || status.step != replica.status->step || status.running == 0) {
        replica.step_changed_at = now;
    }
    replica.status = status;
    replica.seq = status.seq;
    replica.status_at = now;
    replica.is_gone = false;
    replica.account->on_report(now, status.running + status.waiting);
    if (status.queued_tokens == 0) replica.account->on_nothing_queued(now);
    if (replica.saturated_at && now - *replica.saturated_at >= kReportLag &&
        status.running + status.waiting < status.sequences_max) {
        replica.saturated_until.reset();
        replica.saturated_at.reset();
    }
    refresh(replica, now);
    if (on_change) on_change();
    return Report::kAccepted;
}

void ReplicaSet::on_stream_opened(int index) {
    Replica* replica = find(index);
    if (replica == nullptr) return;
    replica->seq.reset();
    replica->has_stream = true;
}

void ReplicaSet::on_stream_closed(int index) {
    Replica* replica = find(index);
    if (replica != nullptr) replica->has_stream = false;
}

/// Whether another replica, by another address, is this process. Among those given by URL the first
/// keeps it as long as it is there; the launcher's own takes it as soon as it serves.
void ReplicaSet::look_for_holder(Replica& replica, const std::string& instance) {
    std::optional<int> holder;
    for (const auto& [index, other] : replicas_) {
        if (index == replica.index || !other.account || other.same_as) continue;
        const bool is_there =
            other.is_announced ? is_serving(other.state) : other.state != ReplicaState::kDown;
        if (is_there && other.instance() == instance) holder = index;
    }
    if (holder && replica.same_as != holder) {
        spdlog::warn("event=same_process replica={} as={} url={}", replica.index, *holder,
                     proto::printable(replica.url));
    }
    replica.same_as = holder;
}

void ReplicaSet::on_gone(int index, Clock::time_point now) {
    Replica* replica = find(index);
    if (replica == nullptr) return;
    replica->is_gone = true;
    refresh(*replica, now);
}

void ReplicaSet::on_saturated(int index, Clock::time_point until, Clock::time_point now) {
    Replica* replica = find(index);
    if (replica == nullptr) return;
    replica->saturated_until = until;
    replica->saturated_at = now;
}

bool ReplicaSet::set_drain(int index, bool is_drained, Clock::time_point now) {
    Replica* replica = find(index);
    if (replica == nullptr || replica->drain_asked_at.has_value() == is_drained) return false;
    replica->drain_asked_at = is_drained ? std::optional(now) : std::nullopt;
    if (!is_drained) {
        replica->is_leaving = false;
        // It was announced so because of the drain that ends here; what it is now its own reports
        // tell, until the launcher has heard of this.
        const bool is_echo =
            replica->announced_drained && replica->announced == proto::ReplicaState::kDraining;
        if (is_echo) replica->announced = proto::ReplicaState::kReady;
    }
    refresh(*replica, now);
    return true;
}

bool ReplicaSet::ask_removal(int index, Clock::time_point now) {
    Replica* replica = find(index);
    if (replica == nullptr || replica->is_leaving) return false;
    (void)set_drain(index, true, now);
    replica->is_leaving = true;
    return true;
}

void ReplicaSet::remove(int index, Clock::time_point now) {
    const auto at = replicas_.find(index);
    assert(at != replicas_.end() && "only what is there can be removed");
    const auto node = replicas_.extract(at);
    Replica removed = std::move(node.mapped());
    removed.state = ReplicaState::kDown;
    removed.state_since = now;
    on_models_changed();
    if (on_instance_end) on_instance_end({removed.index, removed.life});
    if (removed.account && on_lost) on_lost(removed, removed.account);
    if (on_change) on_change();
}

bool ReplicaSet::was_there(int index) const {
    return index >= 0 && index < index_next_ && !replicas_.contains(index);
}

void ReplicaSet::on_pause(Clock::duration length) {
    for (auto& [index, replica] : replicas_) {
        replica.status_at += length;
        replica.watched_since += length;
        replica.step_changed_at += length;
        if (replica.drain_asked_at) *replica.drain_asked_at += length;
    }
}

bool ReplicaSet::mark_dispatch(int index) {
    Replica& replica = *find(index);
    replica.last_dispatch = ++dispatches_;
    return replica.breaker.on_select();
}

void ReplicaSet::on_attempt_end(InstanceRef instance, AttemptVerdict verdict, bool was_trial,
                                Clock::time_point now) {
    Replica* replica = find(instance.index);
    if (replica == nullptr || replica->life != instance.life) return;
    const BreakerState before = replica->breaker.state();
    replica->breaker.on_end(verdict, was_trial, now);
    const BreakerState after = replica->breaker.state();
    if (after == before) return;
    spdlog::log(after == BreakerState::kOpen ? spdlog::level::warn : spdlog::level::info,
                "event=breaker replica={} to={}", instance.index, name_of(after));
    keep_a_way_in();
}

/// A breaker may slow traffic, never stop a living fleet: when all that live are open, all get
/// single requests. READY means fresh reports, and steps wherever work is.
void ReplicaSet::keep_a_way_in() {
    bool has_ready = false;
    for (const auto& [index, replica] : replicas_) {
        if (replica.state != ReplicaState::kReady) continue;
        has_ready = true;
        if (replica.breaker.state() != BreakerState::kOpen) return;
    }
    if (!has_ready) return;
    for (auto& [index, replica] : replicas_) {
        if (replica.state == ReplicaState::kReady) replica.breaker.open_trial();
    }
}

void ReplicaSet::on_info(int index, ReplicaInfo info) {
    Replica* replica = find(index);
    if (replica == nullptr || info.instance != replica->instance()) return;
    replica->info = std::move(info);
    on_models_changed();
    if (on_change) on_change();
}

void ReplicaSet::on_info_missing(int index, const std::string& instance) {
    Replica* replica = find(index);
    if (replica == nullptr || instance != replica->instance() || replica->is_info_missing) return;
    replica->is_info_missing = true;
    ++models_version_;
    if (on_change) on_change();
}

void ReplicaSet::tick(Clock::time_point now) {
    bool may_move = false;
    for (auto& [index, replica] : replicas_) {
        refresh(replica, now);
        may_move = replica.breaker.advance(now) || may_move;
        if (replica.saturated_until && *replica.saturated_until <= now) {
            replica.saturated_until.reset();
            replica.saturated_at.reset();
            may_move = true;
        }
    }
    if (may_move && on_change) on_change();
}

Replica* ReplicaSet::find(int index) {
    const auto at = replicas_.find(index);
    return at == replicas_.end() ? nullptr : &at->second;
}

Snapshot ReplicaSet::snapshot(int dispatch_ahead, Clock::time_point now) const {
    Snapshot snapshot;
    snapshot.dispatch_ahead = dispatch_ahead;
    snapshot.replicas.reserve(replicas_.size());
    const bool has_settled = std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& one) {
        return one.second.state == ReplicaState::kReady && is_past_slow_start(one.second, now);
    });
    for (const auto& [index, replica] : replicas_) {
        ReplicaView view{.index = index, .life = replica.life, .state = replica.state};
        view.last_dispatch = replica.last_dispatch;
        view.is_saturated = replica.saturated_until && now < *replica.saturated_until;
        view.is_shut = replica.breaker.is_shut();
        view.is_trial = replica.breaker.is_on_trial();
        if (replica.status) describe(*replica.status, view);
        if (has_settled) view.slots = usable_slots(replica, view.slots, now);
        if (replica.account) {
            view.occupied = replica.account->occupied();
            view.expected_output_tokens = replica.account->output_tokens();
            // Without a fresh report our own charges are all there is to go by.
            const bool is_fresh =
                replica.status && now - replica.status_at < limits_.silence_suspect;
            view.queued_tokens =
                is_fresh ? replica.account->queued_tokens(replica.status->queued_tokens) : 0;
            view.unseen_tokens =
                is_fresh ? replica.account->unseen_tokens() : replica.account->prefill_tokens();
            if (is_fresh) {
                // A prompt takes its memory as it is computed: what is queued will yet.
                view.blocks_used += replica.account->unseen_blocks();
                if (view.block_tokens > 0) {
                    view.blocks_used +=
                        (view.queued_tokens + view.block_tokens - 1) / view.block_tokens;
                }
            } else {
                view.blocks_used = replica.account->blocks();
            }
        }
        snapshot.replicas.push_back(view);
    }
    return snapshot;
}

bool ReplicaSet::is_past_slow_start(const Replica& replica, Clock::time_point now) const {
    return replica.ready_since && now - *replica.ready_since >= slow_start_;
}

/// A replica that has just come is spared while there is another one to carry the load.
int ReplicaSet::usable_slots(const Replica& replica, int slots, Clock::time_point now) const {
    if (!replica.ready_since || is_past_slow_start(replica, now)) return slots;
    const double share = std::chrono::duration<double>(now - *replica.ready_since) /
                         std::chrono::duration<double>(slow_start_);
    return 1 + static_cast<int>(share * (slots - 1));
}

FleetMode ReplicaSet::mode_for(const std::string& model, Clock::time_point now) const {
    FleetMode mode = FleetMode::kNone;
    for (const auto& [index, replica] : replicas_) {
        if (serving(replica, model) == Serving::kNo) continue;
        const bool died_just_now = replica.state == ReplicaState::kDown && replica.is_announced &&
                                   now - replica.state_since < kDeathGrace;
        if (replica.state == ReplicaState::kReady) return FleetMode::kServing;
        if (replica.state == ReplicaState::kStarting) {
            mode = FleetMode::kStarting;
        } else if (mode == FleetMode::kNone &&
                   (replica.state == ReplicaState::kSuspect || died_just_now)) {
            mode = FleetMode::kUncertain;
        }
    }
    return mode;
}

bool ReplicaSet::has_hung(InstanceRef instance) const {
    const auto at = replicas_.find(instance.index);
    return at != replicas_.end() && at->second.life == instance.life && at->second.is_hung;
}

int ReplicaSet::slots_total() const {
    int slots = 0;
    for (const auto& [index, replica] : replicas_) {
        if (replica.status) slots += std::max(0, replica.status->sequences_max);
    }
    return slots;
}

Backlog ReplicaSet::backlog() const {
    Backlog backlog;
    for (const auto& [index, replica] : replicas_) {
        if (replica.state != ReplicaState::kReady || !replica.status) continue;
        const proto::ReplicaStatus& status = *replica.status;
        backlog.prompt_tokens += status.queued_tokens + replica.account->unseen_tokens();
        backlog.output_tokens += replica.account->output_tokens();
        backlog.prefill_tokens_per_s +=
            status.prefill_tokens_per_s > 0 ? status.prefill_tokens_per_s : kPrefillRateFallback;
        backlog.decode_tokens_per_s +=
            status.decode_tokens_per_s > 0 ? status.decode_tokens_per_s : kDecodeRateFallback;
    }
    return backlog;
}

int ReplicaSet::eta_s() const {
    double best = 0;
    for (const auto& [index, replica] : replicas_) {
        if (replica.eta_s > 0 && (best == 0 || replica.eta_s < best)) best = replica.eta_s;
    }
    return static_cast<int>(std::ceil(best));
}

std::int64_t ReplicaSet::context_tokens_max() const {
    std::int64_t most = 0;
    for (const auto& [index, replica] : replicas_) {
        if (replica.status) most = std::max(most, replica.status->max_model_len);
    }
    return most;
}

bool ReplicaSet::knows_the_ready() const {
    return std::ranges::all_of(replicas_, [](const auto& entry) {
        const Replica& replica = entry.second;
        const bool is_awaited =
            replica.is_announced && replica.announced == proto::ReplicaState::kReady;
        return !is_awaited || (replica.status && (replica.info || replica.is_info_missing));
    });
}

void ReplicaSet::refresh(Replica& replica, Clock::time_point now) {
    const ReplicaState state = derive_state(replica, now);
    if (state == replica.state) return;
    spdlog::info(
        "event=replica_state replica={} from={} to={} instance={} state_ms={}", replica.index,
        name_of(replica.state), name_of(state), replica.instance(),
        std::chrono::duration_cast<std::chrono::milliseconds>(now - replica.state_since).count());
    const bool is_lost = is_serving(replica.state) && state == ReplicaState::kDown;
    const bool was_working =
        replica.state == ReplicaState::kReady || replica.state == ReplicaState::kSuspect;
    // A launcher that restarts it may say so before we see it gone.
    if (was_working && (state == ReplicaState::kDown || state == ReplicaState::kStarting)) {
        replica.died_at = now;
    }
    ++models_version_;
    replica.state = state;
    replica.state_since = now;
    replica.is_hung = state == ReplicaState::kDown && has_stopped_answering(replica, now);
    if (state == ReplicaState::kReady && !replica.ready_since) replica.ready_since = now;
    keep_a_way_in();
    if (is_lost && on_lost && replica.account) on_lost(replica, replica.account);
    if (on_change) on_change();
}

/// Why a replica that is DOWN is so: it was not told, nor seen, to be gone.
bool ReplicaSet::has_stopped_answering(const Replica& replica, Clock::time_point now) const {
    const bool is_told =
        replica.is_announced && state_by_announcement(replica.announced).has_value();
    if (is_told || replica.is_gone || replica.same_as || !replica.status) return false;
    return now - replica.status_at >= limits_.silence_down ||
           (replica.status->running > 0 && now - replica.step_changed_at >= limits_.step_stall);
}

ReplicaState ReplicaSet::derive_state(const Replica& replica, Clock::time_point now) const {
    const ReplicaState state = observed_state(replica, now);
    const bool is_drained = replica.drain_asked_at && state != ReplicaState::kDown;
    return is_drained ? ReplicaState::kDraining : state;
}

ReplicaState ReplicaSet::observed_state(const Replica& replica, Clock::time_point now) const {
    if (replica.is_announced) {
        if (const auto state = state_by_announcement(replica.announced)) return *state;
    }
    if (replica.is_gone) return ReplicaState::kDown;
    if (replica.same_as && !has_work(replica)) return ReplicaState::kDown;
    if (!replica.status) {
        const bool is_overdue = now - replica.watched_since >= limits_.silence_down;
        return is_overdue ? ReplicaState::kDown : ReplicaState::kStarting;
    }
    const auto silent = now - replica.status_at;
    if (silent >= limits_.silence_down) return ReplicaState::kDown;
    const auto still =
        replica.status->running > 0 ? now - replica.step_changed_at : Clock::duration::zero();
    if (still >= limits_.step_stall) return ReplicaState::kDown;
    // A single long step is no stall: the replica itself says how long its steps get.
    const auto step_suspect = std::max<Clock::duration>(
        limits_.step_suspect, 5 * std::chrono::milliseconds(replica.status->longest_step_ms));
    if (silent >= limits_.silence_suspect || still >= step_suspect) return ReplicaState::kSuspect;
    if (replica.same_as) return ReplicaState::kDraining;
    return state_by_report(replica.status->state);
}

void ReplicaSet::start_instance(Replica& replica, const std::string& instance,
                                Clock::time_point now) {
    const std::shared_ptr<Account> lost =
        std::exchange(replica.account, std::make_shared<Account>(instance));
    ++replica.life;
    if (lost && is_serving(replica.state)) replica.died_at = now;
    replica.ready_since.reset();
    spdlog::info("event=replica_instance replica={} instance={}", replica.index, instance);
    replica.status.reset();
    replica.seq.reset();
    replica.breaker.reset();
    replica.is_gone = false;
    replica.is_info_missing = false;
    ++models_version_;
    replica.is_hung = false;
    replica.saturated_until.reset();
    replica.saturated_at.reset();
    replica.watched_since = now;
    replica.step_changed_at = now;
    if (lost && on_instance_end) on_instance_end({replica.index, replica.life - 1});
    if (lost && on_lost) on_lost(replica, lost);
}

}  // namespace router
