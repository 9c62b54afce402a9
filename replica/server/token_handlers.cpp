#include "proto/json.h"
#include "proto/json_reader.h"
#include "proto/utf8.h"
#include "replica/server/handlers.h"
#include "replica/server/prepare.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;
using proto::ErrorCode;
using proto::fail;
using proto::Json;

using Answer = proto::Result<std::string>;
using Work = Answer (*)(const ServedModel&, const std::string& body);

proto::Result<bool> bool_field(const Json& object, const char* name, bool absent) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return absent;
    if (!found->is_boolean()) {
        return fail(ErrorCode::kInvalidType, std::string(name) + " must be a bool.", name);
    }
    return found->get<bool>();
}

/// `content`, or `prompt` by its other name.
proto::Result<std::string> text_field(const Json& object) {
    for (const char* name : {"content", "prompt"}) {
        const auto found = object.find(name);
        if (found == object.end() || found->is_null()) continue;
        if (!found->is_string()) {
            return fail(ErrorCode::kInvalidType, std::string(name) + " must be a string.", name);
        }
        return found->get<std::string>();
    }
    return fail(ErrorCode::kMissingRequiredParameter, "Give content (or prompt), or messages.",
                "content");
}

Json piece_json(const ServedModel& model, TokenId id) {
    const std::string bytes = model.tokenizer.piece(id, {.render_special = true});
    Json entry;
    entry["id"] = id;
    if (proto::find_broken_utf8(bytes) == std::string_view::npos) {
        entry["piece"] = bytes;
        return entry;
    }
    Json values = Json::array();
    for (const char byte : bytes)
        values.push_back(static_cast<unsigned char>(byte));
    entry["piece"] = std::move(values);
    return entry;
}

std::string tokens_json(const ServedModel& model, const std::vector<TokenId>& tokens,
                        bool with_pieces) {
    Json answer;
    answer["tokens"] = tokens;
    answer["count"] = tokens.size();
    answer["max_model_len"] = model.max_model_len();
    if (with_pieces) {
        Json pieces = Json::array();
        for (const TokenId id : tokens)
            pieces.push_back(piece_json(model, id));
        answer["pieces"] = std::move(pieces);
    }
    return proto::json_text(answer);
}

proto::Result<RenderedChat> rendered_chat(const ServedModel& model, const std::string& body) {
    const auto request = proto::parse_chat_request(body, request_limits(model));
    if (!request) return tl::make_unexpected(request.error());
    if (!model.answers_to(request->model)) {
        return tl::make_unexpected(model_not_found(model, request->model));
    }
    return render_prompt(model, *request);
}

Answer tokenize(const ServedModel& model, const std::string& body) {
    const auto object = proto::read_json_object(body);
    if (!object) return tl::make_unexpected(object.error());
    const auto with_pieces = bool_field(*object, "with_pieces", false);
    if (!with_pieces) return tl::make_unexpected(with_pieces.error());
    if (object->contains("messages")) {
        const auto rendered = rendered_chat(model, body);
        if (!rendered) return tl::make_unexpected(rendered.error());
        return tokens_json(model, rendered->tokens, *with_pieces);
    }
    const auto add_special = bool_field(*object, "add_special", false);
    if (!add_special) return tl::make_unexpected(add_special.error());
    const auto parse_special = bool_field(*object, "parse_special", true);
    if (!parse_special) return tl::make_unexpected(parse_special.error());
    const auto text = text_field(*object);
    if (!text) return tl::make_unexpected(text.error());
    const auto tokens = model.tokenizer.encode(
        *text, {.add_special = *add_special, .parse_special = *parse_special});
    return tokens_json(model, tokens, *with_pieces);
}

Answer detokenize(const ServedModel& model, const std::string& body) {
    const auto object = proto::read_json_object(body);
    if (!object) return tl::make_unexpected(object.error());
    const auto found = object->find("tokens");
    if (found == object->end() || found->is_null()) {
        return fail(ErrorCode::kMissingRequiredParameter, "tokens is missing.", "tokens");
    }
    if (!found->is_array()) {
        return fail(ErrorCode::kInvalidType, "tokens must be an array of ids.", "tokens");
    }
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < found->size(); ++i) {
        const Json& value = (*found)[i];
        const std::string param = "tokens[" + std::to_string(i) + "]";
        if (!value.is_number_integer()) {
            return fail(ErrorCode::kInvalidType, param + " must be an integer.", param);
        }
        const bool is_known =
            value.is_number_unsigned()
                ? value.get<std::uint64_t>() <
                      static_cast<std::uint64_t>(model.tokenizer.vocabulary_size())
                : value.get<std::int64_t>() >= 0 &&
                      value.get<std::int64_t>() < model.tokenizer.vocabulary_size();
        if (!is_known) {
            return fail(ErrorCode::kInvalidValue, param + " is outside the vocabulary.", param);
        }
        tokens.push_back(value.get<TokenId>());
    }
    Json answer;
    answer["content"] = model.tokenizer.decode(tokens, {.render_special = true});
    return proto::json_text(answer);
}

Answer apply_template(const ServedModel& model, const std::string& body) {
    const auto rendered = rendered_chat(model, body);
    if (!rendered) return tl::make_unexpected(rendered.error());
    Json spans = Json::array();
    for (const ByteSpan& span : rendered->data_spans)
        spans.push_back({span.begin, span.end});
    Json answer;
    answer["prompt"] = rendered->text;
    answer["data_spans"] = std::move(spans);
    return proto::json_text(answer);
}

asio::awaitable<void> answer(AppState& state, proto::HttpExchange& exchange, Work work) {
    if (!state.serving) {
        co_await exchange.send(proto::error_response(*state.lifecycle.refusal(state.is_wedged)));
        co_return;
    }
    auto handle = [work, model = state.serving->model, body = std::move(exchange.request().body)] {
        return work(*model, body);
    };
    auto result = co_await on_worker(state, std::move(handle));
    // Named: GCC 12 evaluates both arms of a conditional inside a co_await expression.
    proto::HttpResponse response =
        result ? proto::json_response(std::move(*result)) : proto::error_response(result.error());
    co_await exchange.send(std::move(response));
}

}  // namespace

void add_token_routes(AppState& state, proto::RouteTable& routes) {
    const auto add = [&](const char* path, Work work) {
        routes.add("POST", path, [&state, work](proto::HttpExchange& exchange, std::string) {
            return answer(state, exchange, work);
        });
    };
    add("/tokenize", tokenize);
    add("/detokenize", detokenize);
    add("/apply-template", apply_template);
}

}  // namespace replica::server
