// The key/value part of a synthetic model: hyperparameters, and a tokenizer that can say anything.
//
// The first 256 tokens are the bytes; the rest of the vocabulary is made-up words that no merge
// leads to, so text is encoded byte by byte while any sampled id has a text. The special tokens
// stand where the public vocabulary has them.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/gguf/tool/synth.h"

namespace replica {
namespace {

enum TokenType : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

constexpr std::int64_t kFirstSpecial = 248044;

struct SpecialToken {
    std::int64_t offset;  // from the first special one
    std::string_view text;
    TokenType type;
};

constexpr std::array kSpecialTokens = {
    SpecialToken{0, "<|endoftext|>", kControl},
    SpecialToken{1, "<|im_start|>", kControl},
    SpecialToken{2, "<|im_end|>", kControl},
    SpecialToken{9, "<|vision_start|>", kControl},
    SpecialToken{10, "<|vision_end|>", kControl},
    SpecialToken{11, "<|vision_pad|>", kControl},
    SpecialToken{12, "<|image_pad|>", kControl},
    SpecialToken{13, "<|video_pad|>", kControl},
    SpecialToken{14, "<tool_call>", kUserDefined},
    SpecialToken{15, "</tool_call>", kUserDefined},
    SpecialToken{16, "<|fim_prefix|>", kControl},
    SpecialToken{17, "<|fim_middle|>", kControl},
    SpecialToken{18, "<|fim_suffix|>", kControl},
    SpecialToken{19, "<|fim_pad|>", kControl},
    SpecialToken{20, "<|repo_name|>", kControl},
    SpecialToken{21, "<|file_sep|>", kControl},
    SpecialToken{22, "<tool_response>", kUserDefined},
    SpecialToken{23, "</tool_response>", kUserDefined},
    SpecialToken{24, "<think>", kUserDefined},
    SpecialToken{25, "</think>", kUserDefined},
    SpecialToken{32, "<|audio_pad|>", kControl},
};
constexpr std::int64_t kSpecialRange = 33;  // ids that the special tokens span

constexpr std::string_view kChatTemplate =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

std::string utf8(std::uint32_t code_point) {
    if (code_point < 0x80) return {static_cast<char>(code_point)};
    return {static_cast<char>(0xc0U | (code_point >> 6)),
            static_cast<char>(0x80U | (code_point & 0x3fU))};
}

/// The byte-mapped alphabet of byte-level BPE: printable bytes stand for themselves, the others for
/// U+0100 and up.
std::vector<std::string> byte_tokens() {
    std::vector<std::string> printable;
    std::vector<std::string> mapped;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const bool is_printable =
            (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        if (is_printable) {
            printable.push_back(utf8(byte));
        } else {
            mapped.push_back(utf8(0x100 + static_cast<std::uint32_t>(mapped.size())));
        }
    }
    printable.insert(printable.end(), mapped.begin(), mapped.end());
    return printable;
}

/// " bacadu": a distinct pronounceable word for every index, with a leading space.
std::string word(std::int64_t index) {
    static constexpr std::string_view kConsonants = "bdfgklmnprstvz";
    static constexpr std::string_view kVowels = "aeiou";
    constexpr std::int64_t kSyllables = 14 * 5;
    std::string text = utf8(0x120);  // a space
    for (index += kSyllables;; index /= kSyllables) {
        const auto syllable = static_cast<std::size_t>(index % kSyllables);
        text += kConsonants[syllable / 5];
        text += kVowels[syllable % 5];
        if (index < kSyllables) return text;
    }
}

void set_tokenizer(std::int64_t vocabulary, GgufKeyValues& out) {
    std::vector<std::string> tokens = byte_tokens();
    std::vector<std::int32_t> types(tokens.size(), kNormal);
    // Small test vocabularies have the special tokens at their end.
    const std::int64_t first_special =
        vocabulary >= kFirstSpecial + kSpecialRange ? kFirstSpecial : vocabulary - kSpecialRange;
    for (auto id = static_cast<std::int64_t>(tokens.size()); id < vocabulary; ++id) {
        const bool is_word = id < first_special;
        tokens.push_back(is_word ? word(id) : "[PAD" + std::to_string(id) + "]");
        types.push_back(is_word ? kNormal : kUnused);
    }
    for (const SpecialToken& special : kSpecialTokens) {
        const auto id = static_cast<std::size_t>(first_special + special.offset);
        tokens[id] = special.text;
        types[id] = special.type;
    }
    out.set_string("tokenizer.ggml.model", "gpt2");
    out.set_string("tokenizer.ggml.pre", "qwen35");
    out.set_strings("tokenizer.ggml.tokens", tokens);
    out.set_i32s("tokenizer.ggml.token_type", types);
    out.set_strings("tokenizer.ggml.merges", {});
    out.set_u32("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(first_special + 2));
    out.set_u32("tokenizer.ggml.padding_token_id", static_cast<std::uint32_t>(first_special));
    out.set_bool("tokenizer.ggml.add_bos_token", false);
    out.set_string("tokenizer.chat_template", kChatTemplate);
}

}  // namespace

GgufKeyValues synth_metadata(const SynthJob& job) {
    const Qwen35Shape& shape = job.shape;
    GgufKeyValues out;
    out.set_string("general.architecture", "qwen35");
    out.set_string("general.name", job.name);
    out.set_u32("general.file_type", job.recipe->file_type);
    out.set_u32("general.quantization_version", 2);
    const auto set = [&](const char* key, std::int64_t value) {
        out.set_u32(std::string("qwen35.") + key, static_cast<std::uint32_t>(value));
    };
    set("block_count", shape.layers + shape.mtp_blocks);
    set("nextn_predict_layers", shape.mtp_blocks);
    set("context_length", 262144);
    set("embedding_length", shape.width);
    set("feed_forward_length", shape.ffn_width);
    set("attention.head_count", shape.heads);
    set("attention.head_count_kv", shape.kv_heads);
    set("attention.key_length", shape.head_size);
    set("attention.value_length", shape.head_size);
    out.set_f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6F);
    set("rope.dimension_count", 64);
    out.set_i32s("qwen35.rope.dimension_sections", std::array<std::int32_t, 4>{11, 11, 10, 0});
    out.set_f32("qwen35.rope.freq_base", 1e7F);
    set("full_attention_interval", shape.attention_interval);
    set("ssm.conv_kernel", shape.conv_kernel);
    set("ssm.state_size", shape.state_size);
    set("ssm.group_count", shape.key_heads);
    set("ssm.time_step_rank", shape.value_heads);
    set("ssm.inner_size", shape.value_width());
    set_tokenizer(shape.vocabulary, out);
    return out;
}

}  // namespace replica
