#include "proto/openapi.h"

#include <limits>

#include "proto/error.h"
#include "proto/fields.h"
#include "proto/json.h"

namespace proto {
namespace {

Json integer_schema(const FieldSpec& spec) {
    Json schema = {{"type", "integer"}, {"minimum", spec.integer_min}};
    if (spec.integer_max != std::numeric_limits<std::int64_t>::max()) {
        schema["maximum"] = spec.integer_max;
    }
    return schema;
}

Json kind_schema(const FieldSpec& spec) {
    switch (spec.kind) {
        case FieldKind::kInteger:
            return integer_schema(spec);
        case FieldKind::kNumber:
            return {{"type", "number"}, {"minimum", spec.number_min}, {"maximum", spec.number_max}};
        case FieldKind::kBool:
            return {{"type", "boolean"}};
        case FieldKind::kString: {
            Json schema = {{"type", "string"}};
            if (spec.size_max > 0) schema["maxLength"] = spec.size_max;
            return schema;
        }
        case FieldKind::kEnum: {
            Json schema = {{"type", "string"}};
            for (const std::string_view value : spec.values)
                schema["enum"].push_back(value);
            return schema;
        }
        case FieldKind::kObject: {
            Json schema = {{"type", "object"}};
            if (spec.size_max > 0) schema["maxProperties"] = spec.size_max;
            return schema;
        }
        case FieldKind::kArray: {
            Json schema = {{"type", "array"}};
            if (spec.size_max > 0) schema["maxItems"] = spec.size_max;
            return schema;
        }
        case FieldKind::kStringOrArray:
            return {{"type", Json::array({"string", "array"})}};
        case FieldKind::kStringOrObject:
            return {{"type", Json::array({"string", "object"})}};
        case FieldKind::kAny:
            return Json::object();
    }
    return Json::object();
}

/// Null stands for an absent field everywhere; saying so in each type would only blur the schema.
Json request_schema(FieldEndpoint endpoint, std::string_view required) {
    Json properties = Json::object();
    std::string refused;
    for (const FieldSpec& spec : request_fields()) {
        if ((spec.endpoints & endpoint) == 0) continue;
        if (spec.mark == FieldMark::kRefused || spec.mark == FieldMark::kUnoffered) {
            refused += (refused.empty() ? "" : ", ") + std::string(spec.name);
            continue;
        }
        Json schema = kind_schema(spec);
        std::string note(spec.note);
        if (spec.mark == FieldMark::kIgnored) note = "Accepted and ignored: " + note;
        schema["description"] = std::move(note);
        properties[std::string(spec.name)] = std::move(schema);
    }
    return {{"type", "object"},
            {"description",
             "Unknown fields are accepted and named in x-quadriga-warning; null "
             "means absent. Refused with 400: " +
                 refused + "."},
            {"required", Json::array({std::string(required)})},
            {"properties", std::move(properties)},
            {"additionalProperties", true}};
}

Json error_schema() {
    Json codes = Json::array();
    for (int i = 0; i < kErrorCodeCount; ++i) {
        codes.push_back(error_info(static_cast<ErrorCode>(i)).name);
    }
    Json members = {{"message", {{"type", "string"}}},
                    {"type", {{"type", "string"}}},
                    {"param", {{"type", Json::array({"string", "null"})}}},
                    {"code", {{"type", "string"}, {"enum", std::move(codes)}}}};
    Json error = {{"type", "object"},
                  {"required", Json::array({"message", "type", "param", "code"})},
                  {"properties", std::move(members)},
                  {"additionalProperties", false}};
    return {{"type", "object"},
            {"required", Json::array({"error"})},
            {"properties", {{"error", std::move(error)}}}};
}

Json reference(std::string_view name) {
    return {{"$ref", "#/components/schemas/" + std::string(name)}};
}

Json answers(std::string_view content_type) {
    Json content = Json::object();
    content[std::string(content_type)] = {{"schema", Json::object()}};
    Json error = {{"description", "The error body"},
                  {"content", {{"application/json", {{"schema", reference("Error")}}}}}};
    return {{"200", {{"description", "OK"}, {"content", std::move(content)}}},
            {"default", std::move(error)}};
}

Json get_operation(std::string_view summary, std::string_view content_type = "application/json") {
    return {{"get", {{"summary", std::string(summary)}, {"responses", answers(content_type)}}}};
}

Json post_operation(std::string_view summary, const Json& schema) {
    Json body = {{"required", true}, {"content", {{"application/json", {{"schema", schema}}}}}};
    return {{"post",
             {{"summary", std::string(summary)},
              {"requestBody", std::move(body)},
              {"responses", answers("application/json")}}}};
}

Json model_operation() {
    Json operation = get_operation("One model");
    operation["get"]["parameters"] = Json::array({Json{
        {"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    return operation;
}

Json paths() {
    Json out = Json::object();
    out["/v1/chat/completions"] = post_operation(
        "Generate a chat answer; with stream, server-sent events", reference("ChatRequest"));
    out["/v1/completions"] =
        post_operation("Complete text; with stream, server-sent events", reference("TextRequest"));
    out["/v1/models"] = get_operation("The models served");
    out["/v1/models/{id}"] = model_operation();
    out["/tokenize"] = post_operation("Text to token ids", Json{{"type", "object"}});
    out["/detokenize"] = post_operation("Token ids to text", Json{{"type", "object"}});
    out["/health"] = get_operation("Whether the process makes progress");
    out["/ready"] = get_operation("Whether requests are admitted");
    out["/info"] = get_operation("What is served, and how");
    out["/metrics"] = get_operation("Prometheus text", "text/plain");
    return out;
}

}  // namespace

std::string openapi_json(std::string_view version) {
    Json document = {{"openapi", "3.1.0"},
                     {"info", {{"title", "Quadriga"}, {"version", std::string(version)}}},
                     {"paths", paths()}};
    document["components"]["schemas"] = {{"ChatRequest", request_schema(kChat, "messages")},
                                         {"TextRequest", request_schema(kCompletions, "prompt")},
                                         {"Error", error_schema()}};
    return json_text(document);
}

}  // namespace proto
