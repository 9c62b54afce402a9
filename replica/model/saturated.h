// Byte counts that stay at the largest number instead of wrapping around: flags may be absurd, and
// a plan too large for 64 bits must compare as too large.
#pragma once

#include <cassert>
#include <concepts>
#include <cstdint>
#include <limits>

namespace replica {

class Saturated {
public:
    template <std::integral Count>
    constexpr Saturated(Count count) : value_(static_cast<std::uint64_t>(count)) {  // NOLINT
        assert(count >= Count{0} && "counts are not negative");
    }
    constexpr std::uint64_t value() const { return value_; }

    friend constexpr Saturated operator+(Saturated a, Saturated b) {
        std::uint64_t sum = 0;
        return __builtin_add_overflow(a.value_, b.value_, &sum) ? kMax : Saturated(sum);
    }
    friend constexpr Saturated operator*(Saturated a, Saturated b) {
        std::uint64_t product = 0;
        return __builtin_mul_overflow(a.value_, b.value_, &product) ? kMax : Saturated(product);
    }

private:
    static constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t value_;
};

}  // namespace replica
