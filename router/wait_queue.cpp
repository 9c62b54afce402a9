#include "router/wait_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <utility>

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

std::optional<Place> WaitQueue::push(Entry entry) {
    if (!entry.in_front && entries_.size() >= count_max_) return std::nullopt;
    const Place place{.is_regular = !entry.in_front,
                      .rank = entry.arrival + entry.priority * kAgeingPerPriority,
                      .number = next_number_++};
    body_bytes_ += entry.body_bytes;
    prompt_tokens_ += entry.prompt_tokens;
    output_tokens_ += entry.output_tokens;
    ++class_counts_.at(static_cast<std::size_t>(class_of(entry.priority)));
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
    return entry;
}

bool WaitQueue::remove(const Place& place) {
    const auto at = entries_.find(place);
    if (at == entries_.end()) return false;
    (void)take(at);
    return true;
}

void WaitQueue::dispatch(Clock::time_point now, const std::function<Snapshot()>& take_snapshot) {
    if (entries_.empty()) return;
    Snapshot snapshot = take_snapshot();
    std::vector<InstanceRef> reserved;
    for (auto at = entries_.begin(); at != entries_.end();) {
        const bool has_room = std::any_of(
            snapshot.replicas.begin(), snapshot.replicas.end(), [&](const ReplicaView& replica) {
                return is_startable(replica, 1, snapshot.dispatch_ahead);
            });
        if (!has_room) return;
        Entry& entry = at->second;
        Demand demand = entry.demand;
        demand.excluded.insert(demand.excluded.end(), reserved.begin(), reserved.end());
        const Decision decision = choose(snapshot, demand);
        if (decision.verdict == Verdict::kDispatch) {
            const auto next = std::next(at);
            const Entry taken = take(at);
            at = next;
            taken.on_dispatch(decision);
            snapshot = take_snapshot();
            continue;
        }
        if (!entry.passed_since) entry.passed_since = now;
        if (decision.replica && now - *entry.passed_since >= kPassedMax) {
            reserved.push_back(*decision.replica);
        }
        ++at;
    }
}

std::size_t WaitQueue::count_of(PriorityClass priority_class) const {
    return class_counts_.at(static_cast<std::size_t>(priority_class));
}

std::size_t WaitQueue::position(const Place& place) const {
    return static_cast<std::size_t>(std::distance(entries_.begin(), entries_.lower_bound(place)));
}

BodyBudget::Share::Share(Share&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

BodyBudget::Share& BodyBudget::Share::operator=(Share&& other) noexcept {
    if (this != &other) {
        release();
        budget_ = std::exchange(other.budget_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
}

void BodyBudget::Share::release() {
    if (budget_ == nullptr) return;
    assert(budget_->bytes_used_ >= bytes_ && "a share is released once");
    std::exchange(budget_, nullptr)->bytes_used_ -= std::exchange(bytes_, 0);
}

std::optional<BodyBudget::Share> BodyBudget::take(std::size_t bytes) {
    if (bytes > bytes_max_ - bytes_used_) return std::nullopt;
    bytes_used_ += bytes;
    return Share(this, bytes);
}

}  // namespace router
