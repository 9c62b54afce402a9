// How many attempts beyond the first the router may make: a tenth of the requests of the last ten
// seconds, and at least three. Without it a sick fleet would see its load doubled by retries.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "router/charge.h"

namespace router {

class RetryBudget {
public:
    void on_request(Clock::time_point now) { ++bucket(now).requests; }

    /// Takes one retry; false when the budget is used up.
    [[nodiscard]] bool take(Clock::time_point now) {
        Bucket& current = bucket(now);
        std::int64_t requests = 0;
        std::int64_t retries = 0;
        for (const Bucket& one : buckets_) {
            if (current.second - one.second >= kSeconds) continue;
            requests += one.requests;
            retries += one.retries;
        }
        if (retries >= std::max<std::int64_t>(kRetriesMin, requests / kRequestsPerRetry)) {
            return false;
        }
        ++current.retries;
        return true;
    }

private:
    static constexpr std::int64_t kSeconds = 10;
    static constexpr std::int64_t kRetriesMin = 3;
    static constexpr std::int64_t kRequestsPerRetry = 10;

    struct Bucket {
        std::int64_t second = -kSeconds;  // which second of the clock it counts
        std::int64_t requests = 0;
        std::int64_t retries = 0;
    };

    Bucket& bucket(Clock::time_point now) {
        const std::int64_t second =
            std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
        Bucket& one = buckets_.at(static_cast<std::size_t>(second % kSeconds));
        if (one.second != second) one = {.second = second};
        return one;
    }

    std::array<Bucket, kSeconds> buckets_{};
};

}  // namespace router
