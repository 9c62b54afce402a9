// The template engine against Python's: jinja-features.json and foal-template.json, outputs exact,
// error kinds exact, and the messages too.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

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

TEST(TemplateGoldenTest, RendersOneTemplateInManyThreadsAtOnce) {
    const Json golden = read_golden("foal-template.json");
    const auto compiled = Template::compile(golden["template"].get<std::string>());
    ASSERT_TRUE(compiled);
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (const Json& one : golden["cases"]) {
                const auto rendered = compiled->render(one["context"]);
                const bool is_right = one.contains("output")
                                          ? rendered && rendered->text == one["output"]
                                          : !rendered;
                if (!is_right) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace replica::chat
