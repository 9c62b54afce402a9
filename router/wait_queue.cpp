#include "router/wait_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <utility>
#include <vector>

namespace router {

PriorityClass class_of(int priority) {
    // The named values are -20, 0 and 20; numbers between them belong to the nearer one.
    if (priority <= -10) return PriorityClass::kInteractive;
    return priority < 10 ? PriorityClass::kDefault : PriorityClass::kBulk;
}

std::string_view name_of(PriorityClass priority_class) {
    static constexpr std::array<std::string_view, kPriorityClassCount> kNames = {"interactive",
                                                                                 "default", "bulk"};
    return kNames.at(static_cast<std::size_t>(priority_class));
}

bool WaitQueue::is_key_full(KeyId key) const {
    const auto at = key_counts_.find(key);
    const std::size_t own = at == key_counts_.end() ? 0 : at->second;
    const bool others_wait = own < entries_.size();
    return others_wait && own >= std::max<std::size_t>(1, count_max_ / 2);
}

bool WaitQueue::is_key_full_for_heads(KeyId key, std::size_t room) const {
    if (is_key_full(key)) return true;
    const auto count_in = [key](const std::map<KeyId, std::size_t>& counts) {
        const auto at = counts.find(key);
        return at == counts.end() ? 0 : at->second;
    };
    const std::size_t own = count_in(key_counts_) + count_in(key_arriving_);
    const bool are_others_here = own < size() + arriving_;
    return are_others_here && own >= std::max<std::size_t>(1, count_max_ / 2) + room;
}

WaitQueue::Arrival WaitQueue::arrive(KeyId key) {
    ++arriving_;
    ++key_arriving_[key];
    return Arrival(this, key);
}

void WaitQueue::Arrival::release() {
    if (queue_ == nullptr) return;
    WaitQueue& queue = *std::exchange(queue_, nullptr);
    assert(queue.arriving_ > 0 && "an arrival ends once");
    --queue.arriving_;
    const auto own = queue.key_arriving_.find(key_);
    if (--own->second == 0) queue.key_arriving_.erase(own);
}

std::optional<Place> WaitQueue::push(Entry entry) {
    if (!entry.in_front && is_full_for(entry.key)) return std::nullopt;
    const Place place{.is_regular = !entry.in_front,
                      .rank = entry.arrival + entry.priority * kAgeingPerPriority,
                      .number = next_number_++};
    body_bytes_ += entry.body_bytes;
    prompt_tokens_ += entry.prompt_tokens;
    output_tokens_ += entry.output_tokens;
    ++class_counts_.at(static_cast<std::size_t>(class_of(entry.priority)));
    ++key_counts_[entry.key];
    const bool is_new = entries_.emplace(place, std::move(entry)).second;
    assert(is_new && "numbers make places unique");
    return place;
}

WaitQueue::Entry WaitQueue::take(Entries::iterator at) {
    Entry entry = std::move(at->second);
    entries_.erase(at);
    body_bytes_ -= entry.body_bytes;
    prompt_tokens_ -= entry.prompt_tokens;
    output_tokens_ -= entry.output_tokens;
    --class_counts_.at(static_cast<std::size_t>(class_of(entry.priority)));
    const auto count = key_counts_.find(entry.key);
    if (--count->second == 0) key_counts_.erase(count);
    return entry;
}

bool WaitQueue::remove(const Place& place) {
    const auto at = entries_.find(place);
    if (at == entries_.end()) return false;
    (void)take(at);
    return true;
}

/// The order of one pass: each entry once, the fairest of the first ones next.
class WaitQueue::Turns {
public:
    Turns(WaitQueue& queue, Clock::time_point now) : queue_(queue), now_(now) {
        left_.reserve(queue.entries_.size());
        for (auto at = queue.entries_.begin(); at != queue.entries_.end(); ++at)
            left_.push_back(at);
    }

    [[nodiscard]] bool is_over() const { return first_ == left_.size(); }

    /// Takes the next entry out of the order.
    Entries::iterator next() {
        std::size_t best = first_;
        const Place& front = left_[first_]->first;
        const bool has_rivals = queue_.fair_share_ != nullptr && queue_.key_counts_.size() > 1;
        if (front.is_regular && has_rivals) {
            double least = service(left_[first_]->second.key);
            for (std::size_t i = first_ + 1; i < left_.size(); ++i) {
                if (left_[i] == queue_.entries_.end()) continue;
                if (left_[i]->first.rank > front.rank + kFairWindow) break;
                const double attained = service(left_[i]->second.key);
                if (attained >= least) continue;  // inside a key the earlier one is seen first
                least = attained;
                best = i;
            }
        }
        const auto taken = std::exchange(left_[best], queue_.entries_.end());
        while (first_ < left_.size() && left_[first_] == queue_.entries_.end())
            ++first_;
        return taken;
    }

private:
    [[nodiscard]] double service(KeyId key) const {
        return queue_.fair_share_->attained(key, now_);
    }

    WaitQueue& queue_;
    Clock::time_point now_;
    std::vector<Entries::iterator> left_;  // end() where one has had its turn
    std::size_t first_ = 0;
};

Decision WaitQueue::decide(Entry& entry, const Snapshot& snapshot, Clock::time_point now) const {
    if (entry.refresh) entry.refresh(entry.demand);
    entry.demand.waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - entry.arrival);
    entry.demand.may_hold =
        hold_max_.count() > 0 && (!entry.held_since || now - *entry.held_since < hold_max_);
    Decision decision = choose(snapshot, entry.demand);
    if (decision.is_hold && !entry.held_since) entry.held_since = now;
    return decision;
}

namespace {

/// Room that waits for a request which was passed too long. Whoever lacks slots or memory needs the
/// replica to empty; a rule about long prompts needs one place only, and others may go on.
struct Reservation {
    InstanceRef replica;
    int slots = 0;  // 0: all of it
};

void keep_room(Snapshot& snapshot, const std::vector<Reservation>& reservations) {
    for (ReplicaView& view : snapshot.replicas) {
        for (const Reservation& one : reservations) {
            if (one.replica != view.ref()) continue;
            view.reserved_slots += one.slots;
            view.is_reserved = view.is_reserved || one.slots == 0;
        }
    }
}

std::optional<Reservation> reservation_for(const Decision& decision, int sequences) {
    switch (decision.obstacle) {
        case Obstacle::kSlots:
        case Obstacle::kBlocks:
            return Reservation{*decision.replica, 0};
        case Obstacle::kBigCap:
        case Obstacle::kLight:
            return Reservation{*decision.replica, sequences};
        default:
            return std::nullopt;  // not room is what it lacks
    }
}

bool has_room(const Snapshot& snapshot) {
    return std::any_of(snapshot.replicas.begin(), snapshot.replicas.end(),
                       [&snapshot](const ReplicaView& replica) {
                           return is_startable(replica, 1, snapshot.dispatch_ahead);
                       });
}

}  // namespace

void WaitQueue::dispatch(Clock::time_point now, const std::function<Snapshot()>& take_snapshot) {
    if (entries_.empty()) return;
    Snapshot snapshot = take_snapshot();
    if (!has_room(snapshot)) return;
    std::vector<Reservation> reservations;
    for (Turns turns(*this, now); !turns.is_over();) {
        const auto at = turns.next();
        Entry& entry = at->second;
        if (fair_share_ != nullptr && fair_share_->is_at_limit(entry.key)) continue;
        snapshot.waiting = static_cast<int>(entries_.size()) - 1;
        const Decision decision = decide(entry, snapshot, now);
        if (decision.verdict == Verdict::kDispatch) {
            const Entry taken = take(at);
            taken.on_dispatch(decision);
            snapshot = take_snapshot();
            keep_room(snapshot, reservations);
        } else {
            if (!entry.passed_since) entry.passed_since = now;
            if (!decision.replica || now - *entry.passed_since < kPassedMax) continue;
            const auto reservation = reservation_for(decision, entry.demand.sequences);
            if (!reservation) continue;
            reservations.push_back(*reservation);
            keep_room(snapshot, {*reservation});
        }
        if (!has_room(snapshot)) return;
    }
}

std::size_t WaitQueue::count_of(PriorityClass priority_class) const {
    return class_counts_.at(static_cast<std::size_t>(priority_class));
}

std::optional<Clock::time_point> WaitQueue::oldest_of(PriorityClass priority_class) const {
    std::optional<Clock::time_point> oldest;
    for (const auto& [place, entry] : entries_) {
        if (class_of(entry.priority) != priority_class) continue;
        if (!oldest || entry.arrival < *oldest) oldest = entry.arrival;
    }
    return oldest;
}

std::vector<const WaitQueue::Entry*> WaitQueue::first(std::size_t count) const {
    std::vector<const Entry*> found;
    for (const auto& [place, entry] : entries_) {
        if (found.size() >= count) break;
        found.push_back(&entry);
    }
    return found;
}

std::size_t WaitQueue::position(const Place& place) const {
    return static_cast<std::size_t>(std::distance(entries_.begin(), entries_.lower_bound(place)));
}

}  // namespace router
