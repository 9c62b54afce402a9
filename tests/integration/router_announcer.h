// The launcher's side of a router under test: announcements out, orders of drains in.
#pragma once

#include <array>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/ready_pipe.h"
#include "tests/integration/router_fleet.h"

namespace fleet {

/// The launcher's end of an announcement socket.
class Announcer {
public:
    Announcer() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
    ~Announcer() {
        ::close(ends_[0]);
        ::close(ends_[1]);
    }
    [[nodiscard]] Child::Inherited inherited() const { return {.fd = ends_[1], .as = 10}; }
    void say(const Fake& fake, int index, proto::ReplicaState state, const std::string& instance,
             bool is_drained = false) {
        const std::string line =
            proto::to_json_line(proto::ReplicaAnnouncement{.index = index,
                                                           .url = fake.url(),
                                                           .instance = instance,
                                                           .state = state,
                                                           .eta_s = 7,
                                                           .is_drained = is_drained});
        EXPECT_EQ(::write(ends_[0], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
    /// The next order of the router; waits for it. Passes over its word that it serves.
    proto::DrainOrder hear() {
        for (;;) {
            if (const std::optional<std::string> line = lines_.next()) {
                if (proto::parse_router_news(*line)) continue;
                return proto::parse_drain_order(*line).value();
            }
            std::array<char, 256> bytes;
            const ssize_t got = ::read(ends_[0], bytes.data(), bytes.size());
            if (got <= 0) return {.index = -1};
            lines_.feed({bytes.data(), static_cast<std::size_t>(got)});
        }
    }

private:
    int ends_[2] = {-1, -1};
    proto::LineReader lines_;
};

}  // namespace fleet
