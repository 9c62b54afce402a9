#include "replica/tokenizer/gguf_tokenizer.h"

namespace replica {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

/// Reads keys that may be absent and keeps the first error.
class Reader {
public:
    explicit Reader(const GgufMetadata& metadata) : metadata_(metadata) {}

    template <class Value, class Get>
    void read(std::string_view name, Value& into, Get&& get) {
        const std::string key = std::string(kPrefix).append(name);
        if (error_ || !metadata_.contains(key)) return;
        const auto value = get(metadata_, key);
        if (value) {
            into = convert<Value>(*value);
        } else {
            error_ = TokenizerError{key, value.error().text()};
        }
    }

    std::optional<TokenizerError> error() const { return error_; }

private:
    template <class Value, class From>
    static Value convert(const From& from) {
        if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            return {from.begin(), from.end()};
        } else if constexpr (std::is_same_v<From, std::string_view>) {
            return std::string(from);
        } else {
            return from;
        }
    }

    const GgufMetadata& metadata_;
    std::optional<TokenizerError> error_;
};

}  // namespace

tl::expected<TokenizerData, TokenizerError> load_tokenizer_data(const GgufMetadata& metadata) {
    const auto text = [](const GgufMetadata& m, const std::string& k) { return m.get_string(k); };
    const auto texts = [](const GgufMetadata& m, const std::string& k) { return m.get_strings(k); };
    const auto id = [](const GgufMetadata& m, const std::string& k) { return m.get_u64(k); };
    const auto flag = [](const GgufMetadata& m, const std::string& k) { return m.get_bool(k); };
    TokenizerData data;
    Reader reader(metadata);
    reader.read("model", data.model, text);
    reader.read("pre", data.pre, text);
    reader.read("tokens", data.tokens, texts);
    reader.read("token_type", data.types,
                [](const GgufMetadata& m, const std::string& k) { return m.get_i32s(k); });
    reader.read("scores", data.scores,
                [](const GgufMetadata& m, const std::string& k) { return m.get_f32s(k); });
    reader.read("merges", data.merges, texts);
    reader.read("bos_token_id", data.bos_id, id);
    reader.read("eos_token_id", data.eos_id, id);
    reader.read("eot_token_id", data.eot_id, id);
    reader.read("eom_token_id", data.eom_id, id);
    reader.read("unknown_token_id", data.unknown_id, id);
    reader.read("padding_token_id", data.padding_id, id);
    reader.read("add_bos_token", data.add_bos, flag);
    reader.read("add_eos_token", data.add_eos, flag);
    reader.read("add_space_prefix", data.add_space_prefix, flag);
    if (const auto error = reader.error()) return tl::make_unexpected(*error);
    return data;
}

}  // namespace replica
