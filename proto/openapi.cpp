#include "proto/openapi.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "proto/error.h"
#include "proto/fields.h"
#include "proto/json.h"
#include "proto/route_table.h"

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

/// What the document says of a path besides its name.
struct PathWords {
    std::string_view path, summary;
    std::string_view request = {};  // a schema of this document; empty: any object
    std::string_view answer = "application/json";
};

constexpr auto kPathWords = std::to_array<PathWords>({
    {"/v1/chat/completions", "Generate a chat answer; with stream, server-sent events",
     "ChatRequest"},
    {"/v1/completions", "Complete text; with stream, server-sent events", "TextRequest"},
    {"/v1/models", "The models served"},
    {"/v1/models/{id}", "One model"},
    {"/tokenize", "Text or messages to token ids"},
    {"/detokenize", "Token ids to text"},
    {"/apply-template", "Messages to the prompt that the model would get"},
    {"/health", "Whether the process makes progress"},
    {"/ready", "Whether requests are admitted"},
    {"/info", "What is served, and how"},
    {"/props", "The few facts that clients of other servers look for"},
    {"/metrics", "Prometheus text", "", "text/plain"},
    {"/metrics/all", "Prometheus text of the router and of every replica", "", "text/plain"},
    {"/sd/prometheus", "Where a Prometheus server finds the replicas"},
    {"/openapi.json", "This document"},
});

Json operation_of(const RouteTable::Served& route) {
    const auto* words = std::ranges::find(kPathWords, route.pattern, &PathWords::path);
    const bool is_known = words != kPathWords.end();
    Json operation = Json::object();
    operation["summary"] = is_known ? std::string(words->summary) : std::string();
    if (const std::size_t brace = route.pattern.find('{'); brace != std::string_view::npos) {
        const std::string name(route.pattern.substr(brace + 1, route.pattern.size() - brace - 2));
        operation["parameters"] = Json::array({Json{
            {"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    }
    if (route.method == "POST") {
        const bool has_schema = is_known && !words->request.empty();
        const Json schema = has_schema ? reference(words->request) : Json{{"type", "object"}};
        operation["requestBody"] = {{"required", true},
                                    {"content", {{"application/json", {{"schema", schema}}}}}};
    }
    operation["responses"] = answers(is_known ? words->answer : "application/json");
    return operation;
}

/// Pages for people, and what only router and launcher ask.
bool is_of_api(std::string_view pattern) {
    return pattern != "/" && !pattern.starts_with("/dashboard") &&
           !pattern.starts_with("/internal/");
}

Json paths(const RouteTable& routes) {
    Json out = Json::object();
    for (const RouteTable::Served& route : routes.served()) {
        if (!is_of_api(route.pattern)) continue;
        std::string method(route.method);
        std::ranges::transform(method, method.begin(),
                               [](unsigned char c) { return std::tolower(c); });
        out[std::string(route.pattern)][method] = operation_of(route);
    }
    return out;
}

}  // namespace

std::string openapi_json(std::string_view version, const RouteTable& routes) {
    Json document = {{"openapi", "3.1.0"},
                     {"info", {{"title", "Quadriga"}, {"version", std::string(version)}}},
                     {"paths", paths(routes)}};
    document["components"]["schemas"] = {{"ChatRequest", request_schema(kChat, "messages")},
                                         {"TextRequest", request_schema(kCompletions, "prompt")},
                                         {"Error", error_schema()}};
    return json_text(document);
}

}  // namespace proto
