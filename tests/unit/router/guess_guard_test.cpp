// Wrong keys at the admin port: counted by source, shut out for a while, bounded in memory.
#include "router/guess_guard.h"

#include <gtest/gtest.h>

namespace router {
namespace {

using namespace std::chrono_literals;

const GuessGuard::Clock::time_point kStart{1h};

TEST(GuessGuardTest, ItShutsASourceOutAfterItsLastTryAndForTheWindowOnly) {
    GuessGuard guard;
    for (int i = 1; i < GuessGuard::kWrongMax; ++i)
        EXPECT_FALSE(guard.note_wrong("192.0.2.1", kStart));
    EXPECT_EQ(guard.wait_s("192.0.2.1", kStart), std::nullopt);
    EXPECT_TRUE(guard.note_wrong("192.0.2.1", kStart + 10s));
    EXPECT_EQ(guard.wait_s("192.0.2.1", kStart + 10s), 60);
    EXPECT_EQ(guard.wait_s("192.0.2.1", kStart + 69500ms), 1);
    EXPECT_EQ(guard.wait_s("192.0.2.2", kStart + 10s), std::nullopt) << "another one is heard";
    EXPECT_EQ(guard.wait_s("192.0.2.1", kStart + 70s), std::nullopt);
    EXPECT_FALSE(guard.note_wrong("192.0.2.1", kStart + 70s)) << "it begins anew";
}

TEST(GuessGuardTest, SlipsThatAreFarApartShutNobodyOut) {
    GuessGuard guard;
    for (int i = 0; i < 5 * GuessGuard::kWrongMax; ++i) {
        const auto now = kStart + i * 7s;
        EXPECT_FALSE(guard.note_wrong("192.0.2.1", now));
        EXPECT_EQ(guard.wait_s("192.0.2.1", now), std::nullopt);
    }
}

TEST(GuessGuardTest, OneNetworkOfIpV6IsOneSource) {
    GuessGuard guard;
    for (int i = 0; i < GuessGuard::kWrongMax; ++i)
        (void)guard.note_wrong("2001:db8:0:1::" + std::to_string(i), kStart);
    EXPECT_TRUE(guard.wait_s("2001:db8:0:1:ffff::9", kStart));
    EXPECT_FALSE(guard.wait_s("2001:db8:0:2::1", kStart));
}

TEST(GuessGuardTest, ItRemembersOnlySoManySources) {
    GuessGuard guard;
    const auto name = [](std::size_t i) { return "host-" + std::to_string(i); };
    for (std::size_t i = 0; i <= GuessGuard::kSourcesMax; ++i)
        (void)guard.note_wrong(name(i), kStart + std::chrono::milliseconds(i));
    EXPECT_EQ(guard.size(), GuessGuard::kSourcesMax);
    (void)guard.note_wrong("late", kStart + GuessGuard::kWindow + 1h);
    EXPECT_EQ(guard.size(), 1U) << "what is over goes first";
}

}  // namespace
}  // namespace router
