// Who presents wrong keys to the admin port over and over is sent away for a while, unread.
//
//   wrong key ─▶ count of its source ──(kWrongMax within kWindow)──▶ shut for kWindow: 429, any key
//
// A source is an IPv4 address or an IPv6 network of 64 bits, since whoever has one address of such
// a network has all. Only as many sources are remembered as kSourcesMax; the oldest go. A request
// without any key guesses nothing. Decision thread only; no clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace router {

class GuessGuard {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr int kWrongMax = 10;
    static constexpr std::chrono::seconds kWindow{60};
    static constexpr std::size_t kSourcesMax = 1024;

    /// Seconds until `peer` (an address) is heard again; none: now.
    [[nodiscard]] std::optional<int> wait_s(std::string_view peer, Clock::time_point now) const;
    /// It presented a key that is none. True: with this one it is shut out.
    bool note_wrong(std::string_view peer, Clock::time_point now);
    [[nodiscard]] std::size_t size() const { return sources_.size(); }

private:
    struct Source {
        int wrong = 0;
        Clock::time_point since;  // of the first wrong key, or of the shutting out
    };
    void make_room(Clock::time_point now);

    std::unordered_map<std::string, Source> sources_;
};

}  // namespace router
