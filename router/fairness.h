// Who has had how much: fairness between API keys.
//
// A key's attained service is what it got lately, uncached prompt tokens + 2 x output tokens (an
// output token takes about twice the time of a prompt token in a shared batch), halved every 60 s
// and divided by the key's weight. Among requests of nearly equal priority the key with the least
// goes next. Service is charged by estimate at dispatch and corrected when the replica reports.
//
// No clock: time comes in as an argument. Decision thread only. Source: spec of the router,
// section 6.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "router/charge.h"

namespace router {

/// Number of a key; 0 is whoever has none.
using KeyId = std::uint32_t;
inline constexpr KeyId kAnonymousKey = 0;

/// Service in tokens.
[[nodiscard]] inline double service_of(std::int64_t uncached_tokens, std::int64_t output_tokens) {
    return static_cast<double>(uncached_tokens) + 2 * static_cast<double>(output_tokens);
}

class FairShare {
public:
    static constexpr std::chrono::seconds kHalfLife{60};

    FairShare() { shares_.push_back({}); }

    /// The number of the key `name`, made on first use. Names come from the operator's key file, so
    /// there are as many as it lists. A later weight or limit replaces the earlier.
    struct KeyLimits {
        double weight = 1;
        std::optional<int> requests_max;  // running at once
    };
    KeyId id_of(const std::string& name, KeyLimits limits);

    /// Adds service, or takes back what was estimated too high.
    void add(KeyId key, double tokens, Clock::time_point now);

    /// Attained service at `now`, divided by the weight.
    [[nodiscard]] double attained(KeyId key, Clock::time_point now) const;

    // What a key has running, from dispatch to its last byte.
    void on_start(KeyId key) { ++share(key).running; }
    void on_end(KeyId key);
    [[nodiscard]] bool is_at_limit(KeyId key) const;
    [[nodiscard]] int running(KeyId key) const { return shares_.at(key).running; }

    /// Jain's index over the keys that got service lately, (sum x)^2 / (n * sum x^2): 1 when all
    /// got the same for their weight, 1/n when one got all.
    [[nodiscard]] double jain_ratio(Clock::time_point now) const;

private:
    struct Share {
        double tokens = 0;  // as of `at`
        Clock::time_point at;
        double weight = 1;
        std::optional<int> requests_max;
        int running = 0;
    };
    Share& share(KeyId key) { return shares_.at(key); }
    [[nodiscard]] static double decayed(const Share& share, Clock::time_point now);

    std::vector<Share> shares_;
    std::map<std::string, KeyId> ids_;
};

}  // namespace router
