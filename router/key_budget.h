// An amount that all keys share: bytes of memory for bodies, or requests at a time.
//
//   take(amount, key) ─▶ Share, given back on destruction       does not fit: nothing
//
// While others hold some of it, one key's may be half of the whole. Decision thread only.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "router/fairness.h"

namespace router {

class KeyBudget {
public:
    explicit KeyBudget(std::size_t most) : most_(most) {}
    KeyBudget(const KeyBudget&) = delete;
    KeyBudget& operator=(const KeyBudget&) = delete;

    /// A part of the budget. Move-only; the budget outlives it.
    class Share {
    public:
        Share() = default;
        Share(Share&& other) noexcept;
        Share& operator=(Share&& other) noexcept;
        ~Share() { release(); }
        void release();
        [[nodiscard]] std::size_t amount() const { return amount_; }

    private:
        friend class KeyBudget;
        Share(KeyBudget* budget, KeyId key, std::size_t amount)
            : budget_(budget), key_(key), amount_(amount) {}
        KeyBudget* budget_ = nullptr;
        KeyId key_ = kAnonymousKey;
        std::size_t amount_ = 0;
    };

    /// nullopt when `amount` does not fit, in all or into the key's half.
    [[nodiscard]] std::optional<Share> take(std::size_t amount, KeyId key = kAnonymousKey);
    /// Makes `share` one of `amount` in all, if it is not yet; false leaves it as it is. A share
    /// that holds something stays with its key.
    [[nodiscard]] bool grow(Share& share, std::size_t amount, KeyId key = kAnonymousKey);
    /// Whether it is the key's half that `amount` does not fit into.
    [[nodiscard]] bool is_half_full(std::size_t amount, KeyId key) const;

    /// What is held stays, also when it is more than that.
    void set_most(std::size_t most) { most_ = most; }
    [[nodiscard]] std::size_t most() const { return most_; }
    [[nodiscard]] std::size_t used() const { return used_; }

private:
    std::size_t most_;
    std::size_t used_ = 0;
    std::map<KeyId, std::size_t> used_by_key_;  // those that have any
};

}  // namespace router
