// Proves that what the writer writes is what the reader reads, in the canonical arrangement, and
// that a file appears whole or not at all.
#include "replica/gguf/writer.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/gguf/reader.h"
#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using kernels::DType;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace test;

Bytes pattern(std::size_t count, int start) {
    Bytes bytes(count);
    for (std::size_t i = 0; i < count; ++i)
        bytes[i] = static_cast<std::byte>(static_cast<int>(i) + start);
    return bytes;
}

GgufKeyValues some_key_values() {
    GgufKeyValues values;
    values.set_string("general.architecture", "test");
    values.set_u32("u32", 7);
    values.set_i32("i32", -7);
    values.set_u16("u16", 9);
    values.set_f32("f32", 0.5F);
    values.set_bool("bool", true);
    values.set_strings("strings", std::vector<std::string>{"a", "", "b"});
    values.set_i32s("i32s", std::vector<std::int32_t>{1, -2});
    return values;
}

std::vector<GgufTensorSpec> some_specs() {
    return {{"a", DType::kF32, {3}},       // 12 bytes
            {"b", DType::kQ8_0, {32, 2}},  // 68 bytes
            {"c", DType::kF32, {1, 1, 2}}};
}

void write_good(const std::filesystem::path& path) {
    auto writer = GgufWriter::create(path, some_key_values(), some_specs());
    ASSERT_TRUE(writer) << writer.error().text();
    const Bytes b = pattern(68, 100);
    ASSERT_TRUE(writer->write(2, 0, pattern(8, 50)));  // any order, any pieces
    ASSERT_TRUE(writer->write(1, 34, std::span(b).subspan(34)));
    ASSERT_TRUE(writer->write(0, 0, pattern(12, 1)));
    ASSERT_TRUE(writer->write(1, 0, std::span(b).first(34)));
    ASSERT_TRUE(writer->finish());
}

TEST(GgufWriterTest, TheReaderReadsWhatWasWritten) {
    const TempFolder folder;
    write_good(folder / "m.gguf");
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file) << file.error().text();
    const GgufMetadata& metadata = file->metadata();
    EXPECT_EQ(metadata.get_string("general.architecture"), "test");
    EXPECT_EQ(metadata.get_u32("u32"), 7U);
    EXPECT_EQ(metadata.get_i32("i32"), -7);
    EXPECT_EQ(metadata.get_u32("u16"), 9U);
    EXPECT_EQ(metadata.get_f32("f32"), 0.5F);
    EXPECT_EQ(metadata.get_bool("bool"), true);
    EXPECT_THAT(metadata.get_strings("strings").value(), ElementsAre("a", "", "b"));
    EXPECT_THAT(metadata.get_i32s("i32s").value(), ElementsAre(1, -2));
    ASSERT_EQ(file->tensors().size(), 3U);
    const GgufTensor& b = file->tensors()[1];
    EXPECT_EQ(b.shape_text(), "[32, 2]");
    EXPECT_EQ(Bytes(b.data, b.data + b.bytes), pattern(68, 100));
}

TEST(GgufWriterTest, LaysTensorsOutInOrderWithoutHoles) {
    const TempFolder folder;
    write_good(folder / "m.gguf");
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    const std::uint64_t start = file->parts()[0].data_start;
    EXPECT_EQ(file->tensors()[0].file_offset, start);
    EXPECT_EQ(file->tensors()[1].file_offset, start + 32);
    EXPECT_EQ(file->tensors()[2].file_offset, start + 32 + 96);
    EXPECT_EQ(file->parts()[0].bytes, start + 32 + 96 + 32);
    EXPECT_EQ(gguf_data_bytes(some_specs()), 32U + 96U + 32U);
}

TEST(GgufWriterTest, CopiedEntriesKeepTheirBytes) {
    const Parsed source(small_valid().bytes());
    ASSERT_TRUE(source.header);
    GgufKeyValues values;
    Bytes expected;
    for (const GgufEntry& one : source.header->entries)
        values.set_copy(one);
    for (const Bytes& one : small_valid().entries)
        expected.insert(expected.end(), one.begin(), one.end());
    EXPECT_EQ(Bytes(values.bytes().begin(), values.bytes().end()), expected);
    EXPECT_EQ(values.count(), 14U);
}

TEST(GgufWriterTest, NothingAppearsBeforeTheFileIsFinished) {
    const TempFolder folder;
    write_file(folder / "m.gguf", pattern(10, 0));
    {
        auto writer = GgufWriter::create(folder / "m.gguf", some_key_values(), some_specs());
        ASSERT_TRUE(writer);
        ASSERT_TRUE(writer->write(0, 0, pattern(12, 1)));
        EXPECT_EQ(read_file(folder / "m.gguf"), pattern(10, 0)) << "the old file is still there";
    }
    EXPECT_EQ(read_file(folder / "m.gguf"), pattern(10, 0));
    EXPECT_EQ(folder.file_count(), 1U) << "the unfinished file is removed";
}

TEST(GgufWriterTest, AModelWithoutTensorsIsAFile) {
    const TempFolder folder;
    auto writer = GgufWriter::create(folder / "m.gguf", some_key_values(), {});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->finish());
    EXPECT_TRUE(GgufFile::open(folder / "m.gguf"));
}

TEST(GgufWriterTest, AFolderThatDoesNotExistIsAnError) {
    const TempFolder folder;
    const auto writer = GgufWriter::create(folder / "no/m.gguf", some_key_values(), some_specs());
    ASSERT_FALSE(writer);
    EXPECT_EQ(writer.error().kind, GgufErrorKind::kIo);
    EXPECT_THAT(writer.error().text(), HasSubstr("no/m.gguf"));
}

TEST(GgufWriterTest, ManyThreadsMayWriteAtOnce) {
    const TempFolder folder;
    constexpr std::size_t kRows = 64;
    auto writer = GgufWriter::create(folder / "m.gguf", {}, {{"t", DType::kF32, {256, kRows}}});
    ASSERT_TRUE(writer);
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t row = t; row < kRows; row += 4)
                EXPECT_TRUE(writer->write(0, row * 1024, Bytes(1024, std::byte(row))));
        });
    }
    threads.clear();
    ASSERT_TRUE(writer->finish());
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    for (std::size_t row = 0; row < kRows; ++row)
        EXPECT_EQ(file->tensors()[0].data[row * 1024 + 1023], std::byte(row));
}

}  // namespace
}  // namespace replica
