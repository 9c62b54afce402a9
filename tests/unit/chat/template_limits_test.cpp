// Hostile templates: each ends at the limit that is meant for it, quickly and in bounded memory.
#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

std::string repeated(std::string_view part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
        text += part;
    return text;
}

TEST(TemplateLimitsTest, RefusesATemplateThatIsTooLong) {
    EXPECT_EQ(error_kind(std::string(kTemplateBytesMax + 1, 'x')), "limit");
    EXPECT_EQ(error_kind(std::string(kTemplateBytesMax, 'x')), "");
}

TEST(TemplateLimitsTest, RefusesDeepNesting) {
    for (const std::string& text :
         {"{{ " + repeated("(", 100'000), "{{ " + repeated("[", 100'000),
          "{{ " + repeated("{1:", 100'000), "{{ " + repeated("not ", 100'000) + "a }}",
          "{{ " + repeated("-", 100'000) + "1 }}", "{{ a" + repeated("[a", 100'000),
          "{{ " + repeated("f(", 100'000), "{{ " + repeated("a if b else ", 50'000) + "c }}",
          "{{ a" + repeated("|f", 100'000) + " }}", "{{ a" + repeated(".b", 100'000) + " }}",
          "{{ 1" + repeated("+1", 100'000) + " }}", "{{ 1" + repeated(" or 1", 100'000) + " }}",
          "{{ a" + repeated("()", 100'000) + " }}", repeated("{% if a %}", 70),
          repeated("{% for a in b %}", 70), repeated("{% macro m() %}", 70)}) {
        EXPECT_EQ(error_kind(text), "limit") << text.substr(0, 30);
    }
    EXPECT_EQ(render("{{ '' " + repeated("~ 'a' ", 5'000) + "}}"), repeated("a", 5'000));
    EXPECT_EQ(render(repeated("{% if true %}", 60) + "x" + repeated("{% endif %}", 60)), "x");
}

TEST(TemplateLimitsTest, BoundsArgumentsAndManyNames) {
    EXPECT_EQ(error_kind("{{ f(" + repeated("1,", 300) + ") }}"), "limit");
    EXPECT_EQ(error_kind("{% macro f(" + repeated("a,", 300) + ") %}{% endmacro %}"), "limit");
    std::string many;
    for (int i = 0; i < 40'000; ++i)
        many += "{{a|f" + std::to_string(i) + "}}";
    EXPECT_TRUE(Template::compile(many));  // in linear time
}

TEST(TemplateLimitsTest, EndsAnEndlessMacro) {
    EXPECT_EQ(error_kind("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "limit");
    // As much C++ stack as one macro call can take, 64 times over.
    EXPECT_EQ(error_kind("{% macro f(n) %}" + repeated("{% if true %}", 50) + "{{ [[[[[" +
                         repeated("1 + (", 40) + "f(n + 1)|string|length" + repeated(")", 40) +
                         "]]]]] }}" + repeated("{% endif %}", 50) + "{% endmacro %}{{ f(0) }}"),
              "limit");
}

TEST(TemplateLimitsTest, CountsLoopIterationsOverAllLoops) {
    RenderOptions options;
    options.limits.loop_iterations_max = 1000;
    const std::string loops =
        "{% for a in range(10) %}{% for b in range(n) %}{% endfor %}{% endfor %}";
    EXPECT_EQ(error_kind(loops, {{"n", 99}}, options), "");  // 10 x 99 + 10
    EXPECT_EQ(error_kind(loops, {{"n", 100}}, options), "limit");
    EXPECT_EQ(error_kind("{{ range(1001) | map('string') | join }}", Json::object(), options),
              "limit");
    EXPECT_EQ(
        error_kind("{% for x in range(1001) if false %}{% endfor %}", Json::object(), options),
        "limit");
}

TEST(TemplateLimitsTest, CountsEvaluatedNodes) {
    RenderOptions options;
    options.limits.nodes_max = 10'000;
    const std::string text =
        "{% for a in range(1000) %}{% set x = 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 %}{% endfor %}";
    EXPECT_EQ(error_kind(text, Json::object(), options), "limit");
}

TEST(TemplateLimitsTest, BoundsEveryTextBeforeItIsMade) {
    RenderOptions options;
    options.limits.text_bytes_max = 1000;
    const Json context = {{"s", std::string(600, 'x')}};
    for (const char* const text :
         {"{{ s + s }}", "{{ s ~ s }}", "{{ s }}{{ s }}", "{{ s * 2 }}", "{{ [s, s] | join }}",
          "{{ [s, s] | tojson }}", "{{ [s, s] }}", "{{ s | replace('x', 'yy') }}",
          "{{ s.replace('', 'yy') }}", "{% set a %}{{ s }}{{ s }}{% endset %}",
          "{{ 'x' * 1000000000000 }}", "{{ 'x' | indent(1000000) }}", "{{ 'a'.join(s) }}",
          "{{ [1] | tojson(indent=1001) }}", "{{ 'x' * 9223372036854775807 }}",
          "{% macro f() %}{{ s }}{{ s }}{% endmacro %}{{ f() }}"}) {
        EXPECT_EQ(error_kind(text, context, options), "limit") << text;
    }
    EXPECT_EQ(error_kind("{{ s }}", context, options), "");
    EXPECT_EQ(TemplateLimits::for_context(1000).text_bytes_max, 4U << 20U);
    EXPECT_EQ(TemplateLimits::for_context(1'000'000).text_bytes_max, 8'000'000U);
}

TEST(TemplateLimitsTest, BoundsWhatGrowsByDoubling) {
    const Json context = {{"s", "xy"}};
    for (const char* const text :
         {"{% set ns = namespace(v=s) %}{% for i in range(100) %}{% set ns.v = ns.v + ns.v %}"
          "{% endfor %}",
          "{% set ns = namespace(v=[1]) %}{% for i in range(100) %}{% set ns.v = ns.v + ns.v %}"
          "{% endfor %}",
          "{% set ns = namespace(v=[1]) %}{% for i in range(1000) %}{% set ns.v = [ns.v] %}"
          "{% endfor %}",
          "{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}"
          "{% endfor %}{{ ns.v }}",
          "{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}"
          "{% endfor %}{{ ns.v == ns.v }}",
          "{{ [0] * 1000000000000 }}", "{{ range(100000) | list * 1000 }}"}) {
        EXPECT_EQ(error_kind(text, context), "limit") << text;
    }
}

TEST(TemplateLimitsTest, KeepsCyclesThroughNamespacesHarmless) {
    EXPECT_EQ(error_kind("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ [ns] }}"
                         "{{ ns == ns }}{{ ns.me.me.me is defined }}"),
              "");
    EXPECT_EQ(error_kind("{% set ns = namespace() %}{% for i in range(20000) %}"
                         "{% set ns = namespace(inner=ns) %}{% endfor %}"),
              "");
}

TEST(TemplateLimitsTest, RefusesAContextThatIsNestedTooDeeply) {
    Json value = 1;
    for (int i = 0; i < 300; ++i)
        value = Json::array({value});
    EXPECT_EQ(error_kind("{{ x }}", {{"x", value}}), "limit");
    EXPECT_EQ(error_kind("{{ y }}", {{"x", value}}), "");  // what is not read is not looked at
}

TEST(TemplateLimitsTest, StopsAtTheTimeLimit) {
    RenderOptions options;
    options.limits.cpu_time_max = std::chrono::milliseconds(0);
    EXPECT_EQ(
        error_kind("{% for i in range(100000) %}{{ i * i }}{% endfor %}", Json::object(), options),
        "limit");
}

TEST(TemplateLimitsTest, SearchesInLinearTime) {
    // Quadratic search would take minutes: each of these is a bad case of it.
    const std::string text(2'000'000, 'a');
    const std::string needle = std::string(1'000'000, 'a') + "b";
    const Json context = {{"t", text}, {"n", needle}};
    EXPECT_EQ(render("{{ n in t }}{{ t.count(n) }}{{ t.find(n) }}{{ t.split(n) | length }}"
                     "{{ t.replace(n, '') | length }}",
                     context),
              "False0-112000000");
}

}  // namespace
}  // namespace replica::chat
