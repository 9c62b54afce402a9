#include "router/fairness.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace router {
namespace {

constexpr double kWeightMin = 1e-3;
/// Below this a key has not been served lately and does not count for the index.
constexpr double kServiceMin = 1;

}  // namespace

KeyId FairShare::id_of(const std::string& name, KeyLimits limits) {
    const auto [at, is_new] = ids_.try_emplace(name, static_cast<KeyId>(shares_.size()));
    if (is_new) shares_.push_back({});
    Share& one = share(at->second);
    one.weight = std::max(kWeightMin, limits.weight);
    one.requests_max = limits.requests_max;
    return at->second;
}

double FairShare::decayed(const Share& share, Clock::time_point now) {
    const double half_lives = std::chrono::duration<double>(now - share.at).count() /
                              std::chrono::duration<double>(kHalfLife).count();
    return share.tokens * std::exp2(-std::max(0.0, half_lives));
}

void FairShare::add(KeyId key, double tokens, Clock::time_point now) {
    Share& one = share(key);
    one.tokens = std::max(0.0, decayed(one, now) + tokens);
    one.at = now;
}

double FairShare::attained(KeyId key, Clock::time_point now) const {
    const Share& one = shares_.at(key);
    return decayed(one, now) / one.weight;
}

void FairShare::on_end(KeyId key) {
    Share& one = share(key);
    assert(one.running > 0 && "a request ends once");
    --one.running;
}

bool FairShare::is_at_limit(KeyId key) const {
    const Share& one = shares_.at(key);
    return one.requests_max && one.running >= *one.requests_max;
}

double FairShare::jain_ratio(Clock::time_point now) const {
    double sum = 0;
    double squares = 0;
    int count = 0;
    for (const Share& one : shares_) {
        const double tokens = decayed(one, now);
        if (tokens < kServiceMin) continue;
        const double service = tokens / one.weight;
        sum += service;
        squares += service * service;
        ++count;
    }
    return count == 0 ? 1.0 : sum * sum / (count * squares);
}

}  // namespace router
