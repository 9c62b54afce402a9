// Numbering of recurrent state slots: one per running sequence of a model with delta-net layers.
//
// Slot 0 is scratch: padded rows may write there, no sequence ever owns it. Slots 1 .. count are
// handed out. A slot need not be cleared: a sequence whose kv_len_before is 0 starts from zeros.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace replica {

using StateSlot = std::int32_t;
inline constexpr StateSlot kScratchSlot = 0;

/// Engine thread only. O(1), allocates nothing.
class StateSlots {
public:
    explicit StateSlots(std::int32_t count);

    [[nodiscard]] std::optional<StateSlot> take();
    /// `slot` must be taken; scratch is not.
    void release(StateSlot slot);

    std::int32_t free_count() const { return static_cast<std::int32_t>(free_.size()); }
    std::int32_t count() const { return static_cast<std::int32_t>(is_taken_.size()) - 1; }

private:
    std::vector<StateSlot> free_;
    std::vector<bool> is_taken_;  // [count + 1]
};

}  // namespace replica
