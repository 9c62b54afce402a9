// A runner without a model: it continues every text by a script. It keeps the tokens of each KV
// page, so a page that is shared, copied or mixed up shows in the text.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "replica/engine/step_runner.h"

namespace replica::server::testing {

/// Every sequence generates the script, then the end token. Steps can be held and let go.
class ScriptedRunner final : public StepRunner {
public:
    struct Script {
        std::vector<std::int32_t> tokens;
        std::int32_t end_token = 0;
        std::int32_t instead_of_end = '.';  // while the end token is banned
    };
    ScriptedRunner(RunnerLimits limits, Script script)
        : limits_(limits),
          script_(std::move(script)),
          kv_(static_cast<std::size_t>(limits.blocks_total * limits.block_tokens)) {}

    const RunnerLimits& limits() const override { return limits_; }

    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override {
        pass_gate();
        sampled_.clear();
        logprobs_.clear();
        for (std::int32_t row = 0; row < step.rows; ++row) {
            const auto i = static_cast<std::size_t>(row);
            cell(step, step.seq_of_row[i], step.position[i]) = step.token[i];
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(step.logit_rows); ++i) {
            const auto row = static_cast<std::size_t>(step.logit_row[i]);
            sampled_.push_back(
                next_token(step, step.seq_of_row[row], step.position[row] + 1, step.sampling[i]));
            logprobs_.push_back(logprobs_of(sampled_.back(), step.sampling[i].top_logprobs));
        }
        errors_.assign(sampled_.size(), 0);
        outputs_ = {.sampled = sampled_, .error = errors_, .logits = {}, .logprobs = logprobs_};
        return outputs_;
    }

    const kernels::StepOutputs& run_draft(const kernels::StepDescriptor&, HiddenSource) override {
        throw std::logic_error("this runner cannot draft");
    }
    void keep_hidden(std::int32_t, std::int32_t, std::int32_t) override {}
    void replay(std::int32_t, std::int32_t, std::int32_t) override {}
    void copy_block(std::int32_t from, std::int32_t to) override {
        const auto begin = kv_.begin() + from * limits_.block_tokens;
        std::copy(begin, begin + limits_.block_tokens, kv_.begin() + to * limits_.block_tokens);
    }
    void save_state(std::int32_t, std::int32_t) override {}
    void load_state(std::int32_t, std::int32_t) override {}

    /// From now on only `count` more steps run.
    void allow(std::int64_t count) {
        const std::lock_guard lock(mutex_);
        steps_allowed_ = count;
        changed_.notify_all();
    }
    void allow_all() { allow(kUnlimited); }
    void lose_device() {
        const std::lock_guard lock(mutex_);
        is_lost_ = true;
    }
    /// Until the engine stands in its `count`th step.
    void wait_for_step(std::int64_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return steps_begun_ >= count; });
    }

private:
    static constexpr std::int64_t kUnlimited = INT64_MAX;

    void pass_gate() {
        std::unique_lock lock(mutex_);
        ++steps_begun_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return steps_allowed_ > 0; });
        if (steps_allowed_ != kUnlimited) --steps_allowed_;
        if (is_lost_) throw std::runtime_error("scripted device loss");
    }

    std::int32_t& cell(const kernels::StepDescriptor& step, std::int32_t seq,
                       std::int32_t position) {
        const std::int32_t entry = seq * step.blocks_per_seq_max + position / limits_.block_tokens;
        const std::int32_t block = step.block_table[static_cast<std::size_t>(entry)];
        return kv_.at(static_cast<std::size_t>(block * limits_.block_tokens +
                                               position % limits_.block_tokens));
    }

    /// The script goes on behind the longest of its beginnings that the text ends in.
    std::int32_t next_token(const kernels::StepDescriptor& step, std::int32_t seq,
                            std::int32_t length, const kernels::SamplingRow& sampling) {
        std::vector<std::int32_t> text;
        for (std::int32_t i = 0; i < length; ++i)
            text.push_back(cell(step, seq, i));
        const std::vector<std::int32_t>& script = script_.tokens;
        std::size_t said = std::min(script.size(), text.size());
        while (said > 0 && !std::equal(script.begin(), script.begin() + static_cast<long>(said),
                                       text.end() - static_cast<long>(said))) {
            --said;
        }
        const std::int32_t token = said < script.size() ? script[said] : script_.end_token;
        const bool is_banned = std::find(sampling.banned.begin(), sampling.banned.end(), token) !=
                               sampling.banned.end();
        return is_banned ? script_.instead_of_end : token;
    }

    /// The drawn token has 1/2, the tokens behind it 1/4, 1/8, …
    static kernels::RowLogprobs logprobs_of(std::int32_t token, std::int32_t count) {
        constexpr float kHalf = -0.6931472F;
        kernels::RowLogprobs row;
        row.drawn = kHalf;
        row.top_count = std::max(count, 0);
        for (std::int32_t i = 0; i < row.top_count; ++i) {
            row.top[static_cast<std::size_t>(i)] = {token + i, kHalf * static_cast<float>(i + 1)};
        }
        return row;
    }

    RunnerLimits limits_;
    Script script_;
    std::vector<std::int32_t> kv_;  // [blocks, block_tokens]
    std::vector<std::int32_t> sampled_;
    std::vector<kernels::RowLogprobs> logprobs_;
    std::vector<std::uint8_t> errors_;
    kernels::StepOutputs outputs_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t steps_allowed_ = kUnlimited, steps_begun_ = 0;
    bool is_lost_ = false;
};

}  // namespace replica::server::testing
