// What the supervisor tells others: the router, the board, the status command, systemd.
#include <algorithm>
#include <cmath>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "deploy/launcher/supervisor.h"

namespace deploy {
namespace {

constexpr std::chrono::milliseconds kBoardEvery{150};
constexpr std::chrono::milliseconds kFreshStatus{500};
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kSampleEvery{250};

bool is_settled(const Replica& replica) {
    return replica.state == ReplicaState::kReady || replica.state == ReplicaState::kQuarantined ||
           replica.state == ReplicaState::kDraining || replica.state == ReplicaState::kAbsent ||
           replica.state == ReplicaState::kUnkillable;
}

}  // namespace

void Supervisor::do_action(const Announce& action) {
    const Replica& replica = fleet_.replicas.at(static_cast<std::size_t>(action.replica));
    announce_to_router(action.replica);
    // Those behind it in the line have a new ETA.
    for (const Replica& other : fleet_.replicas) {
        if (other.index != action.replica) announce_to_router(other.index);
    }
    if (action.to == ReplicaState::kBackoff || action.to == ReplicaState::kQuarantined) {
        metrics_.count_restart(action.replica,
                               std::string(replica.last_failure.has_value()
                                               ? deploy::name_of(replica.last_failure->kind)
                                               : "internal"));
    }
    if (action.to == ReplicaState::kAbsent || action.to == ReplicaState::kBackoff) {
        save_record();
    }
    // A state that the same event has already left needs no line.
    if ((!console_.has_board() || is_board_over_) && replica.state == action.to) {
        console_.print(plain_row(fleet_, action.replica, Clock::now()));
    }
    if (action.to == ReplicaState::kReady) {
        if (!is_ready_said_) {
            is_ready_said_ = true;
            notifier_.send("READY=1");
        }
        const auto ready =
            std::ranges::count(fleet_.replicas, ReplicaState::kReady, &Replica::state);
        notifier_.send("STATUS=" + std::to_string(ready) + " of " +
                       std::to_string(fleet_.replicas.size()) + " replicas ready");
    }
    // The last row is drawn before anybody can hear of it: who waits for the fleet and then prints
    // must not find the board coming back.
    if (is_startup_over()) draw_board();
}

bool Supervisor::is_startup_over() const {
    return fleet_.phase == FleetPhase::kRunning && std::ranges::all_of(fleet_.replicas, is_settled);
}

/// Only what changed is said again; an ETA counts as changed when it moves by a second.
void Supervisor::announce_to_router(int index) {
    const Replica& replica = fleet_.replicas.at(static_cast<std::size_t>(index));
    const auto i = static_cast<std::size_t>(index);
    const double eta = eta_s(fleet_, index, Clock::now());
    proto::ReplicaAnnouncement announcement;
    announcement.index = index;
    announcement.url = facts_.replicas[i].url;
    announcement.instance = has_process(replica.state) ? slots_[i].instance : "";
    announcement.state = replica.state;
    announcement.is_drained = is_drained(replica);
    announcement.eta_s = eta < 0 ? 0 : static_cast<double>(static_cast<long long>(eta + 0.5));
    if (const auto& gpu = facts_.replicas[i].gpu) {
        // Whole numbers, so that noise is no news.
        announcement.watts = std::round(gpu->watts.value_or(0));
        announcement.celsius = std::round(gpu->celsius.value_or(0));
    }
    const std::string text = proto::to_json_line(announcement);
    if (text == slots_[i].announced) return;
    slots_[i].announced = text;
    announcer_.announce(announcement);
}

/// What an operator has asked of the router. The announcement that follows is the answer: the
/// router does what it says, also where the order could not be followed.
void Supervisor::on_drain_at_router(const proto::DrainOrder& order) {
    const Order what = order.is_drained ? Order::kSetAside : Order::kUndrain;
    const ReplicaOrder replica_order{order.index, what};
    const std::string refusal = refusal_of(fleet_, replica_order);
    console_.log("info", "launcher",
                 std::string(order.is_drained ? "drain" : "undrain") + " of replica " +
                     std::to_string(order.index) + " at the router" +
                     (refusal.empty() ? "" : ": " + refusal));
    if (refusal.empty()) give(replica_order);
}

/// Not every order changes the state, but the router hears of every drain.
void Supervisor::give(const ReplicaOrder& order) {
    post_event(order);
    announce_to_router(order.replica);
}

void Supervisor::draw_board() {
    if (!console_.has_board() || is_board_over_) return;
    console_.draw(board_rows(fleet_, Clock::now(), console_.is_coloured()));
    if (is_startup_over()) {
        is_board_over_ = true;
        console_.freeze();
        return;
    }
    board_timer_.expires_after(kBoardEvery);
    board_timer_.async_wait([this](boost::system::error_code error) {
        if (!error) draw_board();
    });
}

void Supervisor::every_sample() {
    sample_gpus();
    sample_timer_.expires_after(kSampleEvery);
    sample_timer_.async_wait([this](boost::system::error_code error) {
        if (!error) every_sample();
    });
}

/// Power, temperature and memory of every replica's card; a replica that settles becomes READY when
/// its card is calm.
void Supervisor::sample_gpus() {
    constexpr int kCalmSamples = 3;
    for (const Replica& replica : fleet_.replicas) {
        const auto i = static_cast<std::size_t>(replica.index);
        ReplicaFacts& facts = facts_.replicas[i];
        facts.gpu = monitor_.read(replica.index);
        const bool has_power = facts.gpu && facts.gpu->watts && facts.gpu->watts_cap;
        if (has_power && is_loading(replica.state)) {
            facts.load_watts_max = std::max(facts.load_watts_max, *facts.gpu->watts);
        }
        const bool is_calm = has_power && *facts.gpu->watts <= plan_.config.settle_power_ratio *
                                                                   *facts.gpu->watts_cap;
        int& calm = slots_[i].calm_samples;
        calm = replica.is_ready_reported && is_loading(replica.state) && is_calm ? calm + 1 : 0;
        if (plan_.waits_for_power && calm >= kCalmSamples) {
            calm = 0;
            post_event(PowerSettled{replica.index});
        }
        announce_to_router(replica.index);
    }
}

nlohmann::json Supervisor::status_now() const {
    return status_json(fleet_, facts_, plan_.config, Clock::now());
}

boost::asio::awaitable<nlohmann::json> Supervisor::fresh_status() {
    for (const Replica& replica : fleet_.replicas) {
        boost::asio::co_spawn(context_, poll_replica(replica.index, kFreshStatus),
                              boost::asio::detached);
    }
    // All polls run at once; whoever answers within the limit is fresh, the rest is a second old.
    boost::asio::steady_timer timer(context_);
    const TimePoint limit = Clock::now() + kFreshStatus;
    while (Clock::now() < limit &&
           std::ranges::any_of(slots_, [](const Slot& slot) { return slot.is_poll_running; })) {
        timer.expires_after(kLook);
        co_await timer.async_wait(boost::asio::use_awaitable);
    }
    refresh_facts();
    co_return status_now();
}

std::string Supervisor::scrape() {
    return metrics_.scrape(fleet_, facts_, Clock::now());
}

}  // namespace deploy
