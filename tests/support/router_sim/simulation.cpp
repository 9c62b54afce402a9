#include "tests/support/router_sim/simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>

#include "router/estimator.h"
#include "router/policy_memory.h"
#include "router/replica_set.h"
#include "router/wait_queue.h"
#include "tests/support/router_sim/sim_replica.h"

namespace sim {
namespace {

using router::Clock;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kTick_s = 0.25;    // as the router's
constexpr double kReport_s = 0.02;  // the least time between two reports of a replica
constexpr double kIdleReport_s = 1;
constexpr int kBlockTokens = 64;
const std::string kModel = "sim";

Clock::time_point at(double now_s) {
    // A clock that has run for a while: points of time before the start exist.
    return Clock::time_point(std::chrono::hours(1)) +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(now_s));
}

struct Request {
    std::size_t session = 0;
    std::size_t turn = 0;
    double arrival_s = 0;
    SimSequence sequence;
    std::shared_ptr<router::Boundaries> known;  // what the router makes of it
    std::int64_t expected_output = 0;
    std::int64_t given_output = 0;

    std::unique_ptr<router::Placement> placement;
    std::shared_ptr<router::Account> account;
    router::Charge charge;
    router::Permit permit;
};

class Simulation {
public:
    Simulation(const Trace& trace, Policy policy, std::uint64_t seed)
        : trace_(trace),
          policy_(policy),
          random_(seed),
          set_({}),
          memory_({.use_affinity = policy == Policy::kOurs || policy == Policy::kOracle,
                   .big_prefill_s = policy == Policy::kPlain ? 1e9 : 2}),
          queue_(std::size_t{1} << 20, &memory_.fair_share()),
          prompts_(trace.sessions.size()) {
        for (int i = 0; i < static_cast<int>(trace.fleet.speeds.size()); ++i) {
            replicas_.emplace_back(i, trace.fleet);
            reported_s_.push_back(-1);
            set_.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, at(0));
        }
        for (std::size_t i = 0; i < trace.sessions.size(); ++i)
            arrivals_.push({trace.sessions[i].start_s, i, 0});
    }

    RunResult run();

private:
    struct Arrival {
        double at_s = 0;
        std::size_t session = 0;
        std::size_t turn = 0;
        bool operator>(const Arrival& other) const { return at_s > other.at_s; }
    };

    [[nodiscard]] double next_event_s() const;
    void arrive(const Arrival& arrival);
    void end_step(std::size_t replica);
    void report(std::size_t replica);
    void pump();
    void start(std::size_t request, const router::Decision& decision);
    void refresh(const Request& request, router::Demand& demand) const;
    [[nodiscard]] router::Snapshot snapshot() const;

    const Trace& trace_;
    Policy policy_;
    std::mt19937_64 random_;
    double now_s_ = 0;
    double next_tick_s_ = 0;

    router::ReplicaSet set_;
    router::PolicyMemory memory_;
    router::Estimator estimator_;
    router::WaitQueue queue_;
    std::vector<SimReplica> replicas_;
    std::vector<double> reported_s_;
    std::vector<std::unique_ptr<Request>> requests_;
    std::vector<std::vector<Segment>> prompts_;  // so far, of each session
    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
    std::size_t ended_ = 0;
    RunResult result_;
};

/// The hash at the end of each segment, with the lengths `scale` makes of the true ones.
std::vector<router::Boundary> chain(const std::vector<Segment>& segments, double scale) {
    std::vector<router::Boundary> boundaries;
    router::SipHasher hash({.first = 1, .second = 2});
    double tokens = 0;
    for (const Segment& segment : segments) {
        hash.add_number(segment.text);
        tokens += static_cast<double>(segment.tokens) * scale;
        boundaries.push_back({hash.value(), static_cast<std::int64_t>(tokens)});
    }
    return boundaries;
}

void Simulation::arrive(const Arrival& arrival) {
    const Turn& turn = trace_.sessions[arrival.session].turns[arrival.turn];
    std::vector<Segment>& prompt = prompts_[arrival.session];
    if (turn.is_fresh) prompt.clear();
    prompt.insert(prompt.end(), turn.added.begin(), turn.added.end());
    const std::size_t number = requests_.size();
    auto request = std::make_unique<Request>();
    request->session = arrival.session;
    request->turn = arrival.turn;
    request->arrival_s = now_s_;
    request->sequence = {.request = static_cast<int>(number),
                         .boundaries = chain(prompt, 1),
                         .output_tokens = turn.output_tokens};
    request->sequence.prompt_tokens = request->sequence.boundaries.back().tokens;
    // The router counts bytes, not tokens: off by up to a fifth for any one text.
    const double error = std::uniform_real_distribution<double>(0.8, 1.25)(random_);
    request->known = std::make_shared<router::Boundaries>();
    request->known->list = chain(prompt, error);
    request->known->prompt_tokens = request->known->list.back().tokens;
    request->known->list = router::worth_keeping(std::move(request->known->list));
    request->expected_output = estimator_.output_tokens(kModel, 0, 512, 1);
    // The answer becomes part of the next prompt.
    prompt.push_back({~std::uint64_t{0} - number, turn.output_tokens});

    router::WaitQueue::Entry entry{.arrival = at(now_s_)};
    entry.prompt_tokens = request->known->prompt_tokens;
    entry.output_tokens = request->expected_output;
    entry.demand.output_tokens_kept = 256;
    const Request& it = *request;
    requests_.push_back(std::move(request));
    entry.refresh = [this, &it](router::Demand& demand) { refresh(it, demand); };
    entry.on_dispatch = [this, number](const router::Decision& decision) {
        start(number, decision);
    };
    refresh(it, entry.demand);
    memory_.note_arrival(it.known->prompt_tokens, snapshot(), at(now_s_));
    if (!queue_.push(std::move(entry))) throw std::runtime_error("the queue has no bound here");
    pump();
}

void Simulation::refresh(const Request& request, router::Demand& demand) const {
    memory_.fill(demand, *request.known, at(now_s_));
    if (policy_ != Policy::kOracle) return;
    demand.prompt_tokens = request.sequence.prompt_tokens;
    demand.matches.clear();
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
        const std::int64_t found = replicas_[i].will_find(request.sequence.boundaries);
        if (found > 0) demand.matches.push_back({{static_cast<int>(i), 1}, found});
    }
}

router::Snapshot Simulation::snapshot() const {
    router::Snapshot snapshot = set_.snapshot(1, at(now_s_));
    memory_.fill(snapshot, at(now_s_));
    if (policy_ == Policy::kOracle) {
        for (router::ReplicaView& view : snapshot.replicas)
            view.trust = 1;
    }
    return snapshot;
}

void Simulation::pump() {
    queue_.dispatch(at(now_s_), [this] { return snapshot(); });
}

void Simulation::start(std::size_t number, const router::Decision& decision) {
    Request& request = *requests_[number];
    const auto index = static_cast<std::size_t>(decision.replica->index);
    const auto account = set_.find(decision.replica->index)->account;
    set_.mark_dispatch(decision.replica->index);
    request.placement =
        std::make_unique<router::Placement>(memory_, decision, request.known, router::kAnonymousKey,
                                            request.expected_output, at(now_s_));
    request.account = account;
    request.charge = router::Charge(account, {.prefill_tokens = decision.uncached_tokens,
                                              .output_tokens = request.expected_output,
                                              .blocks = decision.blocks});
    request.permit = router::Permit(account, 1);
    request.charge.mark_sent(at(now_s_));
    replicas_[index].accept(request.sequence, now_s_);
}

void Simulation::end_step(std::size_t index) {
    const SimReplica::Events events = replicas_[index].end_step();
    for (const SimSequence& first : events.first_tokens) {
        Request& request = *requests_[static_cast<std::size_t>(first.request)];
        const router::Placement::FirstToken told{
            .report = router::AffinityTable::Report{.prompt_tokens = first.prompt_tokens,
                                                    .cached_tokens = first.cached,
                                                    .block_tokens = kBlockTokens}};
        request.placement->on_first_token(told, at(now_s_));
        request.charge.mark_first_byte(at(now_s_), first.prompt_tokens);
        const Turn& turn = trace_.sessions[request.session].turns[request.turn];
        result_.requests.push_back({now_s_ - request.arrival_s, turn.is_document, request.session});
        result_.prompt_tokens += first.prompt_tokens;
        result_.cached_tokens += first.cached;
    }
    for (const int number : events.tokens)
        requests_[static_cast<std::size_t>(number)]->charge.mark_output(1);
    result_.output_tokens += static_cast<std::int64_t>(events.tokens.size());
    for (const int number : events.ended) {
        Request& request = *requests_[static_cast<std::size_t>(number)];
        estimator_.on_output(kModel, 0, request.sequence.output_tokens);
        request.placement.reset();
        request.account->on_done(request.charge.number());
        request.charge.release(at(now_s_));
        request.permit.release();
        ++ended_;
        const Session& session = trace_.sessions[request.session];
        if (request.turn + 1 < session.turns.size()) {
            const Turn& next = session.turns[request.turn + 1];
            arrivals_.push({now_s_ + next.think_s, request.session, request.turn + 1});
        }
    }
    if (!events.ended.empty()) pump();
    if (now_s_ - reported_s_[index] >= kReport_s) report(index);
    result_.was_suspended = result_.was_suspended || memory_.is_affinity_suspended(at(now_s_));
}

void Simulation::report(std::size_t index) {
    reported_s_[index] = now_s_;
    (void)set_.on_report(static_cast<int>(index), replicas_[index].report(), at(now_s_));
    if (queue_.size() > 0) pump();
}

double Simulation::next_event_s() const {
    double next = next_tick_s_;
    if (!arrivals_.empty()) next = std::min(next, arrivals_.top().at_s);
    for (const SimReplica& replica : replicas_)
        next = std::min(next, replica.step_end_s());
    return next;
}

RunResult Simulation::run() {
    std::size_t expected = 0;
    double first_s = kNever;
    for (const Session& session : trace_.sessions) {
        expected += session.turns.size();
        first_s = std::min(first_s, session.start_s);
    }
    while (ended_ < expected) {
        now_s_ = next_event_s();
        if (now_s_ > 36'000) throw std::runtime_error("a request of '" + trace_.name + "' starves");
        if (now_s_ >= next_tick_s_) {
            next_tick_s_ += kTick_s;
            for (std::size_t i = 0; i < replicas_.size(); ++i) {
                if (now_s_ - reported_s_[i] >= kIdleReport_s || reported_s_[i] < 0) report(i);
            }
            if (queue_.size() > 0) pump();
        }
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
            if (replicas_[i].step_end_s() <= now_s_) end_step(i);
        }
        while (!arrivals_.empty() && arrivals_.top().at_s <= now_s_) {
            const Arrival arrival = arrivals_.top();
            arrivals_.pop();
            arrive(arrival);
        }
    }
    result_.length_s = now_s_ - first_s;
    for (const SimReplica& replica : replicas_)
        result_.busy_share += replica.busy_s() / result_.length_s;
    result_.busy_share /= static_cast<double>(replicas_.size());
    return std::move(result_);
}

}  // namespace

std::string_view name_of(Policy policy) {
    switch (policy) {
        case Policy::kOurs:
            return "ours";
        case Policy::kLeastLoaded:
            return "least-loaded";
        case Policy::kOracle:
            return "oracle";
        case Policy::kPlain:
            return "plain";
    }
    return "";
}

RunResult simulate(const Trace& trace, Policy policy, std::uint64_t seed) {
    return Simulation(trace, policy, seed).run();
}

}  // namespace sim
