// StateSlots: scratch is never given out, slots are unique, double release is caught.
#include "replica/cache/state_slots.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace replica {
namespace {

TEST(StateSlotsTest, HandsOutAllSlotsButScratch) {
    StateSlots slots(3);
    std::set<StateSlot> taken;
    while (const auto slot = slots.take())
        taken.insert(*slot);
    EXPECT_EQ(taken, (std::set<StateSlot>{1, 2, 3}));
    EXPECT_EQ(slots.free_count(), 0);
    EXPECT_EQ(slots.count(), 3);
}

TEST(StateSlotsTest, NoSlotHasTwoOwnersOverRandomOperations) {
    std::mt19937 random(7);
    StateSlots slots(10);
    std::set<StateSlot> taken;
    for (int i = 0; i < 20000; ++i) {
        if (random() % 2 == 0) {
            const auto slot = slots.take();
            ASSERT_EQ(slot.has_value(), taken.size() < 10);
            if (slot) {
                ASSERT_TRUE(taken.insert(*slot).second);
            }
        } else if (!taken.empty()) {
            auto slot = taken.begin();
            std::advance(slot, random() % taken.size());
            slots.release(*slot);
            taken.erase(slot);
        }
        ASSERT_EQ(static_cast<std::size_t>(slots.free_count()), 10 - taken.size());
    }
}

TEST(StateSlotsDeathTest, ReleasingTwiceIsOurMistake) {
    StateSlots slots(2);
    const StateSlot slot = slots.take().value();
    slots.release(slot);
    EXPECT_DEATH(slots.release(slot), "released once");
}

TEST(StateSlotsDeathTest, ScratchAndForeignSlotsCannotBeReleased) {
    StateSlots slots(2);
    EXPECT_DEATH(slots.release(kScratchSlot), "may own");
    EXPECT_DEATH(slots.release(3), "may own");
}

}  // namespace
}  // namespace replica
