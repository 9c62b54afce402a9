// The template engine against Python's: jinja-features.json and foal-template.json, outputs exact,
// error kinds exact, messages exact where the template raised; and the clock-free golden renderings
// of a Qwen3.5-like chat are covered by foal-template.json.
#include <gtest/gtest.h>

#include "chat_test_support.h"

namespace replica::chat {
namespace {

void expect_case(const Json& golden, const Json& one, const std::string& text) {
    const auto compiled = Template::compile(text);
    RenderOptions options;
    options.now = golden_time();
    tl::expected<Rendered, TemplateError> rendered =
        compiled ? compiled->render(one["context"], options)
                 : tl::expected<Rendered, TemplateError>(tl::unexpected(compiled.error()));
    SCOPED_TRACE(one["name"].get<std::string>() + " of " + golden["source"].get<std::string>());
    if (one.contains("output")) {
        ASSERT_TRUE(rendered) << rendered.error().message;
        EXPECT_EQ(rendered->text, one["output"].get<std::string>());
        return;
    }
    ASSERT_FALSE(rendered) << rendered->text;
    EXPECT_EQ(name_of(rendered.error().kind), one["error"]["kind"].get<std::string>());
    // Only raised messages must be exact; that the others are as well is our own wish.
    EXPECT_EQ(rendered.error().message, one["error"]["message"].get<std::string>());
}

TEST(TemplateGoldenTest, RendersEveryFeatureAsPythonDoes) {
    const Json golden = read_golden("jinja-features.json");
    ASSERT_EQ(golden["strftime_now"], "2031-02-03T04:05:06");
    for (const Json& one : golden["cases"]) {
        expect_case(golden, one, one["template"].get<std::string>());
    }
}

TEST(TemplateGoldenTest, RendersTheDemoModelsTemplateAsPythonDoes) {
    const Json golden = read_golden("foal-template.json");
    for (const Json& one : golden["cases"]) {
        expect_case(golden, one, golden["template"].get<std::string>());
    }
}

}  // namespace
}  // namespace replica::chat
