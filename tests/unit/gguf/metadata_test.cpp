// Proves the reading rules of metadata: lenient about numeric types, strict about values.
#include "replica/gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/gguf/value.h"
#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace test;

/// Metadata together with the bytes it views.
struct Loaded {
    Parsed parsed;
    GgufMetadata metadata;

    explicit Loaded(std::vector<Bytes> entries)
        : parsed(with(std::move(entries)).bytes()),
          metadata("test.gguf", parsed.header.value().entries) {}

    static RawGguf with(std::vector<Bytes> entries) {
        RawGguf raw;
        raw.entries = std::move(entries);
        return raw;
    }
};

TEST(GgufMetadataTest, AnyIntegerTypeServesAnIntegerKeyWhenTheValueFits) {
    const Loaded loaded({entry("u8", 0, std::uint8_t{200}), entry("i8", 1, std::int8_t{-1}),
                         entry("u16", 2, std::uint16_t{60000}), entry("i16", 3, std::int16_t{5}),
                         entry("i32", 5, std::int32_t{6}), entry("u64", 10, std::uint64_t{7}),
                         entry("i64", 11, std::int64_t{1} << 40)});
    EXPECT_EQ(loaded.metadata.get_u32("u8"), 200U);
    EXPECT_EQ(loaded.metadata.get_i32("i8"), -1);
    EXPECT_EQ(loaded.metadata.get_u32("u16"), 60000U);
    EXPECT_EQ(loaded.metadata.get_u32("i16"), 5U);
    EXPECT_EQ(loaded.metadata.get_u32("i32"), 6U);
    EXPECT_EQ(loaded.metadata.get_u32("u64"), 7U);
    EXPECT_EQ(loaded.metadata.get_u64("i64"), std::uint64_t{1} << 40);
    EXPECT_FALSE(loaded.metadata.get_u32("i8")) << "negative";
    EXPECT_FALSE(loaded.metadata.get_u32("i64")) << "too large";
    EXPECT_FALSE(loaded.metadata.get_f32("u8")) << "an integer is no float";
}

TEST(GgufMetadataTest, FloatKeysTakeBothWidths) {
    const Loaded loaded({entry("f32", 6, 1e-6F), entry("f64", 12, 0.1), entry("large", 12, 1e300),
                         entry("nan", 12, std::nan("")),
                         entry("inf", 12, std::numeric_limits<double>::infinity())});
    EXPECT_EQ(loaded.metadata.get_f32("f32"), 1e-6F);
    EXPECT_EQ(loaded.metadata.get_f32("f64"), 0.1F);
    EXPECT_FALSE(loaded.metadata.get_f32("large"));
    EXPECT_TRUE(std::isnan(loaded.metadata.get_f32("nan").value()));
    EXPECT_TRUE(std::isinf(loaded.metadata.get_f32("inf").value()));
    EXPECT_FALSE(loaded.metadata.get_u32("f32"));
}

TEST(GgufMetadataTest, BoolKeysTakeIntegersZeroAndOne) {
    const Loaded loaded({entry("yes", 7, std::uint8_t{1}), entry("one", 4, std::uint32_t{1}),
                         entry("zero", 11, std::int64_t{0}), entry("two", 4, std::uint32_t{2})});
    EXPECT_EQ(loaded.metadata.get_bool("yes"), true);
    EXPECT_EQ(loaded.metadata.get_bool("one"), true);
    EXPECT_EQ(loaded.metadata.get_bool("zero"), false);
    EXPECT_FALSE(loaded.metadata.get_bool("two"));
    EXPECT_FALSE(loaded.metadata.get_u32("yes")) << "a bool is no integer";
}

TEST(GgufMetadataTest, AbsentKeysAreErrorsOnlyWhereRequired) {
    const Loaded loaded({string_entry("name", "Foal")});
    EXPECT_EQ(loaded.metadata.get_u32("none").error().kind, GgufErrorKind::kMissing);
    EXPECT_THAT(loaded.metadata.get_u32("none").error().text(), HasSubstr("key none"));
    EXPECT_EQ(loaded.metadata.get_u32_or("none", 3), 3U);
    EXPECT_EQ(loaded.metadata.get_string_or("none", "x"), "x");
    EXPECT_EQ(loaded.metadata.get_string_or("name", "x"), "Foal");
    EXPECT_EQ(loaded.metadata.get_bool_or("name", true).error().kind, GgufErrorKind::kWrongValue)
        << "present, but of another type";
}

TEST(GgufMetadataTest, ErrorsAreOneLineWhateverTheFileSays) {
    const std::string key = std::string("a\x1b[31m\n\xff") + std::string(1000, 'x');
    const Loaded loaded({string_entry(key, "\x7f\x9b")});
    for (const std::string& text :
         {loaded.metadata.get_u32(key).error().text(),
          loaded.metadata.error_about("k", std::string(100'000, '\r')).text()}) {
        EXPECT_LT(text.size(), 512U);
        EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; }))
            << text;
    }
}

TEST(GgufMetadataTest, ShownTextHoldsNothingATerminalObeys) {
    const Loaded loaded({string_entry("s", "a\x1b[31m\x7f\xc2\x9b\xc2\xa0\xc3\xa9")});
    EXPECT_EQ(value_text(*loaded.metadata.find("s"), 1, 40),
              "\"a\\u001b[31m\\u007f\\u009b\xc2\xa0\xc3\xa9\"");
}

TEST(GgufMetadataTest, ReadsArrays) {
    const Loaded loaded({array_entry("i", 5, 3, elements<std::int32_t>({11, 11, -1})),
                         array_entry("s", 8, 3, strings({"a", "", "\xc4\xa0 b"})),
                         array_entry("f", 6, 2, elements<float>({0.5F, -1.0F})),
                         array_entry("none", 8, 0, {})});
    EXPECT_THAT(loaded.metadata.get_i32s("i").value(), ElementsAre(11, 11, -1));
    EXPECT_THAT(loaded.metadata.get_strings("s").value(), ElementsAre("a", "", "\xc4\xa0 b"));
    EXPECT_THAT(loaded.metadata.get_f32s("f").value(), ElementsAre(0.5F, -1.0F));
    EXPECT_TRUE(loaded.metadata.get_strings("none").value().empty());
    EXPECT_THAT(loaded.metadata.get_u32s("i").error().text(), HasSubstr("entry 2"));
    EXPECT_FALSE(loaded.metadata.get_strings("i"));
    EXPECT_FALSE(loaded.metadata.get_i32s("s"));
    EXPECT_FALSE(loaded.metadata.get_u32("i")) << "an array is no scalar";
}

TEST(GgufMetadataTest, PerLayerValuesAreOneScalarOrOneEntryPerLayer) {
    const Loaded loaded({entry("same", 4, std::uint32_t{8}),
                         array_entry("each", 5, 3, elements<std::int32_t>({0, 2, 0})),
                         array_entry("flags", 7, 3, elements<std::uint8_t>({1, 0, 1}))});
    EXPECT_THAT(loaded.metadata.get_u32_per_layer("same", 3).value(), ElementsAre(8, 8, 8));
    EXPECT_THAT(loaded.metadata.get_u32_per_layer("each", 3).value(), ElementsAre(0, 2, 0));
    EXPECT_THAT(loaded.metadata.get_bool_per_layer("flags", 3).value(),
                ElementsAre(true, false, true));
    EXPECT_THAT(loaded.metadata.get_u32_per_layer("each", 4).error().text(), HasSubstr("4 layers"));
    EXPECT_THAT(loaded.metadata.get_u32_per_layer_or("none", 2, 5).value(), ElementsAre(5, 5));
}

TEST(GgufMetadataTest, ShowsValuesAsJsonWould) {
    const Loaded loaded({array_entry("s", 8, 3, strings({"a\n", "\xff", "c"})),
                         entry("f", 6, 1e-6F), entry("b", 7, std::uint8_t{0})});
    EXPECT_EQ(value_text(*loaded.metadata.find("s"), 2, 10), "[\"a\\n\", \"\xef\xbf\xbd\", ...]");
    EXPECT_EQ(value_text(*loaded.metadata.find("f"), 0, 10), "1e-06");
    EXPECT_EQ(value_text(*loaded.metadata.find("b"), 1, 10), "false");
}

}  // namespace
}  // namespace replica
