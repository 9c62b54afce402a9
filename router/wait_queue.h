// Requests that wait for a replica: bounded in count and bytes, ordered by priority with ageing,
// and fair between keys.
//
// A request's effective priority is `priority - waited_s / 10`, lower first. All requests age at
// the same rate, so their order never changes while they wait: comparing
//     arrival + priority * 10 s
// is the same comparison at any time, and the queue is a plain ordered map. Requests that a replica
// refused or lost go in front of all others, among themselves in the same order.
//
// Among those within 1 of the best effective priority (10 s of the first place) the key that has
// been served least goes next, first come first served inside a key.
//
// Late binding: a replica gets a request only when it can start it. What cannot start is passed by
// what can, for 2 s; then the room it needs is kept for it.
//
// Pure: time comes in as an argument. Decision thread only.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "router/charge.h"
#include "router/fairness.h"
#include "router/policy.h"

namespace router {

/// One step of priority is worth this much waiting.
inline constexpr std::chrono::seconds kAgeingPerPriority{10};
/// How long in all a request may be passed by later ones that fit where it does not; after that
/// the replica it needs is kept for it.
inline constexpr std::chrono::seconds kPassedMax{2};
/// Requests this close in effective priority take turns by their keys' service.
inline constexpr std::chrono::seconds kFairWindow = kAgeingPerPriority;

/// Place in the queue; ordered, unique.
struct Place {
    bool is_regular = true;  // false: in front of the others
    Clock::time_point rank;  // arrival + priority * kAgeingPerPriority
    std::uint64_t number = 0;
    auto operator<=>(const Place&) const = default;
};

/// Three classes for metrics, after the values of `x-quadriga-priority`.
enum class PriorityClass : std::uint8_t { kInteractive, kDefault, kBulk };
inline constexpr int kPriorityClassCount = 3;
[[nodiscard]] PriorityClass class_of(int priority);
[[nodiscard]] std::string_view name_of(PriorityClass priority_class);

class WaitQueue {
public:
    struct Entry {
        int priority = 0;
        bool in_front = false;
        Clock::time_point arrival;
        std::size_t body_bytes = 0;
        std::int64_t prompt_tokens = 0;  // estimates, for Retry-After
        std::int64_t output_tokens = 0;
        Demand demand;
        KeyId key = kAnonymousKey;
        /// Brings `demand` up to date before a choice: the caches change with every dispatch. May
        /// be empty.
        std::function<void(Demand&)> refresh;
        /// Called at most once, when the entry has been taken out for `decision.replica`.
        std::function<void(const Decision&)> on_dispatch;

        // The queue's own.
        std::optional<Clock::time_point> passed_since;
        std::optional<Clock::time_point> held_since;
    };

    /// `fair_share` may be null: then all requests are one key's. It outlives the queue.
    /// `hold_max`: how long in all a request may wait for a replica that is better than those which
    /// could start it.
    explicit WaitQueue(std::size_t count_max, const FairShare* fair_share = nullptr,
                       std::chrono::milliseconds hold_max = std::chrono::seconds(2))
        : count_max_(count_max), fair_share_(fair_share), hold_max_(hold_max) {}

    void set_count_max(std::size_t count_max) { count_max_ = count_max; }
    std::size_t count_max() const { return count_max_; }

    /// Puts the request in its place; nullopt when the queue is full, or when its key has half of
    /// it and others wait. Requests put in front have been admitted before and are never refused.
    [[nodiscard]] std::optional<Place> push(Entry entry);

    /// Takes a request out that gave up or ran out of time. False when it is no longer there.
    bool remove(const Place& place);

    /// One pass in order. `take_snapshot` is asked again after every dispatch, because a dispatch
    /// changes what the next choice must see. What cannot start is passed; see kPassedMax.
    /// O(n) choices at most; one when nothing has room.
    void dispatch(Clock::time_point now, const std::function<Snapshot()>& take_snapshot);

    /// Whether a new request of `key` would be refused: the queue is full, or the key has half of
    /// it and others wait.
    [[nodiscard]] bool is_full() const { return entries_.size() >= count_max_; }
    [[nodiscard]] bool is_full_for(KeyId key) const { return is_full() || is_key_full(key); }

    /// A request between its head and its place: the body is on its way or being read. It counts
    /// against the bounds for new heads like one that waits, until it is released or destroyed.
    class Arrival {
    public:
        Arrival() = default;
        Arrival(Arrival&& other) noexcept
            : queue_(std::exchange(other.queue_, nullptr)), key_(other.key_) {}
        Arrival& operator=(Arrival&& other) noexcept {
            if (this == &other) return *this;
            release();
            queue_ = std::exchange(other.queue_, nullptr);
            key_ = other.key_;
            return *this;
        }
        ~Arrival() { release(); }
        void release();

    private:
        friend class WaitQueue;
        Arrival(WaitQueue* queue, KeyId key) : queue_(queue), key_(key) {}
        WaitQueue* queue_ = nullptr;
        KeyId key_ = kAnonymousKey;
    };
    [[nodiscard]] Arrival arrive(KeyId key);
    [[nodiscard]] std::size_t arriving() const { return arriving_; }
    /// The same two bounds for a new head, those that arrive counted in. `room`: requests that
    /// could start at once, for which there is no wait.
    [[nodiscard]] bool is_full_for_heads(std::size_t room) const {
        return is_full() || size() + arriving_ >= count_max_ + room;
    }
    [[nodiscard]] bool is_key_full_for_heads(KeyId key, std::size_t room) const;

    std::size_t size() const { return entries_.size(); }
    std::size_t body_bytes() const { return body_bytes_; }
    std::int64_t prompt_tokens() const { return prompt_tokens_; }
    std::int64_t output_tokens() const { return output_tokens_; }
    std::size_t count_of(PriorityClass priority_class) const;
    /// Arrival of the request of that class that waits longest. O(n).
    [[nodiscard]] std::optional<Clock::time_point> oldest_of(PriorityClass priority_class) const;

    /// The first `count` in order, for the admin view. Valid until the queue changes.
    [[nodiscard]] std::vector<const Entry*> first(std::size_t count) const;

    /// How many are in front of `place`; for tests and the admin view. O(n).
    std::size_t position(const Place& place) const;

private:
    using Entries = std::map<Place, Entry>;
    class Turns;

    Entry take(Entries::iterator at);
    [[nodiscard]] bool is_key_full(KeyId key) const;
    Decision decide(Entry& entry, const Snapshot& snapshot, Clock::time_point now) const;

    Entries entries_;
    std::map<KeyId, std::size_t> key_counts_;  // of those that wait
    std::map<KeyId, std::size_t> key_arriving_;
    std::size_t arriving_ = 0;
    std::size_t count_max_;
    const FairShare* fair_share_;
    std::chrono::milliseconds hold_max_;
    std::size_t body_bytes_ = 0;
    std::int64_t prompt_tokens_ = 0;
    std::int64_t output_tokens_ = 0;
    std::array<std::size_t, kPriorityClassCount> class_counts_{};
    std::uint64_t next_number_ = 0;
};

}  // namespace router
