// How parameter values of the XML-like format become JSON: types from the schema, the order in
// which they are tried, and how each is written.
#include "replica/chat/parse/argument_types.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "replica/chat/output_parser.h"

namespace replica::chat::parse {
namespace {

TypeSet types_of(const std::string& schema) {
    const Json parameters = Json::parse(
        R"({"type": "object", "$defs": {"tree": {"anyOf": [{"$ref": "#/$defs/tree"},
            {"type": "integer"}]}, "word": {"type": "string"}}, "properties": {"k": )" +
        schema + "}}");
    const Json tools = Json::array({{{"function", {{"name", "f"}, {"parameters", parameters}}}}});
    return ToolTypes(tools).types_of("f", "k");
}

std::string written(const std::string& schema, std::string_view value) {
    return write_value(value, types_of(schema)).json;
}

TEST(ArgumentTypesTest, WritesEachTypeInItsForm) {
    const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
        {R"("null")", " None ", "null"},
        {R"("null")", "NULL", "null"},
        {R"("boolean")", "TRUE", "true"},
        {R"("boolean")", "False\n", "false"},
        {R"("boolean")", "yes", R"("yes")"},
        {R"("integer")", " 42 ", "42"},
        {R"("integer")", "-0", "-0"},
        {R"("integer")", "123456789012345678901234567890", "123456789012345678901234567890"},
        {R"("integer")", "2.000", "2"},
        {R"("integer")", "2.5", R"("2.5")"},
        {R"("integer")", "02", R"("02")"},
        {R"("integer")", "2.", R"("2.")"},
        {R"("number")", "1.50", "1.50"},
        {R"("number")", "-1e5", "-1e5"},
        {R"("number")", "nan", R"("nan")"},
        {R"("number")", "1 2", R"("1 2")"},
        {R"("array")", "[1, True, \"a b\", None]", R"([1,true,"a b",null])"},
        {R"("array")", "{}", R"("{}")"},
        {R"("array")", "[1 2]", R"("[1 2]")"},
        {R"("object")", "{\"b\": 1, \"a\": {\"t\": \"True \\\" None\"}}",
         R"({"b":1,"a":{"t":"True \" None"}})"},
        {R"("object")", "{broken", R"("{broken")"},
        {R"("string")", " 42 ", R"(" 42 ")"},
        {R"("string")", "null", R"("null")"},
        {R"("strng")", "42", R"("42")"},
        {R"(["integer", "null"])", "none", "null"},
        {R"(["string", "integer"])", "7", "7"},
        {R"(["string", "null", "number"])", "7x", R"("7x")"},
    };
    for (const auto& [type, value, expected] : cases) {
        EXPECT_EQ(written(std::string(R"({"type": )") + type + "}", value), expected)
            << type << " " << value;
    }
}

TEST(ArgumentTypesTest, ANulEndsNoValue) {
    for (const auto& [type, text] : {std::pair(R"("number")", std::string("1\0 x", 4)),
                                     std::pair(R"("array")", std::string("[]\0 x", 5)),
                                     std::pair(R"("object")", std::string("{}\0", 3))}) {
        const std::string json = written(std::string(R"({"type": )") + type + "}", text);
        EXPECT_TRUE(json.starts_with('"') && Json::accept(json)) << json;
    }
}

TEST(ArgumentTypesTest, FindsTheTypeWhereverASchemaSaysIt) {
    EXPECT_EQ(written(R"({"$ref": "#/$defs/tree"})", "5"), "5");  // a cycle with a base case
    EXPECT_TRUE(types_of(R"({"$ref": "#/$defs/word"})").is_only_string());
    EXPECT_TRUE(types_of(R"({"$ref": "https://example.com/x"})").is_only_string());
    EXPECT_TRUE(types_of(R"({"$ref": "#/no/~2such"})").is_only_string());
    EXPECT_EQ(written(R"({"anyOf": [{"type": "boolean"}, {"type": "null"}]})", "none"), "null");
    EXPECT_EQ(written(R"({"oneOf": [{"type": "array"}, {"type": "string"}]})", "[ ]"), "[]");
    EXPECT_EQ(written(R"({"enum": [1, 2]})", "2"), "2");
    EXPECT_EQ(written(R"({"const": true})", "True"), "true");
    EXPECT_EQ(written(R"({"type": "integer", "nullable": true})", "null"), "null");
    for (const char* const schema : {"true", "\"text\"", "{}", "[]", "null", R"({"type": 5})"}) {
        EXPECT_TRUE(types_of(schema).is_only_string()) << schema;
    }
}

TEST(ArgumentTypesTest, TakesDeclarationsOfAnyShape) {
    const ToolTypes tools(Json::parse(
        R"([{"name": "bare"}, {"function": {"name": "f", "parameters": null}}, 5, {"function": {}},
            {"function": {"name": 7}}, {"function": {"name": "g", "parameters": {"properties": []}}}])"));
    EXPECT_TRUE(tools.is_declared("bare") && tools.is_declared("f") && tools.is_declared("g"));
    EXPECT_FALSE(tools.is_declared("7"));
    EXPECT_TRUE(tools.types_of("f", "any").is_only_string());
    EXPECT_TRUE(ToolTypes(Json("no array")).is_empty());
}

TEST(ArgumentTypesTest, EscapesOnlyWhatJsonMustEscape) {
    std::string out;
    append_escaped(out, "é\"\\/\b\f\n\r\t\x01\x7f<🦙");
    EXPECT_EQ(out, "é\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f<🦙");
}

TEST(ArgumentTypesTest, MakesIdsOfTwentyFourLettersAndDigits) {
    const std::string id = random_tool_call_id();
    EXPECT_EQ(id.size(), 29U);
    EXPECT_EQ(id.substr(0, 5), "call_");
    EXPECT_TRUE(std::all_of(id.begin() + 5, id.end(),
                            [](unsigned char c) { return std::isalnum(c) != 0; }));
    EXPECT_NE(id, random_tool_call_id());
}

}  // namespace
}  // namespace replica::chat::parse
