#include "tests/support/golden/chat_prompt.h"

#include <utility>

#include "replica/chat/messages.h"
#include "replica/tokenizer/gguf_tokenizer.h"

namespace golden {

tl::expected<replica::Tokenizer, std::string> load_tokenizer(const replica::GgufFile& file) {
    auto data = replica::load_tokenizer_data(file.metadata());
    if (!data) return tl::unexpected(data.error().key + ": " + data.error().message);
    auto tokenizer = replica::Tokenizer::from_data(*std::move(data));
    if (!tokenizer) return tl::unexpected(tokenizer.error().key + ": " + tokenizer.error().message);
    return *std::move(tokenizer);
}

tl::expected<ChatModel, std::string> ChatModel::from_gguf(const replica::GgufFile& file) {
    const auto text = file.metadata().get_string("tokenizer.chat_template");
    if (!text) return tl::unexpected(text.error().text());
    auto chat_template = replica::chat::Template::compile(*text);
    if (!chat_template) return tl::unexpected(replica::chat::describe(chat_template.error()));
    auto tokenizer = load_tokenizer(file);
    if (!tokenizer) return tl::unexpected(tokenizer.error());
    return ChatModel(*std::move(tokenizer), *std::move(chat_template));
}

tl::expected<ChatPrompt, std::string> ChatModel::render(const nlohmann::ordered_json& item) const {
    replica::chat::ChatInput input;
    input.messages = item.at("messages");
    if (item.contains("tools") && !item.at("tools").is_null()) input.tools = item.at("tools");
    if (item.contains("enable_thinking")) {
        input.variables["enable_thinking"] = item.at("enable_thinking");
    }
    input.bos_token = tokenizer_.bos_text();
    input.eos_token = tokenizer_.eos_text();
    const auto rendered = replica::chat::render_chat(template_, input);
    if (!rendered) return tl::unexpected(rendered.error().message);
    std::vector<replica::ByteSpan> spans;
    for (const auto& span : rendered->data_spans)
        spans.push_back({span.begin, span.end});
    return ChatPrompt{rendered->text, tokenizer_.encode(rendered->text, spans, {})};
}

}  // namespace golden
