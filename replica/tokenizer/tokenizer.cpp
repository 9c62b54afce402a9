#include "replica/tokenizer/tokenizer.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>
#include <variant>

#include "replica/gguf/error.h"
#include "replica/tokenizer/bpe.h"
#include "replica/tokenizer/special_tokens.h"
#include "replica/tokenizer/spm.h"
#include "replica/tokenizer/stream_decoder.h"
#include "replica/tokenizer/utf8.h"
#include "replica/tokenizer/vocabulary.h"

namespace replica {
namespace {

/// The whole of `text` when it is UTF-8, else a copy in `repaired` with U+FFFD for each bad byte.
std::string_view valid_utf8(std::string_view text, std::string& repaired) {
    std::size_t position = 0;
    const auto next = [&] { return decode_utf8(text, position); };
    while (position < text.size()) {
        const Utf8Step step = next();
        if (step.status != Utf8Status::kWhole) break;
        position += step.length;
    }
    if (position == text.size()) return text;
    repaired.assign(text.substr(0, position));
    while (position < text.size()) {
        const Utf8Step step = next();
        if (step.status == Utf8Status::kWhole) {
            repaired.append(text.substr(position, step.length));
        } else {
            for (std::size_t i = 0; i < step.length; ++i) {
                append_utf8(kReplacementCharacter, repaired);
            }
        }
        position += step.length;
    }
    return repaired;
}

bool is_special(TokenType type) {
    return type == TokenType::kControl || type == TokenType::kUserDefined ||
           type == TokenType::kUnknown;
}

}  // namespace

class Tokenizer::Impl {
public:
    explicit Impl(Vocabulary v) : vocabulary(std::move(v)), special(special_candidates()) {
        used = vocabulary.size();
        while (used > 0 && vocabulary.type(used - 1) == TokenType::kUnused)
            --used;
    }

    std::vector<SpecialTokens::Candidate> special_candidates() const {
        std::vector<SpecialTokens::Candidate> candidates;
        for (TokenId id = 0; id < vocabulary.size(); ++id) {
            const std::string& text = vocabulary.text(id);
            const TokenType type = vocabulary.type(id);
            if (!is_special(type) || text.empty() || text.size() > kSpecialTextBytesMax) continue;
            candidates.push_back(
                {.text = text, .id = id, .matches_in_data = type == TokenType::kUserDefined});
        }
        return candidates;
    }

    void encode_fragment(std::string_view raw, std::vector<TokenId>& ids) const {
        if (raw.empty()) return;
        std::string repaired;
        const std::string_view fragment = valid_utf8(raw, repaired);
        if (const auto* bpe = std::get_if<Bpe>(&kind)) {
            bpe->encode(fragment, ids);
        } else if (const auto* spm = std::get_if<Spm>(&kind)) {
            spm->encode(fragment, {.prepend_space = add_space_prefix}, ids);
        }
    }

    std::string piece(TokenId id, bool render_special) const {
        const std::string& text = vocabulary.text(id);
        switch (vocabulary.type(id)) {
            case TokenType::kControl:
            case TokenType::kUnknown:
                return render_special ? text : std::string();
            case TokenType::kUserDefined:
                return text;
            case TokenType::kUnused:
                return {};
            default:
                break;
        }
        return std::holds_alternative<Spm>(kind) ? Spm::bytes_of(text, vocabulary.type(id))
                                                 : Bpe::bytes_of(text);
    }

    /// An id of the file, dropped with a warning when it is out of range.
    std::optional<TokenId> checked(std::string_view name, std::optional<std::uint64_t> id) {
        if (!id) return std::nullopt;
        if (*id >= static_cast<std::uint64_t>(vocabulary.size())) {
            warnings.push_back("tokenizer.ggml." + std::string(name) + " " + std::to_string(*id) +
                               " is outside the vocabulary and ignored");
            return std::nullopt;
        }
        return static_cast<TokenId>(*id);
    }

    Vocabulary vocabulary;
    SpecialTokens special;
    std::variant<std::monostate, Bpe, Spm> kind;
    std::int32_t used = 0;
    std::optional<TokenId> bos, eos, unknown;
    bool add_bos = false, add_eos = false, add_space_prefix = false;
    std::vector<TokenId> end_tokens;
    std::vector<std::string> warnings;
};

namespace {

tl::unexpected<TokenizerError> refused(std::string key, std::string message) {
    return tl::make_unexpected(TokenizerError{std::move(key), std::move(message)});
}

tl::expected<PreTokenizer, TokenizerError> choose_pre(const TokenizerData& data,
                                                      const TokenizerOptions& options,
                                                      std::vector<std::string>& warnings) {
    std::string name = options.pre_override;
    if (name.empty()) name = data.pre.value_or("");
    if (name.empty()) {
        warnings.push_back("tokenizer.ggml.pre is missing; the default pre-tokeniser is used");
        return PreTokenizer::kDefault;
    }
    if (const auto kind = pre_tokenizer_by_name(name)) return *kind;
    return refused("tokenizer.ggml.pre", "the pre-tokeniser '" + printable(name) +
                                             "' is not known; wrong tokens would be silent");
}

}  // namespace

tl::expected<Tokenizer, TokenizerError> Tokenizer::from_data(TokenizerData data,
                                                             const TokenizerOptions& options) {
    const bool is_bpe = data.model == "gpt2", is_spm = data.model == "llama";
    if (!is_bpe && !is_spm) {
        return refused("tokenizer.ggml.model",
                       data.model.empty() ? "the file names no tokenizer model"
                                          : "the tokenizer model '" + printable(data.model) +
                                                "' is not supported; known are gpt2 and llama");
    }
    std::vector<std::string> warnings;
    auto vocabulary = Vocabulary::from_data(data, warnings);
    if (!vocabulary) return tl::make_unexpected(vocabulary.error());
    auto impl = std::make_unique<Impl>(std::move(*vocabulary));
    impl->warnings = std::move(warnings);
    // SPM files without these keys mean 1, 2, 0; BPE files without them have no such token.
    const auto or_default = [&](std::optional<std::uint64_t> id, std::uint64_t spm_default) {
        return id || !is_spm ? id : std::optional<std::uint64_t>(spm_default);
    };
    impl->bos = impl->checked("bos_token_id", or_default(data.bos_id, 1));
    impl->eos = impl->checked("eos_token_id", or_default(data.eos_id, 2));
    impl->unknown = impl->checked("unknown_token_id", or_default(data.unknown_id, 0));
    // Some files name the end token here. Text that has no token is dropped rather than made one.
    if (impl->unknown && impl->vocabulary.type(*impl->unknown) == TokenType::kControl) {
        impl->unknown.reset();
    }
    bool add_bos_default = is_spm;
    if (is_bpe) {
        const auto pre = choose_pre(data, options, impl->warnings);
        if (!pre) return tl::make_unexpected(pre.error());
        add_bos_default = is_llama3_family(*pre);
        auto bpe = Bpe::from_merges(
            impl->vocabulary, std::move(data.merges),
            {.pre = *pre, .ignore_merges = is_llama3_family(*pre), .unknown_id = impl->unknown});
        if (!bpe) return tl::make_unexpected(bpe.error());
        impl->kind = std::move(*bpe);
    } else {
        const bool has_nan = std::any_of(data.scores.begin(), data.scores.end(),
                                         [](float score) { return std::isnan(score); });
        if (data.scores.empty() || has_nan) {
            return refused("tokenizer.ggml.scores", data.scores.empty()
                                                        ? "an SPM vocabulary needs scores"
                                                        : "a score is not a number");
        }
        impl->add_space_prefix = data.add_space_prefix.value_or(true);
        impl->kind.emplace<Spm>(impl->vocabulary, std::move(data.scores), impl->unknown);
    }
    impl->add_bos = data.add_bos.value_or(add_bos_default) && impl->bos;
    impl->add_eos = data.add_eos.value_or(false) && impl->eos;
    for (const auto& id :
         {impl->eos, impl->checked("eot_token_id", data.eot_id),
          impl->checked("eom_token_id", data.eom_id), impl->vocabulary.find("<|im_end|>"),
          impl->vocabulary.find("<|endoftext|>")}) {
        if (id) impl->end_tokens.push_back(*id);
    }
    std::sort(impl->end_tokens.begin(), impl->end_tokens.end());
    const auto repeated = std::unique(impl->end_tokens.begin(), impl->end_tokens.end());
    impl->end_tokens.erase(repeated, impl->end_tokens.end());
    return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    return encode(text, {}, options);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, std::span<const ByteSpan> data_spans,
                                       const EncodeOptions& options) const {
    assert(std::is_sorted(data_spans.begin(), data_spans.end(),
                          [](const ByteSpan& a, const ByteSpan& b) { return a.end < b.end; }) &&
           "data spans are in text order");
    std::vector<TokenId> ids;
    if (options.add_special && impl_->add_bos) ids.push_back(*impl_->bos);
    std::size_t position = 0;
    for (const SpecialMatch& match : impl_->special.find(text, data_spans, options.parse_special)) {
        impl_->encode_fragment(text.substr(position, match.begin - position), ids);
        ids.push_back(match.id);
        position = match.end;
    }
    impl_->encode_fragment(text.substr(position), ids);
    if (options.add_special && impl_->add_eos) ids.push_back(*impl_->eos);
    return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
    std::string text;
    StreamDecoder decoder;
    bool is_first = impl_->add_space_prefix;
    for (const TokenId id : ids) {
        std::string bytes = impl_->piece(id, options.render_special);
        // SPM put one space in front of the text; it is not part of it.
        if (is_first && !bytes.empty()) {
            if (bytes.front() == ' ') bytes.erase(0, 1);
            is_first = false;
        }
        decoder.feed(bytes, text);
    }
    decoder.finish(text);
    return text;
}

std::string Tokenizer::piece(TokenId id, const DecodeOptions& options) const {
    return impl_->piece(id, options.render_special);
}

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
    return impl_->vocabulary.find(text);
}

TokenType Tokenizer::type(TokenId id) const {
    return impl_->vocabulary.type(id);
}
std::int32_t Tokenizer::vocabulary_size() const {
    return impl_->vocabulary.size();
}
std::int32_t Tokenizer::vocabulary_used() const {
    return impl_->used;
}
std::optional<TokenId> Tokenizer::bos() const {
    return impl_->bos;
}
std::optional<TokenId> Tokenizer::eos() const {
    return impl_->eos;
}

std::string_view Tokenizer::bos_text() const {
    return impl_->bos ? std::string_view(impl_->vocabulary.text(*impl_->bos)) : "";
}

std::string_view Tokenizer::eos_text() const {
    return impl_->eos ? std::string_view(impl_->vocabulary.text(*impl_->eos)) : "";
}

const std::vector<TokenId>& Tokenizer::end_tokens() const {
    return impl_->end_tokens;
}
const std::vector<std::string>& Tokenizer::warnings() const {
    return impl_->warnings;
}

}  // namespace replica
