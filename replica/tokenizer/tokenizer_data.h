// What a model file says about its tokenizer, as plain values; made by load_tokenizer_data from
// GGUF metadata or by hand in tests. Unchecked: Tokenizer::from_data validates it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace replica {

using TokenId = std::int32_t;

/// `tokenizer.ggml.token_type`; the numbers are the file format's.
enum class TokenType : std::int32_t {
    kUndefined = 0,
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,      // has a meaning for the model; never shown, never made from request text
    kUserDefined = 4,  // a tag such as <think>: recognised in any text and shown
    kUnused = 5,       // a hole that pads the vocabulary
    kByte = 6,         // SPM: the byte `<0xHH>`
};

/// Why a tokenizer cannot be built: one sentence, and the metadata key it is about.
struct TokenizerError {
    std::string key;
    std::string message;
};

/// Optional fields are absent in the file; what stands in for them depends on the model kind.
struct TokenizerData {
    std::string model;               // "gpt2" (byte-level BPE), "llama" (SPM), "none"
    std::optional<std::string> pre;  // pre-tokeniser name, BPE only
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;  // empty, or one per token
    std::vector<float> scores;        // empty, or one per token; SPM needs them
    std::vector<std::string> merges;  // "left right", index = rank; BPE needs them
    std::optional<std::uint64_t> bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
    std::optional<bool> add_bos, add_eos, add_space_prefix;
};

}  // namespace replica
