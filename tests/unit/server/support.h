// A tiny model without weights: byte tokens, a ChatML template, limits for a scripted runner.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "replica/engine/engine.h"
#include "replica/engine/step_runner.h"
#include "replica/server/app_state.h"
#include "replica/server/served_model.h"
#include "tests/unit/server/scripted_runner.h"
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

/// The bytes of `text`; `<think>` and its kind become their tokens.
inline std::vector<TokenId> script_of(std::string_view text) {
    static const Tokenizer tokenizer = byte_tokenizer();
    return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

inline ScriptedRunner::Script said(std::string_view text) {
    return {.tokens = script_of(text), .end_token = kImEnd};
}

}  // namespace replica::server::testing
