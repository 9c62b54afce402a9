// JSON written as text: it parses, escapes what clients sent, and never says what JSON cannot.
#include "router/json_line.h"

#include <limits>

#include <gtest/gtest.h>

namespace router {
namespace {

TEST(JsonLineTest, WritesWhatATreeWouldWrite) {
    std::string text;
    JsonLine line(text);
    line.open('{');
    line.member("text", "a \"b\"\n\x01 é \xff");
    line.member("integer", std::int64_t{-5});
    line.member("large", std::numeric_limits<std::uint64_t>::max());
    line.member("real", 0.1);
    line.member("whole", 80.0);
    line.member("yes", true);
    line.member("none", std::optional<double>());
    line.member("some", std::optional<std::int64_t>(7));
    line.name("list");
    line.open('[');
    line.value(1);
    line.open('{');
    line.close('}');
    line.value(nullptr);
    line.close(']');
    line.member("last", std::string_view("z"));
    line.close('}');
    const proto::Json json = proto::Json::parse(text);
    EXPECT_EQ(json["text"], "a \"b\"\n\x01 é \xEF\xBF\xBD");
    EXPECT_EQ(json["integer"], -5);
    EXPECT_EQ(json["large"], std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(json["real"], 0.1);
    EXPECT_EQ(json["whole"], 80);
    EXPECT_EQ(json["yes"], true);
    EXPECT_TRUE(json["none"].is_null());
    EXPECT_EQ(json["some"], 7);
    EXPECT_EQ(json["list"].dump(), "[1,{},null]");
    EXPECT_EQ(json["last"], "z");
}

TEST(JsonLineTest, NumbersThatAreNoneBecomeNull) {
    std::string text;
    JsonLine line(text);
    line.open('[');
    line.value(std::numeric_limits<double>::infinity());
    line.value(std::numeric_limits<double>::quiet_NaN());
    line.close(']');
    EXPECT_EQ(text, "[null,null]");
}

}  // namespace
}  // namespace router
