// Strict JSON: what is read, what is refused and with which code and offset, and that hostile depth
// or size costs neither stack nor memory.
#include "proto/json_reader.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

namespace proto_test {
namespace {

using proto::ErrorCode;
using proto::Json;
using proto::read_json;
using testing::HasSubstr;

ErrorCode code_of(std::string_view text, const proto::JsonLimits& limits = {}) {
    const proto::Result<Json> result = read_json(text, limits);
    EXPECT_FALSE(result.has_value()) << text.substr(0, 60);
    return result ? ErrorCode::kInternalError : result.error().code;
}
std::string message_of(std::string_view text) {
    const proto::Result<Json> result = read_json(text);
    return result ? "accepted" : result.error().message;
}

TEST(JsonReaderTest, AnIntegerBeyond64BitsIsRefusedWithTheNameOfItsField) {
    for (const char* text : {R"({"a":1,"seed":99999999999999999999999})",
                             R"({"a":1,"seed":{"deep":[-99999999999999999999999]}})"}) {
        const auto value = read_json(text);
        ASSERT_FALSE(value);
        EXPECT_EQ(value.error().code, ErrorCode::kInvalidValue);
        EXPECT_EQ(value.error().param, "seed");
    }
}

TEST(JsonReaderTest, ReadsEveryKindOfValueAndKeepsKeyOrder) {
    const std::string text =
        R"( {"z":[1,-2,3.5,1e3,true,false,null],"a":{"b":"c\n\u00e9\ud83d\ude00\/"},"e":{},"f":[]} )";
    const proto::Result<Json> result = read_json(text);
    ASSERT_TRUE(result);
    EXPECT_EQ(
        result->dump(),
        "{\"z\":[1,-2,3.5,1000.0,true,false,null],\"a\":{\"b\":\"c\\n\xC3\xA9\xF0\x9F\x98\x80/\"},"
        "\"e\":{},\"f\":[]}");
    EXPECT_TRUE((*result)["z"][0].is_number_integer());
    EXPECT_TRUE((*result)["z"][3].is_number_float());
}

TEST(JsonReaderTest, RefusesWhatIsNoJson) {
    for (const char* text : {"",
                             " ",
                             "{",
                             "[",
                             "\"",
                             "{\"a\"",
                             "{\"a\":",
                             "{\"a\":1",
                             "{\"a\":1,}",
                             "[1,]",
                             "[1 2]",
                             "{a:1}",
                             "{'a':1}",
                             "nul",
                             "truE",
                             "NaN",
                             "Infinity",
                             "-Infinity",
                             "-",
                             "+1",
                             ".5",
                             "5.",
                             "1e",
                             "1e+",
                             "01",
                             "-01",
                             "0x1",
                             "1e999",
                             "-1e999",
                             "{\"a\":1}x",
                             "{} {}",
                             "[1]]",
                             "\"\\x\"",
                             "\"\\u12g4\"",
                             "\"\\u12\"",
                             "\"a\nb\"",
                             "\"\x01\"",
                             "\xEF\xBB\xBF{}",
                             "//c\n1",
                             "\"\\ud800\"",
                             "\"\\ud800x\"",
                             "\"\\udc00\"",
                             "\"\\ud800\\ud800\"",
                             "\"\x80\"",
                             "\"\xC0\xAF\"",
                             "\"\xED\xA0\x80\"",
                             "\"\xF4\x90\x80\x80\"",
                             "\"\xC3\"",
                             "\"\xE2\x82\""}) {
        EXPECT_EQ(code_of(text), ErrorCode::kInvalidJson) << text;
    }
    EXPECT_EQ(code_of(std::string_view("1\0", 2)), ErrorCode::kInvalidJson);
}

TEST(JsonReaderTest, NamesTheByteOffset) {
    EXPECT_EQ(message_of("{\"a\": tru}"), "Invalid JSON at byte 6: unknown word.");
    EXPECT_EQ(message_of("[1,2] x"), "Invalid JSON at byte 6: bytes after the value.");
    EXPECT_EQ(message_of(""), "Invalid JSON at byte 0: the body is empty.");
    EXPECT_THAT(message_of("[\"ok\",\"\xFF\"]"), HasSubstr("byte 7: invalid UTF-8"));
}

TEST(JsonReaderTest, RefusesDuplicateKeysAtAnyLevel) {
    EXPECT_EQ(code_of(R"({"a":1,"b":2,"a":3})"), ErrorCode::kDuplicateKey);
    EXPECT_EQ(code_of(R"([{"x":{"a":1,"\u0061":1}}])"), ErrorCode::kDuplicateKey);
    EXPECT_TRUE(read_json(R"({"a":{"a":{"a":1}}})"));
}

TEST(JsonReaderTest, BoundsIntegersAt64BitsAndTakesTinyFloatsAsZero) {
    EXPECT_EQ(code_of("18446744073709551616"), ErrorCode::kInvalidValue);
    EXPECT_EQ(code_of("-9223372036854775809"), ErrorCode::kInvalidValue);
    EXPECT_EQ(read_json("18446744073709551615")->get<std::uint64_t>(), 18446744073709551615U);
    EXPECT_EQ(read_json("-9223372036854775808")->get<std::int64_t>(),
              std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(read_json("1e-999")->get<double>(), 0.0);
    EXPECT_EQ(read_json("0.00001e-320")->get<double>(), 0.0);
    EXPECT_EQ(code_of("100000e305"), ErrorCode::kInvalidJson);
    EXPECT_EQ(code_of("1e99999999999999999999"), ErrorCode::kInvalidJson);
    EXPECT_EQ(read_json("1e-99999999999999999999")->get<double>(), 0.0);
    EXPECT_EQ(read_json("0e99999999999999999999")->get<double>(), 0.0);
}

TEST(JsonReaderTest, AllowsExactlyTheLimits) {
    const auto nested = [](std::size_t depth) {
        return std::string(depth, '[') + std::string(depth, ']');
    };
    EXPECT_TRUE(read_json(nested(128)));
    EXPECT_EQ(code_of(nested(129)), ErrorCode::kJsonTooDeep);
    const auto members = [](int count) {
        std::string text = "{";
        for (int i = 0; i < count; ++i) {
            text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
        }
        return text + "}";
    };
    EXPECT_TRUE(read_json(members(10'000)));
    EXPECT_EQ(code_of(members(10'001)), ErrorCode::kInvalidValue);
    const auto key = [](std::size_t bytes) { return "{\"" + std::string(bytes, 'k') + "\":0}"; };
    EXPECT_TRUE(read_json(key(256)));
    EXPECT_EQ(code_of(key(257)), ErrorCode::kInvalidValue);
    proto::JsonLimits few;
    few.values_max = 4;
    EXPECT_TRUE(read_json("[1,2,3]", few));
    EXPECT_EQ(code_of("[1,2,3,4]", few), ErrorCode::kInvalidValue);
}

/// Runs on a thread with a 128 KiB stack, where unbounded recursion would fault at once.
void on_a_small_stack(const std::function<void()>& body) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr std::size_t kStackBytes = 1024 * 1024;  // frames grow several times
#else
    constexpr std::size_t kStackBytes = 128 * 1024;
#endif
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_t thread{};
    const auto run = [](void* argument) -> void* {
        (*static_cast<const std::function<void()>*>(argument))();
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, run,
                             const_cast<void*>(static_cast<const void*>(&body))),
              0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

TEST(JsonReaderTest, R17HostileDepthNeedsNoStack) {
    on_a_small_stack([] {
        EXPECT_EQ(code_of(std::string(1'000'000, '[')), ErrorCode::kJsonTooDeep);
        std::string schema;
        for (int i = 0; i < 100'000; ++i)
            schema += R"({"properties":{"a":)";
        EXPECT_EQ(code_of(schema), ErrorCode::kJsonTooDeep);
        // The deepest tree that is built can be copied, dumped and destroyed here.
        const proto::Result<Json> deep = read_json(std::string(128, '[') + std::string(128, ']'));
        const Json copy = *deep;
        EXPECT_EQ(copy.dump().size(), 256U);
    });
}

TEST(JsonReaderTest, SpecialBytesAreSeenAtEveryPlaceOfAString) {
    const std::string letters = "abcdefghijklmnopqrstuvwxyz0123456789~!# _";
    for (std::size_t at = 0; at <= letters.size(); ++at) {
        const std::string before = letters.substr(0, at);
        const std::string after = letters.substr(at);
        for (const auto& [sent, meant] : {std::pair<std::string, std::string>{R"(\")", "\""},
                                          {R"(\\)", "\\"},
                                          {"\xC3\xA9", "\xC3\xA9"},
                                          {"\x7F", "\x7F"},
                                          {R"(\n)", "\n"}}) {
            const auto value = read_json("\"" + before + sent + after + "\"");
            ASSERT_TRUE(value) << sent << " at " << at;
            EXPECT_EQ(*value, before + meant + after) << sent << " at " << at;
        }
        for (const std::string& broken :
             {std::string("\x1F"), std::string("\n"), std::string(1, '\0'), std::string("\x80"),
              std::string("\xFF")}) {
            EXPECT_FALSE(read_json("\"" + before + broken + after + "\"")) << "at " << at;
        }
        const auto ended = read_json("\"" + before + "\"" + after);
        EXPECT_EQ(ended.has_value(), after.empty()) << "at " << at;
    }
}

TEST(JsonReaderTest, ReadJsonObjectWantsAnObject) {
    EXPECT_TRUE(proto::read_json_object("{}"));
    EXPECT_EQ(proto::read_json_object("[]").error().code, ErrorCode::kInvalidType);
    EXPECT_EQ(proto::read_json_object("nope").error().code, ErrorCode::kInvalidJson);
}

TEST(JsonTest, WritesStringsThatAnyReaderTakes) {
    EXPECT_EQ(proto::json_string("a\"\\\n\x01/\x7F"), "\"a\\\"\\\\\\n\\u0001/\x7F\"");
    EXPECT_EQ(proto::json_string("K\xC3\xB6ln \xF0\x9F\x98\x80"),
              "\"K\xC3\xB6ln \xF0\x9F\x98\x80\"");
    // One replacement for each broken beginning, and none of the good text is lost.
    EXPECT_EQ(proto::json_string("a\xF0\x9F\x98z\xFF"), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    EXPECT_EQ(proto::json_string("\xE2\x82"), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace proto_test
