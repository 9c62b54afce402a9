// Durations of a moment in fine buckets, for quantiles that a person reads.
//
// The buckets of a scraped histogram are few and far apart: between 100 and 200 ms everything is
// one number. Here every octave from 1 us to about an hour has 16 buckets of equal width, so a
// quantile is right within 1/32 of its value. Fixed memory, no allocation, adding is a few
// instructions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace router {

class FineHistogram {
public:
    static constexpr double kLeastSeconds = 1e-6;  // all that is shorter counts as this
    static constexpr int kOctaves = 32;            // up to 2^32 us = 71 minutes
    static constexpr int kBucketsPerOctave = 16;
    static constexpr std::size_t kBuckets = std::size_t{kOctaves} * kBucketsPerOctave;
    static constexpr double kMostSeconds = kLeastSeconds * 4294967296.0;  // 2^kOctaves

    void add(double seconds) {
        ++counts_[bucket_of(seconds)];
        ++count_;
    }

    void merge(const FineHistogram& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i)
            counts_[i] += other.counts_[i];
        count_ += other.count_;
    }

    [[nodiscard]] std::uint64_t count() const { return count_; }

    /// The middle of the bucket that holds the observation of rank ceil(q * count); none without
    /// observations. `q` in (0, 1].
    [[nodiscard]] std::optional<double> quantile(double q) const {
        if (count_ == 0) return std::nullopt;
        const auto rank = std::max<std::uint64_t>(
            1, static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            seen += counts_[i];
            if (seen >= rank) return middle_of(i);
        }
        return middle_of(counts_.size() - 1);
    }

private:
    static std::size_t bucket_of(double seconds) {
        if (!(seconds > kLeastSeconds)) return 0;  // NaN too
        if (seconds >= kMostSeconds) return kBuckets - 1;
        int exponent = 0;
        const double mantissa = std::frexp(seconds / kLeastSeconds, &exponent);  // [0.5, 1)
        const int octave = std::clamp(exponent - 1, 0, kOctaves - 1);
        const int step = static_cast<int>((2 * mantissa - 1) * kBucketsPerOctave);
        return static_cast<std::size_t>(octave * kBucketsPerOctave + step);
    }
    static double middle_of(std::size_t bucket) {
        const auto octave = static_cast<int>(bucket / kBucketsPerOctave);
        const auto step = static_cast<double>(bucket % kBucketsPerOctave);
        return kLeastSeconds * std::ldexp(1 + (step + 0.5) / kBucketsPerOctave, octave);
    }

    std::array<std::uint32_t, kBuckets> counts_{};
    std::uint64_t count_ = 0;
};

}  // namespace router
