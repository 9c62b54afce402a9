#include "replica/cache/state_slots.h"

#include <cassert>

namespace replica {

StateSlots::StateSlots(std::int32_t count) {
    assert(count > 0);
    is_taken_.assign(static_cast<std::size_t>(count) + 1, false);
    is_taken_[kScratchSlot] = true;  // for good
    free_.reserve(static_cast<std::size_t>(count));
    for (StateSlot slot = count; slot > kScratchSlot; --slot)
        free_.push_back(slot);
}

std::optional<StateSlot> StateSlots::take() {
    if (free_.empty()) return std::nullopt;
    const StateSlot slot = free_.back();
    free_.pop_back();
    is_taken_[static_cast<std::size_t>(slot)] = true;
    return slot;
}

void StateSlots::release(StateSlot slot) {
    assert(slot > kScratchSlot && slot <= count() && "a slot that sequences may own");
    assert(is_taken_[static_cast<std::size_t>(slot)] && "a slot is released once");
    is_taken_[static_cast<std::size_t>(slot)] = false;
    free_.push_back(slot);
}

}  // namespace replica
