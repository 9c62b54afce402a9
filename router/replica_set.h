// The replicas as the router knows them: who is there, in which state, under how much load.
//
//   launcher's announcements ─┐
//   status reports ───────────┼──▶ ReplicaSet ──▶ snapshot() for the policy
//   refused connections ──────┤        └────────▶ on_change: the queue may move
//   time ─────────────────────┘                   on_lost: requests without a first byte move on
//
// Liveness is progress, not an answer to /health: busy is not dead, silent is.
//
//   announced STARTING, or no report yet ──▶ STARTING
//   report READY, fresh, steps advance   ──▶ READY
//   silent 5 s, or no step for 10 s with work there ──▶ SUSPECT (no new work)
//   silent 10 s, no step for 60 s, refused, or announced gone ──▶ DOWN
//   announced or reported DRAINING, or an operator asked ──▶ DRAINING
//   another replica is the same process ──▶ DRAINING while work of ours is there, then DOWN
//
// A drain is asked for here or at the launcher. The launcher's word about it counts when it
// changes: one that was said before it had heard of ours changes nothing.
//
// Only an announced instance is used; a fixed replica (given by URL) is trusted on its first
// report. A new instance gets a new account and starts from nothing.
// No sockets and no clock: time comes in as an argument. Decision thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/http_client.h"
#include "proto/ready_pipe.h"
#include "proto/status.h"
#include "router/breaker.h"
#include "router/charge.h"
#include "router/policy.h"

namespace router {

/// The times after which a replica is no longer trusted.
struct LivenessLimits {
    std::chrono::milliseconds silence_suspect{5'000};
    std::chrono::milliseconds silence_down{10'000};
    std::chrono::milliseconds step_suspect{10'000};
    std::chrono::milliseconds step_stall{60'000};
};

/// What is read once per instance: for /v1/models, /info and the check of model names.
struct ReplicaInfo {
    std::string instance;                  // whose it is
    std::vector<std::string> model_names;  // served name first, then aliases
    /// Id and JSON object, as in /v1/models.
    std::vector<std::pair<std::string, std::string>> model_entries;
    std::string info_json;  // the replica's /info
};

struct Replica {
    int index = 0;
    std::string url;
    proto::Endpoint endpoint;
    bool is_announced = false;  // by a launcher; otherwise given by URL
    proto::ReplicaState announced = proto::ReplicaState::kReady;
    double eta_s = 0;
    double watts = 0, celsius = 0;  // as the launcher says; 0: not known
    bool announced_drained = false;

    std::uint64_t life = 0;            // counts instances
    std::shared_ptr<Account> account;  // of the instance we talk to; null before it is known
    std::optional<proto::ReplicaStatus> status;  // last report of that instance
    Clock::time_point status_at;
    std::optional<std::uint64_t> seq;  // of the last report; none when a new stream counts anew
    Clock::time_point watched_since;   // when reports began to be due
    Clock::time_point step_changed_at;
    bool has_stream = false;  // its status stream is open: it tells the ends of dispatches
    bool is_gone = false;     // refused us; cleared by a report
    bool is_hung = false;     // DOWN because it fell silent or made no step, and not for being gone
    std::optional<int> same_as;  // it is that replica's process by another address: no new work
    std::optional<Clock::time_point> saturated_until;
    std::optional<Clock::time_point> saturated_at;

    Breaker breaker;                                  // of this instance
    std::optional<Clock::time_point> drain_asked_at;  // by an operator; outlives the instance
    bool is_leaving = false;                          // drained in order to be removed

    ReplicaState state = ReplicaState::kStarting;
    Clock::time_point state_since;
    std::optional<Clock::time_point> ready_since;  // of this instance, the first time
    /// When an instance last ended in the middle of its work.
    std::optional<Clock::time_point> died_at;
    std::uint64_t last_dispatch = 0;
    std::optional<ReplicaInfo> info;  // kept over a restart until the new one is read
    bool is_info_missing = false;     // of this instance: it was asked and had none to give

    [[nodiscard]] std::string instance() const { return account ? account->instance() : ""; }
};

/// What the whole fleet promises to a request that waits.
enum class FleetMode : std::uint8_t {
    kServing,    // a replica is READY
    kStarting,   // none is, but one is on its way
    kUncertain,  // none is, but one may be back in a moment: SUSPECT, or died just now
    kNone,       // all DOWN or DRAINING
};

/// Whether a replica serves a model of a given name. Nobody is sent work on a guess; a request for
/// which somebody's answer is still open waits for it.
enum class Serving : std::uint8_t { kNo, kYes, kUnknown };

/// What an answer calls the model that a request named so, or did not name: an alias stands for a
/// served name, none for the first one. A value, so that any thread may hold one.
struct ServedNames {
    std::string first;
    std::map<std::string, std::string> by_name;  // aliases and served names

    /// As it is while it is not known.
    [[nodiscard]] const std::string& of(const std::string& name) const;
};

/// An announced replica that died may come back STARTING; so long nobody is sent away.
inline constexpr std::chrono::seconds kDeathGrace{2};

/// Reports at most this many numbers behind the last one were overtaken by it: a poll takes a
/// second, and reports come every 20 ms. One further behind is no old one; the last was wrong.
inline constexpr std::uint64_t kSeqBehindMax = 64;

class ReplicaSet {
public:
    /// `slow_start`: over this time a replica that has just become READY rises from one slot to all
    /// of them, while another one is past it.
    explicit ReplicaSet(LivenessLimits limits, std::chrono::milliseconds slow_start = {})
        : limits_(limits), slow_start_(slow_start) {}

    // What happens to the set.
    /// Adds a replica given by URL; its index is the next free one.
    Replica& add_fixed(const std::string& url, proto::Endpoint endpoint, Clock::time_point now);
    /// Returns false for a URL that is none, or an index of a fixed replica.
    bool announce(const proto::ReplicaAnnouncement& announcement, Clock::time_point now);
    enum class Report : std::uint8_t {
        kAccepted,
        kStale,
        kWrongInstance,
        kSameProcess,  // as another replica, which has it
    };
    Report on_report(int index, const proto::ReplicaStatus& status, Clock::time_point now);
    /// A status stream of it was opened: its reports are numbered as it likes.
    void on_stream_opened(int index);
    void on_stream_closed(int index);
    /// A connection was refused, or a poll was closed without a byte.
    void on_gone(int index, Clock::time_point now);
    /// It answered 429 or 503: full until `until` or until a later report shows room.
    void on_saturated(int index, Clock::time_point until, Clock::time_point now);
    void on_info(int index, ReplicaInfo info);
    /// That instance was asked for its /info and gave none: it decides itself what it serves.
    void on_info_missing(int index, const std::string& instance);
    /// An operator wants no new work there, or wants it again. False when it was so already.
    bool set_drain(int index, bool is_drained, Clock::time_point now);
    /// It is to be drained and then removed. False when that was so already.
    bool ask_removal(int index, Clock::time_point now);
    /// Forgets a replica that runs nothing of ours any more. Its index is not used again.
    void remove(int index, Clock::time_point now);
    /// Whether there was a replica of this index that is not there any more.
    [[nodiscard]] bool was_there(int index) const;
    /// To be called about four times a second: silence and stalls are found here.
    void tick(Clock::time_point now);

    /// This process was stopped for `length`: silence meanwhile was ours, not the replicas'.
    void on_pause(std::chrono::steady_clock::duration length);

    /// Counts a dispatch for the tie-break. True when it is the trial of a half-open breaker.
    bool mark_dispatch(int index);
    /// What an attempt said about its replica; nothing when that instance is gone.
    void on_attempt_end(InstanceRef instance, AttemptVerdict verdict, bool was_trial,
                        Clock::time_point now);

    // What is known.
    Replica* find(int index);
    const std::map<int, Replica>& replicas() const { return replicas_; }
    [[nodiscard]] Snapshot snapshot(int dispatch_ahead, Clock::time_point now) const;
    [[nodiscard]] FleetMode mode(Clock::time_point now) const { return mode_for("", now); }
    /// The same for a request that names its model: of the replicas that serve it or may.
    [[nodiscard]] FleetMode mode_for(const std::string& model, Clock::time_point now) const;
    /// Whether every replica that the launcher says is READY has reported and told its models.
    [[nodiscard]] bool knows_the_ready() const;
    [[nodiscard]] int slots_total() const;
    /// Tokens and rates of READY replicas, for Retry-After; the queue's own come on top.
    [[nodiscard]] Backlog backlog() const;
    /// Whether this instance is DOWN with its process still there, as far as anybody can tell: it
    /// fell silent or made no step.
    [[nodiscard]] bool has_hung(InstanceRef instance) const;
    /// Seconds until the first replica is expected, from the launcher; 0 = unknown.
    [[nodiscard]] int eta_s() const;
    [[nodiscard]] std::int64_t context_tokens_max() const;

    /// Served names and aliases, without repetition; empty while nothing is known.
    [[nodiscard]] std::vector<std::string> model_names() const;
    /// As they are known now; never null.
    [[nodiscard]] std::shared_ptr<const ServedNames> served_names() const { return served_names_; }
    [[nodiscard]] const std::string& served_name(const std::string& name) const {
        return served_names_->of(name);
    }
    /// True also while nothing is known, or not of every replica that is there or on its way.
    [[nodiscard]] bool is_model_known(const std::string& name) const;
    /// An empty name is served by all.
    [[nodiscard]] Serving serving(const Replica& replica, const std::string& name) const;
    /// Those of which it is not known that they serve it. Good until models_version() changes.
    [[nodiscard]] std::vector<InstanceRef> not_serving(const std::string& name) const;
    /// Changes whenever serving() may answer otherwise than before.
    [[nodiscard]] std::uint64_t models_version() const { return models_version_; }
    /// JSON objects of /v1/models, one per id.
    [[nodiscard]] std::vector<std::string> model_entries() const;
    [[nodiscard]] std::optional<std::string> model_entry(const std::string& id) const;

    /// Called after anything that may let a waiting request start or must end its wait.
    std::function<void()> on_change;
    /// Called when a replica went DOWN, with the account of the lost instance.
    std::function<void(const Replica&, const std::shared_ptr<Account>&)> on_lost;
    /// Called when another instance has taken its place: what it held is gone.
    std::function<void(InstanceRef)> on_instance_end;

private:
    void on_models_changed();
    void look_for_holder(Replica& replica, const std::string& instance);
    void refresh(Replica& replica, Clock::time_point now);
    void keep_a_way_in();
    [[nodiscard]] ReplicaState observed_state(const Replica& replica, Clock::time_point now) const;
    [[nodiscard]] ReplicaState derive_state(const Replica& replica, Clock::time_point now) const;
    void start_instance(Replica& replica, const std::string& instance, Clock::time_point now);
    [[nodiscard]] bool has_stopped_answering(const Replica& replica, Clock::time_point now) const;
    [[nodiscard]] bool is_past_slow_start(const Replica& replica, Clock::time_point now) const;
    [[nodiscard]] int usable_slots(const Replica& replica, int slots, Clock::time_point now) const;

    LivenessLimits limits_;
    std::chrono::milliseconds slow_start_;
    std::map<int, Replica> replicas_;
    int index_next_ = 0;  // above all there ever were
    std::uint64_t dispatches_ = 0;
    std::uint64_t models_version_ = 1;
    std::shared_ptr<const ServedNames> served_names_ = std::make_shared<ServedNames>();
};

/// 404: the model does not exist; names those that do.
[[nodiscard]] proto::ApiError unknown_model(const ReplicaSet& set, const std::string& name);

}  // namespace router
