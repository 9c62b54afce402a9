// Corners of the language that the golden files do not reach: each line was tried in Python's
// Jinja.
#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

TEST(TemplateLanguageTest, KnowsWhereAnErrorHappened) {
    const auto compiled = Template::compile("a\n{% if x %}\n{{ y.z.w }}\n{% endif %}");
    ASSERT_TRUE(compiled);
    const auto rendered = compiled->render({{"x", true}, {"y", Json::object()}});
    ASSERT_FALSE(rendered);
    EXPECT_EQ(rendered.error().line, 3);
    EXPECT_EQ(describe(rendered.error()),
              "chat template, line 3: 'dict object' has no attribute 'z'");

    const auto broken = Template::compile("a\nb\n{% for x in y %}");
    ASSERT_FALSE(broken);
    EXPECT_EQ(broken.error().line, 3);
    const auto bad_tag = Template::compile("\n\n{% frob %}\n");
    ASSERT_FALSE(bad_tag);
    EXPECT_EQ(bad_tag.error().line, 3);
}

TEST(TemplateLanguageTest, DescribesARaisedMessageUnchanged) {
    const auto compiled = Template::compile("\n{{ raise_exception('No: ' ~ 5) }}");
    ASSERT_TRUE(compiled);
    const auto rendered = compiled->render(Json::object());
    ASSERT_FALSE(rendered);
    EXPECT_EQ(describe(rendered.error()), "No: 5");
}

TEST(TemplateLanguageTest, WarnsOfUnknownFiltersAndTestsAtLoad) {
    const auto compiled = Template::compile("{% if false %}\n{{ 1 | frob is blue }}{% endif %}");
    ASSERT_TRUE(compiled);
    ASSERT_EQ(compiled->warnings().size(), 2U);
    EXPECT_EQ(compiled->warnings()[0], "chat template, line 2: unknown filter 'frob'");
    EXPECT_EQ(compiled->warnings()[1], "chat template, line 2: unknown test 'blue'");
    EXPECT_EQ(render("{{ 1 is blue }}"), "unknown_name: No test named 'blue'.");
}

TEST(TemplateLanguageTest, SaysWhichVariablesItReads) {
    const auto compiled =
        Template::compile("{% if enable_thinking %}{% endif %}{{ f(kept=1) }}{% set put = 1 %}");
    ASSERT_TRUE(compiled);
    EXPECT_TRUE(compiled->reads("enable_thinking"));
    EXPECT_FALSE(compiled->reads("reasoning_effort"));
    EXPECT_FALSE(compiled->reads("kept"));
    EXPECT_FALSE(compiled->reads("put"));
}

TEST(TemplateLanguageTest, StripsWhitespaceOnTheAskedSidesOnly) {
    EXPECT_EQ(render("a\n  {#- x #}  \nb"), "a  \nb");
    EXPECT_EQ(render("a {% raw -%}  {{ x }} {%- endraw %}\nb"), "a {{ x }}b");
    EXPECT_EQ(render("  {{- 1 }}  {% if true +%}\nx{% endif %}"), "1  \nx");
    EXPECT_EQ(render("{{ 1 -}}\n{% if true %}x{% endif %}"), "1x");
    EXPECT_EQ(render("\xE2\x80\xA8 {{- 1 -}} \xE3\x80\x80z"), "1z");  // Unicode whitespace too
}

TEST(TemplateLanguageTest, KeepsTheCallersNamesFromAMacro) {
    EXPECT_EQ(render("{% set a = 1 %}{% macro g() %}{{ a }}{{ loop is defined }}{% endmacro %}"
                     "{% for a in [7] %}{{ g() }}{% endfor %}"),
              "1False");
    EXPECT_EQ(render("{% macro f(x, y=x + 1) %}{{ x }}{{ y }}{% endmacro %}{{ f(1) }}"), "12");
    EXPECT_EQ(render("{% macro f(x) %}{% endmacro %}{{ f(1, x=2) }}"),
              "type: macro 'f' takes no keyword argument 'x'");
}

TEST(TemplateLanguageTest, WalksAGeneratorOnce) {
    EXPECT_EQ(render("{% set g = [1, 2, 3] | map('string') %}{{ g | first }}{{ g | join }}"
                     "[{{ g | join }}]{{ 'T' if g }}"),
              "123[]T");
    EXPECT_EQ(render("{{ [1] | select | length }}"),
              "type: object of type 'generator' has no len()");
}

TEST(TemplateLanguageTest, TakesElseWhenNoIterationRanToItsEnd) {
    EXPECT_EQ(render("{% for x in [1, 2] %}{% if x == n %}{% continue %}{% endif %}{{ x }}"
                     "{% else %}none{% endfor %}",
                     {{"n", 1}}),
              "2");
    EXPECT_EQ(render("{% for x in [1, 2] %}{{ x }}{% break %}{% else %}none{% endfor %}"), "1none");
}

TEST(TemplateLanguageTest, ComparesIntegersAndFloatsByValue) {
    EXPECT_EQ(render("{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > "
                     "9007199254740992.0 }}{{ true + 1 }}{{ {1: 'a', 1.0: 'b', true: 'c'} }}"),
              "FalseTrue2{1: 'c'}");
}

TEST(TemplateLanguageTest, NeverWrapsAnInteger) {
    EXPECT_EQ(error_kind("{{ 9223372036854775807 + 1 }}"), "arithmetic");
    EXPECT_EQ(error_kind("{{ -9223372036854775807 - 2 }}"), "arithmetic");
    EXPECT_EQ(error_kind("{{ 9223372036854775807 * 2 }}"), "arithmetic");
    EXPECT_EQ(error_kind("{{ (-9223372036854775807 - 1) // -1 }}"), "arithmetic");
    EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
    EXPECT_EQ(error_kind("{{ 9223372036854775808 }}"), "syntax");
}

TEST(TemplateLanguageTest, PrintsFloatsByTheirShortestDigits) {
    EXPECT_EQ(render("{{ [1e22, 123456789012345680.0, 1e-4, 0.00001, -0.0, 1e100, 5e-324] }}"),
              "[1e+22, 1.2345678901234568e+17, 0.0001, 1e-05, -0.0, 1e+100, 5e-324]");
    EXPECT_EQ(render("{{ -7 // 2.0 }} {{ -7 % 2.5 }} {{ 7 // -2 }} {{ 1e308 * 10 }}"),
              "-4.0 0.5 -4 inf");
}

TEST(TemplateLanguageTest, EscapesWhatReprEscapes) {
    EXPECT_EQ(render("{{ [x] }}", {{"x", "\u00a0\u200b\u00ad\U000E0001\u2028\x7f é"}}),
              R"(['\xa0\u200b\xad\U000e0001\u2028\x7f é'])");
}

TEST(TemplateLanguageTest, MapsCaseOneToOne) {
    EXPECT_EQ(render("{{ 'ß' | upper }}{{ \"it's o'neil\".title() }}{{ 'ÀB'.lower() }}"),
              "ßIt'S O'Neilàb");
    EXPECT_EQ(render("{{ \"it's (a-b)\" | title }} {{ 'aBC' | capitalize }}"), "It's (A-B) Abc");
}

TEST(TemplateLanguageTest, SlicesWithAnyBounds) {
    EXPECT_EQ(render("{{ 'abcdef'[4:1:-1] }}|{{ 'aé🦙z'[::2] }}|{{ [1, 2, 3][-9:9] }}|"
                     "{{ (1, 2, 3)[::-2] }}|{{ 'abc'[5:] }}|{{ 'abc'[-1] }}"),
              "edc|a🦙|[1, 2, 3]|(3, 1)||c");
    // A slice, unlike an item, misses nothing silently.
    EXPECT_EQ(error_kind("{{ [1]['x':] }}"), "type");
    EXPECT_EQ(error_kind("{{ none[1:] }}"), "type");
    EXPECT_EQ(error_kind("{{ {'a': 1}[1:] }}"), "type");
    EXPECT_EQ(error_kind("{{ 'abc'[::0] }}"), "type");
    EXPECT_EQ(render("{{ 'abc'[-9223372036854775807:9223372036854775807] }}"), "abc");
}

TEST(TemplateLanguageTest, LetsNothingUnsafeThrough) {
    EXPECT_EQ(render("[{{ ''.__class__ }}]"), "[]");
    EXPECT_EQ(error_kind("{{ ''.__class__.__mro__ }}"), "security");
    EXPECT_EQ(error_kind("{{ {}.update({}) }}"), "security");
    EXPECT_EQ(error_kind("{{ [].append(1) }}"), "security");
    EXPECT_EQ(render("{{ m._x }}{{ m['pop'] }}", {{"m", {{"_x", 1}, {"pop", 2}}}}), "12");
}

TEST(TemplateLanguageTest, RefusesBrokenSyntaxWithoutFallingOver) {
    for (const char* const text : {"{{",
                                   "{{ }}",
                                   "{%",
                                   "{% %}",
                                   "{% if %}",
                                   "{#",
                                   "{{ 'a }}",
                                   "{{ a. }}",
                                   "{{ a[ }}",
                                   "{{ [1, }}",
                                   "{{ {1} }}",
                                   "{{ (1 }}",
                                   "{{ 1 2 }}",
                                   "{{ a | }}",
                                   "{{ a is }}",
                                   "{% set %}",
                                   "{% set 1 = 2 %}",
                                   "{% for x %}{% endfor %}",
                                   "{% for in y %}{% endfor %}",
                                   "{% macro %}{% endmacro %}",
                                   "{% endif %}",
                                   "{% raw %}",
                                   "{{ ) }}",
                                   "{{ \"\\x1\" }}",
                                   "{{ '\\ud800' }}",
                                   "{% if a %}{% else %}{% elif b %}{% endif %}",
                                   "{{ a(1 b) }}",
                                   "{{ f(a=1, 2) }}",
                                   "{% break %}",
                                   "{% include 'x' %}",
                                   "{{ ? }}",
                                   "{{ a ! b }}",
                                   "{{ 01 }}",
                                   "{{ a[1:2:3:4] }}",

                                   "{% generation %}"}) {
        EXPECT_EQ(error_kind(text), "syntax") << text;
    }
    EXPECT_EQ(error_kind("\xFF"), "syntax");
}

TEST(TemplateLanguageTest, SurvivesEveryPrefixOfTheDemoTemplate) {
    const std::string text = read_golden("foal-template.json")["template"];
    for (std::size_t size = 0; size < text.size(); size += 3) {
        const auto compiled = Template::compile(std::string_view(text).substr(0, size));
        if (compiled) (void)compiled->render({{"messages", Json::array()}});
    }
}

}  // namespace
}  // namespace replica::chat
