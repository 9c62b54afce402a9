// A model file's own template and tokenizer: from a golden chat to prompt text and ids, as the
// server does.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <tl/expected.hpp>

#include "replica/chat/template.h"
#include "replica/gguf/reader.h"
#include "replica/tokenizer/tokenizer.h"

namespace golden {

struct ChatPrompt {
    std::string text;
    std::vector<std::int32_t> tokens;
};

class ChatModel {
public:
    static tl::expected<ChatModel, std::string> from_gguf(const replica::GgufFile& file);
    /// `item` has messages, and optionally tools and enable_thinking.
    tl::expected<ChatPrompt, std::string> render(const nlohmann::ordered_json& item) const;
    const replica::Tokenizer& tokenizer() const { return tokenizer_; }

private:
    ChatModel(replica::Tokenizer tokenizer, replica::chat::Template chat_template)
        : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {}
    replica::Tokenizer tokenizer_;
    replica::chat::Template template_;
};

/// The tokenizer of a model file.
tl::expected<replica::Tokenizer, std::string> load_tokenizer(const replica::GgufFile& file);

}  // namespace golden
