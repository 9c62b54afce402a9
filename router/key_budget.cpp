#include "router/key_budget.h"

#include <algorithm>
#include <cassert>

namespace router {

KeyBudget::Share::Share(Share&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      key_(other.key_),
      amount_(std::exchange(other.amount_, 0)) {}

KeyBudget::Share& KeyBudget::Share::operator=(Share&& other) noexcept {
    if (this != &other) {
        release();
        budget_ = std::exchange(other.budget_, nullptr);
        key_ = other.key_;
        amount_ = std::exchange(other.amount_, 0);
    }
    return *this;
}

void KeyBudget::Share::release() {
    if (budget_ == nullptr) return;
    assert(budget_->used_ >= amount_ && "a share is released once");
    KeyBudget& budget = *std::exchange(budget_, nullptr);
    budget.used_ -= amount_;
    const auto own = budget.used_by_key_.find(key_);
    own->second -= std::exchange(amount_, 0);
    if (own->second == 0) budget.used_by_key_.erase(own);
}

bool KeyBudget::is_half_full(std::size_t amount, KeyId key) const {
    const auto at = used_by_key_.find(key);
    const std::size_t own = at == used_by_key_.end() ? 0 : at->second;
    return own < used_ && own + amount > std::max<std::size_t>(1, most_ / 2);
}

std::optional<KeyBudget::Share> KeyBudget::take(std::size_t amount, KeyId key) {
    if (amount == 0) return Share();
    if (used_ >= most_ || amount > most_ - used_ || is_half_full(amount, key)) return std::nullopt;
    used_ += amount;
    used_by_key_[key] += amount;
    return Share(this, key, amount);
}

bool KeyBudget::grow(Share& share, std::size_t amount, KeyId key) {
    if (amount <= share.amount_) return true;
    assert((share.budget_ == nullptr || share.key_ == key) && "a share has one owner");
    std::optional<Share> more = take(amount - share.amount_, key);
    if (!more) return false;
    more->amount_ += std::exchange(share.amount_, 0);
    share.budget_ = nullptr;  // `more` holds its part now
    share = std::move(*more);
    return true;
}

}  // namespace router
