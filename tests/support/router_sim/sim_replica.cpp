#include "tests/support/router_sim/sim_replica.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace sim {
namespace {

// About a 27B model in 4 bits on one large card: 7,000 prompt tokens a second, 80 tokens a second
// for one user, 450 for eight.
constexpr double kPrefillRate = 8000;
constexpr double kStepBase_s = 0.011;
constexpr double kStepPerToken_s = 0.0008;
constexpr std::int64_t kChunkTokens = 512;
constexpr double kRateWindow_s = 10;
constexpr std::int64_t kBlockTokens = 64;
constexpr std::int64_t kBlocksTotal = 8192;  // 524k tokens: eight sequences of 65k
constexpr double kNever = std::numeric_limits<double>::infinity();

void follow(double& rate, double seen, double over_s) {
    rate += std::min(1.0, over_s / kRateWindow_s) * (seen - rate);
}

}  // namespace

std::int64_t SimCache::find(const std::vector<router::Boundary>& boundaries) const {
    for (auto boundary = boundaries.rbegin(); boundary != boundaries.rend(); ++boundary) {
        if (by_hash_.contains(boundary->hash)) return boundary->tokens;
    }
    return 0;
}

void SimCache::insert(const std::vector<router::Boundary>& boundaries) {
    // From the leaf up, so that what many prompts share is used last and stays longest.
    for (std::size_t i = boundaries.size(); i-- > 0;) {
        const std::int64_t before = i == 0 ? 0 : boundaries[i - 1].tokens;
        const auto at = by_hash_.find(boundaries[i].hash);
        if (at != by_hash_.end()) {
            entries_.splice(entries_.begin(), entries_, at->second);
            continue;
        }
        entries_.push_front({boundaries[i].hash, boundaries[i].tokens - before});
        by_hash_.emplace(boundaries[i].hash, entries_.begin());
        tokens_ += entries_.front().tokens;
    }
    while (tokens_ > tokens_max_) {
        tokens_ -= entries_.back().tokens;
        by_hash_.erase(entries_.back().hash);
        entries_.pop_back();
    }
}

SimReplica::SimReplica(int index, const Fleet& fleet)
    : index_(index),
      fleet_(fleet),
      cache_(fleet.cache_tokens),
      step_end_s_(kNever),
      prefill_rate_(kPrefillRate * fleet.speeds.at(static_cast<std::size_t>(index)) * 0.85),
      decode_rate_(fleet.speeds.at(static_cast<std::size_t>(index)) /
                   (kStepBase_s + kStepPerToken_s)) {}

double SimReplica::speed(double now_s) const {
    const bool is_slow = index_ == 1 && now_s >= fleet_.slow_from_s && now_s < fleet_.slow_until_s;
    return fleet_.speeds.at(static_cast<std::size_t>(index_)) * (is_slow ? fleet_.slow_speed : 1);
}

void SimReplica::accept(SimSequence sequence, double now_s) {
    sequence.cached = std::min(cache_.find(sequence.boundaries), sequence.prompt_tokens - 1);
    waiting_.push_back(std::move(sequence));
    if (step_end_s_ == kNever) begin_step(now_s);
}

void SimReplica::begin_step(double now_s) {
    while (!waiting_.empty() && running_.size() < kSlots) {
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
    }
    chunks_.clear();
    if (running_.empty()) {
        step_end_s_ = kNever;
        return;
    }
    std::int64_t budget = kChunkTokens;
    std::int64_t decodes = 0;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        SimSequence& sequence = running_[i];
        if (sequence.is_decoding()) {
            ++decodes;
            continue;
        }
        if (budget == 0) continue;
        if (!sequence.has_begun) {
            sequence.has_begun = true;
            // What others have prefilled since it arrived counts too; one token is computed always.
            sequence.cached =
                std::min(cache_.find(sequence.boundaries), sequence.prompt_tokens - 1);
            sequence.prefilled = sequence.cached;
        }
        const std::int64_t chunk = std::min(budget, sequence.prompt_tokens - sequence.prefilled);
        budget -= chunk;
        chunks_.emplace_back(i, chunk);
    }
    const auto prefills = static_cast<double>(kChunkTokens - budget);
    step_length_s_ =
        (kStepBase_s + prefills / kPrefillRate + kStepPerToken_s * static_cast<double>(decodes)) /
        speed(now_s);
    step_end_s_ = now_s + step_length_s_;
    busy_s_ += step_length_s_;
    if (prefills > 0) follow(prefill_rate_, prefills / step_length_s_, step_length_s_);
    if (decodes > 0) {
        follow(decode_rate_, static_cast<double>(decodes) / step_length_s_, step_length_s_);
    }
}

SimReplica::Events SimReplica::end_step() {
    Events events;
    const double now_s = step_end_s_;
    ++steps_;
    std::vector<bool> is_in_prefill(running_.size(), false);
    for (const auto& [at, chunk] : chunks_) {
        is_in_prefill[at] = true;
        running_[at].prefilled += chunk;
        if (running_[at].is_decoding()) cache_.insert(running_[at].boundaries);
    }
    for (std::size_t i = 0; i < running_.size(); ++i) {
        SimSequence& sequence = running_[i];
        if (!sequence.is_decoding()) continue;
        if (is_in_prefill[i]) events.first_tokens.push_back(sequence);
        ++sequence.generated;
        events.tokens.push_back(sequence.request);
        if (sequence.generated >= sequence.output_tokens) events.ended.push_back(sequence.request);
    }
    std::erase_if(running_, [](const SimSequence& sequence) {
        return sequence.generated >= sequence.output_tokens;
    });
    begin_step(now_s);
    return events;
}

proto::ReplicaStatus SimReplica::report() {
    proto::ReplicaStatus status;
    status.replica = index_;
    status.instance = "00000000000000f" + std::to_string(index_);
    status.state = proto::ReplicaState::kReady;
    status.seq = ++reports_;
    status.step = steps_;
    status.running = static_cast<int>(running_.size());
    status.waiting = static_cast<int>(waiting_.size());
    status.sequences_max = kSlots;
    std::int64_t blocks = 0;
    const auto count = [&](const SimSequence& sequence) {
        if (!sequence.is_decoding()) {
            const std::int64_t done = sequence.has_begun ? sequence.prefilled : sequence.cached;
            status.queued_tokens += sequence.prompt_tokens - done;
        }
        if (sequence.has_begun) {
            blocks += (sequence.prefilled + sequence.generated) / kBlockTokens + 1;
        }
    };
    for (const SimSequence& sequence : running_)
        count(sequence);
    for (const SimSequence& sequence : waiting_)
        count(sequence);
    status.kv_blocks_total = kBlocksTotal;
    status.kv_blocks_free = std::max<std::int64_t>(0, kBlocksTotal - blocks);
    status.block_tokens = kBlockTokens;
    const double told = fleet_.told_rates.at(static_cast<std::size_t>(index_));
    status.prefill_tokens_per_s = prefill_rate_ * told;
    status.decode_tokens_per_s = decode_rate_ * told;
    return status;
}

std::int64_t SimReplica::will_find(const std::vector<router::Boundary>& boundaries) const {
    std::int64_t found = cache_.find(boundaries);
    if (fleet_.cache_tokens == 0) return 0;
    const auto look = [&](const SimSequence& sequence) {
        for (std::size_t i = 0; i < std::min(boundaries.size(), sequence.boundaries.size()); ++i) {
            if (boundaries[i].hash != sequence.boundaries[i].hash) return;
            found = std::max(found, boundaries[i].tokens);
        }
    };
    for (const SimSequence& sequence : running_)
        look(sequence);
    for (const SimSequence& sequence : waiting_)
        look(sequence);
    return found;
}

}  // namespace sim
