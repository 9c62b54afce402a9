// Proves that the header parser reads what a valid file says and names the broken rule of every
// kind of invalid one. Files are built field by field in memory.
#include "replica/gguf/header.h"

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using testing::HasSubstr;
using namespace test;

constexpr std::uint64_t kHugeCounts[] = {std::uint64_t{1} << 31, std::uint64_t{1} << 32,
                                         std::uint64_t{1} << 63,
                                         std::numeric_limits<std::uint64_t>::max()};

TEST(GgufHeaderTest, ReadsASmallValidFile) {
    const RawGguf raw = small_valid();
    const Parsed parsed(raw.bytes());
    ASSERT_TRUE(parsed.header) << parsed.header.error().text();
    const GgufHeader& header = *parsed.header;
    EXPECT_EQ(header.version, 3U);
    EXPECT_EQ(header.alignment, 32U);
    EXPECT_EQ(header.entries.size(), 14U);
    EXPECT_EQ(header.entries[0].key, "general.architecture");
    ASSERT_EQ(header.tensors.size(), 2U);
    EXPECT_EQ(header.tensors[0].ne, (std::array<std::int64_t, 4>{8, 2, 1, 1}));
    EXPECT_EQ(header.tensors[0].rank, 2);
    EXPECT_EQ(header.tensors[0].bytes, 64U);
    EXPECT_EQ(header.tensors[1].dtype, kernels::DType::kQ8_0);
    EXPECT_EQ(header.tensors[1].bytes, 34U);
    EXPECT_EQ(header.tensors[1].file_offset, header.data_start + 64);
    EXPECT_EQ(header.data_start % 32, 0U);
}

TEST(GgufHeaderTest, AcceptsVersion2) {
    RawGguf raw = small_valid();
    raw.version = 2;
    EXPECT_EQ(error_of(raw), "");
}

TEST(GgufHeaderTest, AcceptsAFileWithoutTensorsOrPadding) {
    RawGguf raw;
    raw.entries = {string_entry("general.architecture", "test")};
    EXPECT_EQ(error_of(raw.header()), "");
    EXPECT_EQ(error_of(RawGguf{}), "");
}

TEST(GgufHeaderTest, AcceptsTensorsInAnyOrderWithHoles) {
    RawGguf raw;
    raw.tensors = {{"b", {8}, 0, 96, {}}, {"a", {8}, 0, 0, {}}};
    raw.data_bytes = 128;
    EXPECT_EQ(error_of(raw), "");
}

TEST(GgufHeaderTest, ReadsARankOfZeroAsAScalar) {
    RawGguf raw;
    raw.tensors = {{"scalar", {}, 0, 0, {}}};
    raw.data_bytes = 4;
    const Parsed parsed(raw.bytes());
    ASSERT_TRUE(parsed.header);
    EXPECT_EQ(parsed.header->tensors[0].elements(), 1);
}

TEST(GgufHeaderTest, RefusesWhatIsNoGgufFile) {
    EXPECT_THAT(error_of(Bytes{}), HasSubstr("at least 24 bytes"));
    RawGguf raw = small_valid();
    raw.magic = "GGUE";
    EXPECT_THAT(error_of(raw), HasSubstr("does not begin with \"GGUF\""));
}

TEST(GgufHeaderTest, NamesVersionAndEndiannessAsReasons) {
    RawGguf raw = small_valid();
    raw.version = 1;
    EXPECT_THAT(error_of(raw), HasSubstr("version 1"));
    raw.version = 4;
    EXPECT_THAT(error_of(raw), HasSubstr("version 4"));
    raw.version = 0x03000000;
    EXPECT_THAT(error_of(raw), HasSubstr("wrong endianness"));
}

TEST(GgufHeaderTest, RefusesCountsTheFileCannotHold) {
    for (const std::uint64_t count : kHugeCounts) {
        RawGguf raw = small_valid();
        raw.entry_count = count;
        EXPECT_THAT(error_of(raw), HasSubstr("keys, more than the file can hold"));
        raw = small_valid();
        raw.tensor_count = count;
        EXPECT_THAT(error_of(raw), HasSubstr("tensors, more than the file can hold"));
    }
}

TEST(GgufHeaderTest, RefusesMoreKeysThanOurLimitEvenWhenTheyFit) {
    RawGguf raw;
    raw.entry_count = kGgufKeysMax + 1;
    raw.data_bytes = (kGgufKeysMax + 1) * 13;
    EXPECT_THAT(error_of(raw), HasSubstr("our limit"));
}

TEST(GgufHeaderTest, RefusesStringLengthsPastTheEnd) {
    for (const std::uint64_t length : kHugeCounts) {
        RawGguf raw;
        Bytes key_too_long;
        put(key_too_long, length);
        put_text(key_too_long, "key, and then some more bytes");
        raw.entries = {key_too_long};
        EXPECT_THAT(error_of(raw), HasSubstr("a string of")) << length;

        raw.entries = {entry("key", 8, length)};
        EXPECT_THAT(error_of(raw), HasSubstr("key key")) << length;

        Bytes tensor;
        put(tensor, length);
        put_text(tensor, "tensor name and twenty-five bytes more");
        raw.entries = {tensor};
        raw.entry_count = 0;
        raw.tensor_count = 1;
        EXPECT_THAT(error_of(raw), HasSubstr("a string of")) << length;
    }
}

TEST(GgufHeaderTest, RefusesArrayCountsPastTheEnd) {
    for (std::uint64_t count : kHugeCounts) {
        for (const std::uint32_t type : {0U, 4U, 8U, 12U}) {
            RawGguf raw;
            raw.entries = {array_entry("list", type, count, elements<std::uint64_t>({1, 2}))};
            EXPECT_THAT(error_of(raw), HasSubstr("key list")) << count << ' ' << type;
        }
    }
}

TEST(GgufHeaderTest, RefusesNestedArraysAndUnknownValueTypes) {
    RawGguf raw;
    raw.entries = {array_entry("list", 9, 1, {})};
    EXPECT_THAT(error_of(raw), HasSubstr("arrays of arrays"));
    raw.entries = {array_entry("list", 13, 1, {})};
    EXPECT_THAT(error_of(raw), HasSubstr("element type 13"));
    raw.entries = {entry("key", 13, std::uint8_t{0})};
    EXPECT_THAT(error_of(raw), HasSubstr("value type 13"));
    raw.entries = {entry("key", 0xffffffff, std::uint8_t{0})};
    EXPECT_THAT(error_of(raw), HasSubstr("value type 4294967295"));
}

TEST(GgufHeaderTest, RefusesBoolsOtherThanZeroAndOne) {
    RawGguf raw;
    raw.entries = {entry("flag", 7, std::uint8_t{2})};
    EXPECT_THAT(error_of(raw), HasSubstr("neither 0 nor 1"));
    raw.entries = {array_entry("flags", 7, 3, elements<std::uint8_t>({0, 1, 255}))};
    EXPECT_THAT(error_of(raw), HasSubstr("neither 0 nor 1"));
}

TEST(GgufHeaderTest, RefusesEmptyAndRepeatedKeys) {
    RawGguf raw;
    raw.entries = {entry("", 0, std::uint8_t{0})};
    EXPECT_THAT(error_of(raw), HasSubstr("key is empty"));
    raw.entries = {entry("twice", 0, std::uint8_t{0}), entry("once", 0, std::uint8_t{0}),
                   entry("twice", 4, std::uint32_t{0})};
    EXPECT_THAT(error_of(raw), HasSubstr("key twice occurs twice"));
}

TEST(GgufHeaderTest, RefusesBadTensorNames) {
    RawGguf raw;
    raw.data_bytes = 256;
    raw.tensors = {{"", {8}, 0, 0, {}}};
    EXPECT_THAT(error_of(raw), HasSubstr("name is empty"));
    raw.tensors = {{std::string(64, 'x'), {8}, 0, 0, {}}};
    EXPECT_THAT(error_of(raw), HasSubstr("at most 63"));
    raw.tensors = {{std::string("a\0b", 3), {8}, 0, 0, {}}};
    EXPECT_THAT(error_of(raw), HasSubstr("NUL"));
    raw.tensors = {{"same", {8}, 0, 0, {}}, {"same", {8}, 0, 32, {}}};
    EXPECT_THAT(error_of(raw), HasSubstr("tensor same occurs twice"));
}

TEST(GgufHeaderTest, RefusesImpossibleShapes) {
    const auto error_for = [](std::vector<std::uint64_t> ne) {
        RawGguf raw;
        raw.tensors = {{"t", std::move(ne), 0, 0, {}}};
        raw.data_bytes = 64;
        return error_of(raw);
    };
    EXPECT_THAT(error_for({0}), HasSubstr("dimension 0 is 0"));
    EXPECT_THAT(error_for({1, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
    for (const std::uint64_t huge : kHugeCounts)
        EXPECT_NE(error_for({huge}), "") << huge;
    const std::uint64_t half = std::uint64_t{1} << 32;
    EXPECT_THAT(error_for({half, half}), HasSubstr("product"));
    EXPECT_THAT(error_for({half, half, half, half}), HasSubstr("product"))
        << "2^128 wraps to 0 in 64 bits";
    EXPECT_THAT(error_for({std::uint64_t{1} << 62}), HasSubstr("63 bits")) << "times four bytes";
}

TEST(GgufHeaderTest, RefusesHugeRanksWithoutReadingThem) {
    RawGguf raw;
    raw.tensors = {{"t", {8}, 0, 0, 0xffffffff}};
    raw.data_bytes = 64;
    EXPECT_THAT(error_of(raw), HasSubstr("4294967295 dimensions"));
}

TEST(GgufHeaderTest, NamesTensorAndTypeThatAreNotSupported) {
    RawGguf raw;
    raw.data_bytes = 256;
    raw.tensors = {{"blk.3.ffn_up.weight", {256}, 21, 0, {}}};
    EXPECT_THAT(error_of(raw), HasSubstr("blk.3.ffn_up.weight"));
    EXPECT_THAT(error_of(raw), HasSubstr("IQ3_S is not supported"));
    const Parsed listed(raw.bytes(), {.allow_unsupported_types = true});
    ASSERT_TRUE(listed.header);
    EXPECT_EQ(listed.header->tensors[0].bytes, 110U);
    for (const std::uint32_t type : {4U, 5U, 31U, 36U, 38U, 99U, 0xffffffffU}) {
        raw.tensors[0].type = type;
        EXPECT_THAT(error_of(raw), HasSubstr("unknown or was removed")) << type;
        EXPECT_FALSE(Parsed(raw.bytes(), {.allow_unsupported_types = true}).header) << type;
    }
    raw.tensors[0].type = 41;  // known by name, size unknown
    EXPECT_FALSE(Parsed(raw.bytes(), {.allow_unsupported_types = true}).header);
}

TEST(GgufHeaderTest, RefusesRowsThatAreNoWholeBlocks) {
    RawGguf raw;
    raw.tensors = {{"t", {128}, 23, 0, {}}};
    raw.data_bytes = 256;
    EXPECT_THAT(error_of(raw), HasSubstr("no whole blocks of 256 (IQ4_XS)"));
}

TEST(GgufHeaderTest, RefusesOffsetsOutsideTheData) {
    const auto error_for = [](std::uint64_t offset) {
        RawGguf raw;
        raw.tensors = {{"t", {8}, 0, offset, {}}};
        raw.data_bytes = 64;
        return error_of(raw);
    };
    EXPECT_EQ(error_for(32), "");
    EXPECT_THAT(error_for(64), HasSubstr("reaches past"));
    EXPECT_THAT(error_for(33), HasSubstr("no multiple of the alignment"));
    EXPECT_THAT(error_for(std::uint64_t{1} << 63), HasSubstr("reaches past"));
    // offset + bytes, and offset + data_start, wrap around.
    EXPECT_THAT(error_for(~std::uint64_t{31}), HasSubstr("reaches past"));
}

TEST(GgufHeaderTest, RefusesOverlappingTensors) {
    RawGguf raw;
    raw.tensors = {{"a", {16}, 0, 32, {}}, {"b", {16}, 0, 0, {}}};
    raw.data_bytes = 128;
    EXPECT_THAT(error_of(raw), HasSubstr("overlaps"));
    raw.tensors[1].offset = 32;  // the same place
    EXPECT_THAT(error_of(raw), HasSubstr("overlaps"));
    raw.tensors[1] = {"b", {8}, 0, 64, {}};  // inside the other
    EXPECT_THAT(error_of(raw), HasSubstr("overlaps"));
}

TEST(GgufHeaderTest, ObeysTheAlignmentKey) {
    RawGguf raw = small_valid();
    raw.entries.push_back(entry("general.alignment", 4, std::uint32_t{64}));
    raw.alignment = 64;
    const Parsed parsed(raw.bytes());
    ASSERT_TRUE(parsed.header) << parsed.header.error().text();
    EXPECT_EQ(parsed.header->data_start % 64, 0U);
}

TEST(GgufHeaderTest, RefusesImpossibleAlignments) {
    for (const std::uint32_t alignment : {0U, 1U, 3U, 4U, 24U, 1U << 21, 1U << 31, 0xffffffffU}) {
        RawGguf raw = small_valid();
        raw.entries.push_back(entry("general.alignment", 4, alignment));
        EXPECT_THAT(error_of(raw), HasSubstr("power of two")) << alignment;
    }
    RawGguf raw = small_valid();
    raw.entries.push_back(entry("general.alignment", 10, std::uint64_t{32}));
    EXPECT_THAT(error_of(raw), HasSubstr("must be of type u32"));
}

TEST(GgufHeaderTest, AlignUpRefusesToWrapAround) {
    std::uint64_t aligned = 0;
    EXPECT_TRUE(align_up(33, 32, aligned));
    EXPECT_EQ(aligned, 64U);
    EXPECT_TRUE(align_up(~std::uint64_t{31}, 32, aligned));
    EXPECT_EQ(aligned, ~std::uint64_t{31});
    EXPECT_FALSE(align_up(~std::uint64_t{30}, 32, aligned));
    EXPECT_FALSE(align_up(~std::uint64_t{0}, 1 << 20, aligned));
}

TEST(GgufHeaderTest, ErrorsTellFilePlaceRuleAndRemedy) {
    RawGguf raw;
    raw.entries = {entry("flag\n", 7, std::uint8_t{2})};
    const Parsed parsed(raw.bytes());
    ASSERT_FALSE(parsed.header);
    EXPECT_EQ(parsed.header.error().kind, GgufErrorKind::kMalformed);
    EXPECT_THAT(parsed.header.error().what, HasSubstr("test.gguf: key flag?, byte "));
    EXPECT_THAT(parsed.header.error().fix, HasSubstr("again"));
}

}  // namespace
}  // namespace replica
