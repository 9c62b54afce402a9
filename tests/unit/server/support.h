// A tiny model without weights: byte tokens, a ChatML template, and a runner that says a script.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "replica/engine/engine.h"
#include "replica/engine/step_runner.h"
#include "replica/server/app_state.h"
#include "replica/server/served_model.h"
#include "tests/unit/tokenizer/support.h"

namespace replica::server::testing {

inline constexpr TokenId kImStart = 256, kImEnd = 257, kThink = 258, kThinkEnd = 259,
                         kToolCall = 260, kToolCallEnd = 261;
inline constexpr int kVocabulary = 262;
inline constexpr int kContext = 512;

/// Ids 0..255 are the bytes.
inline Tokenizer byte_tokenizer() {
    TokenizerData data =
        replica::testing::bpe_data({}, {{"<|im_start|>", TokenType::kControl},
                                        {"<|im_end|>", TokenType::kControl},
                                        {"<think>", TokenType::kUserDefined},
                                        {"</think>", TokenType::kUserDefined},
                                        {"<tool_call>", TokenType::kUserDefined},
                                        {"</tool_call>", TokenType::kUserDefined}});
    data.eos_id = kImEnd;
    return replica::testing::tokenizer_of(std::move(data));
}

inline constexpr std::string_view kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% elif enable_thinking is defined %}<think>\n{% endif %}{% endif %}";

inline RunnerLimits small_limits(int sequences) {
    RunnerLimits limits;
    limits.block_tokens = 16;
    limits.blocks_total = sequences * kContext / limits.block_tokens;
    limits.max_model_len = kContext;
    limits.step = {.rows = 128,
                   .seqs = sequences,
                   .logit_rows = sequences,
                   .blocks_per_seq = kContext / limits.block_tokens,
                   .vocabulary = kVocabulary};
    return limits;
}

inline std::shared_ptr<ServedModel> small_model(int sequences = 2) {
    auto compiled = chat::Template::compile(kChatMl);
    if (!compiled) throw std::runtime_error(chat::describe(compiled.error()));
    auto model = std::make_shared<ServedModel>(ServedModel{.name = "pony",
                                                           .aliases = {"little-horse"},
                                                           .tokenizer = byte_tokenizer(),
                                                           .chat_template = std::move(*compiled),
                                                           .limits = small_limits(sequences)});
    describe_template(*model, "qwen_xml");
    model->fingerprint = "q-00000000";
    return model;
}

/// Every sequence generates the script, then <|im_end|>. Steps can be held and let go.
class ScriptedRunner final : public StepRunner {
public:
    ScriptedRunner(int sequences, std::vector<TokenId> script)
        : limits_(small_limits(sequences)), script_(std::move(script)) {}

    const RunnerLimits& limits() const override { return limits_; }

    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override {
        {
            std::unique_lock lock(mutex_);
            ++steps_begun_;
            changed_.notify_all();
            changed_.wait(lock, [this] { return steps_allowed_ > 0; });
            if (steps_allowed_ != kUnlimited) --steps_allowed_;
            if (is_lost_) throw std::runtime_error("scripted device loss");
        }
        sampled_.clear();
        for (std::int32_t row = 0; row < step.logit_rows; ++row) {
            const auto seq = static_cast<std::size_t>(step.seq_of_row[static_cast<std::size_t>(
                step.logit_row[static_cast<std::size_t>(row)])]);
            sampled_.push_back(next_token(step, seq));
        }
        errors_.assign(sampled_.size(), 0);
        outputs_ = {.sampled = sampled_, .error = errors_, .logits = {}};
        return outputs_;
    }

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

    TokenId next_token(const kernels::StepDescriptor& step, std::size_t seq) {
        // A sequence is known by its first block; its first logits end its prompt.
        const std::int32_t block =
            step.block_table[seq * static_cast<std::size_t>(step.blocks_per_seq_max)];
        const std::int32_t length = step.kv_len[seq];
        auto [known, is_new] = prompt_length_.try_emplace(block, length);
        const bool is_first_chunk = step.kv_len_before[seq] == 0;
        if (is_first_chunk || length < known->second) known->second = length;
        const auto index = static_cast<std::size_t>(length - known->second);
        return index < script_.size() ? script_[index] : kImEnd;
    }

    RunnerLimits limits_;
    std::vector<TokenId> script_;
    std::map<std::int32_t, std::int32_t> prompt_length_;
    std::vector<std::int32_t> sampled_;
    std::vector<std::uint8_t> errors_;
    kernels::StepOutputs outputs_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t steps_allowed_ = kUnlimited, steps_begun_ = 0;
    bool is_lost_ = false;
};

/// The bytes of `text`; `<think>` and its kind become their tokens.
inline std::vector<TokenId> script_of(std::string_view text) {
    static const Tokenizer tokenizer = byte_tokenizer();
    return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

}  // namespace replica::server::testing
