// Proves that the crossing between threads merges, wakes once, and has a bound.
#include "replica/server/mailbox.h"

#include <gtest/gtest.h>

namespace replica::server {
namespace {

ChoiceUpdate content(int choice, std::string text) {
    ChoiceUpdate update{.choice = choice};
    update.deltas.emplace_back(chat::ContentDelta{std::move(text)});
    return update;
}

TEST(MailboxTest, UpdatesThatWaitBecomeOneAndWakeTheReaderOnce) {
    int wakes = 0;
    Mailbox mailbox([&] { ++wakes; });
    EXPECT_TRUE(mailbox.push(content(0, "ab")));
    EXPECT_TRUE(mailbox.push(content(1, "x")));
    EXPECT_TRUE(mailbox.push(content(0, "cd")));
    EXPECT_EQ(wakes, 1);
    const auto updates = mailbox.take();
    ASSERT_EQ(updates.size(), 2U);
    EXPECT_EQ(std::get<chat::ContentDelta>(updates[0].deltas.at(0).what).text, "abcd");
    EXPECT_EQ(updates[1].choice, 1);
    EXPECT_TRUE(mailbox.take().empty());
    mailbox.push(content(0, "e"));
    EXPECT_EQ(wakes, 2);
}

TEST(MailboxTest, TextOfDifferentKindsKeepsItsOrder) {
    Mailbox mailbox([] {});
    ChoiceUpdate update{.choice = 0};
    update.deltas.emplace_back(chat::ReasoningDelta{"why"});
    mailbox.push(std::move(update));
    mailbox.push(content(0, "that"));
    ChoiceUpdate call{.choice = 0};
    call.deltas.emplace_back(chat::ToolCallStart{0, "call_1", "feed"});
    call.deltas.emplace_back(chat::ToolCallArguments{0, "{"});
    mailbox.push(std::move(call));
    ChoiceUpdate more{.choice = 0};
    more.deltas.emplace_back(chat::ToolCallArguments{0, "}"});
    mailbox.push(std::move(more));
    const auto updates = mailbox.take();
    ASSERT_EQ(updates.size(), 1U);
    ASSERT_EQ(updates[0].deltas.size(), 4U);
    EXPECT_EQ(std::get<chat::ToolCallArguments>(updates[0].deltas[3].what).text, "{}");
}

TEST(MailboxTest, AReaderThatFallsTooFarBehindIsNoticed) {
    Mailbox mailbox([] {});
    EXPECT_TRUE(mailbox.push(content(0, std::string(kOutputBytesMax, 'a'))));
    EXPECT_TRUE(mailbox.push(content(1, "the bound is per choice")));
    EXPECT_FALSE(mailbox.push(content(0, "a")));
}

}  // namespace
}  // namespace replica::server
