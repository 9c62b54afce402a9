// Proves that files on disk open as one model, split ones included, and that whatever does not fit
// together is refused with its reason.
#include "replica/gguf/reader.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using testing::HasSubstr;
using namespace test;

TEST(GgufReaderTest, OpensAFileAndFindsTensorsByName) {
    const TempFolder folder;
    Bytes bytes = small_valid().bytes();
    bytes[bytes.size() - 1] = std::byte{42};  // last code of second.weight
    write_file(folder / "m.gguf", bytes);
    for (const GgufData data : {GgufData::kMap, GgufData::kCopy}) {
        const auto file = GgufFile::open(folder / "m.gguf", {.data = data});
        ASSERT_TRUE(file) << file.error().text();
        EXPECT_EQ(file->metadata().get_string("general.architecture"), "test");
        const GgufTensor* tensor = file->find_tensor("second.weight");
        ASSERT_NE(tensor, nullptr);
        EXPECT_EQ(tensor->shape_text(), "[32]");
        EXPECT_EQ(tensor->data[33], std::byte{42});
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data) % 8, 0U);
        EXPECT_EQ(file->find_tensor("third.weight"), nullptr);
        EXPECT_EQ(file->get_tensor("third.weight").error().kind, GgufErrorKind::kMissing);
        EXPECT_EQ(file->tensor_bytes(), 98U);
        EXPECT_TRUE(file->check_unchanged());
    }
}

TEST(GgufReaderTest, ViewsSurviveAMoveOfTheFile) {
    const TempFolder folder;
    write_file(folder / "m.gguf", small_valid().bytes());
    auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    const std::string_view architecture = *file->metadata().get_string("general.architecture");
    const GgufFile moved = std::move(*file);
    EXPECT_EQ(architecture, "test");
    EXPECT_NE(moved.find_tensor("first.weight"), nullptr);
}

TEST(GgufReaderTest, RefusesWhatIsNoRegularFile) {
    const TempFolder folder;
    EXPECT_THAT(GgufFile::open(folder / "none.gguf").error().text(), HasSubstr("check the path"));
    EXPECT_THAT(GgufFile::open(folder / ".").error().text(), HasSubstr("no regular file"));
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(GgufFile::open(folder / "pipe").error().text(), HasSubstr("no regular file"))
        << "and must not wait for a writer";
    write_file(folder / "empty.gguf", {});
    EXPECT_THAT(GgufFile::open(folder / "empty.gguf").error().text(), HasSubstr("24 bytes"));
}

TEST(GgufReaderTest, NoticesAFileThatChangesItsSize) {
    const TempFolder folder;
    write_file(folder / "m.gguf", small_valid().bytes());
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    std::filesystem::resize_file(folder / "m.gguf", 100);
    EXPECT_THAT(file->check_unchanged().error().text(), HasSubstr("changed its size"));
    EXPECT_EQ(file->metadata().get_string("general.architecture"), "test")
        << "metadata is a copy and outlives the file";
}

TEST(GgufReaderTest, ReadsHeadersLongerThanOnePiece) {
    const TempFolder folder;
    RawGguf raw = small_valid();
    Bytes list;
    constexpr std::uint64_t kCount = 200000;
    for (std::uint64_t i = 0; i < kCount; ++i)
        put_string(list, "token " + std::to_string(i));
    raw.entries.insert(raw.entries.begin(), array_entry("tokens", 8, kCount, list));
    write_file(folder / "m.gguf", raw.bytes());
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file) << file.error().text();
    const auto tokens = file->metadata().get_strings("tokens");
    ASSERT_EQ(tokens->size(), kCount);
    EXPECT_EQ(tokens->back(), "token 199999");
}

// ---------------------------------------------------------------------------------------------
// Split models

struct PartKeys {
    std::uint16_t no, count;
    std::int32_t tensors;
};

RawGguf part(const PartKeys& keys, const std::string& tensor) {
    RawGguf raw;
    raw.entries = {entry("split.no", 2, keys.no), entry("split.count", 2, keys.count),
                   entry("split.tensors.count", 5, keys.tensors)};
    if (keys.no == 0) raw.entries.push_back(string_entry("general.architecture", "test"));
    if (!tensor.empty()) {
        raw.tensors = {{tensor, {8}, 0, 0, {}}};
        raw.data_bytes = 32;
    }
    return raw;
}

constexpr const char* kPart1 = "m-00001-of-00003.gguf";
constexpr const char* kPart2 = "m-00002-of-00003.gguf";
constexpr const char* kPart3 = "m-00003-of-00003.gguf";

/// Part 1 has metadata only, 2 and 3 one tensor each.
void write_good_parts(const TempFolder& folder) {
    write_file(folder / kPart1, part({0, 3, 2}, "").bytes());
    write_file(folder / kPart2, part({1, 3, 2}, "a").bytes());
    write_file(folder / kPart3, part({2, 3, 2}, "b").bytes());
}

std::string error_of_opening(const TempFolder& folder, const char* name = kPart1) {
    const auto file = GgufFile::open(folder / name);
    return file ? "" : file.error().text();
}

TEST(GgufSplitTest, ThePartsOfASplitModelOpenAsOne) {
    const TempFolder folder;
    write_good_parts(folder);
    const auto file = GgufFile::open(folder / kPart1);
    ASSERT_TRUE(file) << file.error().text();
    EXPECT_EQ(file->parts().size(), 3U);
    EXPECT_EQ(file->tensors().size(), 2U);
    EXPECT_EQ(file->find_tensor("b")->part, 2U);
    EXPECT_EQ(file->metadata().get_string("general.architecture"), "test");
}

TEST(GgufSplitTest, AnotherPartThanTheFirstNamesTheFirst) {
    const TempFolder folder;
    write_good_parts(folder);
    EXPECT_THAT(error_of_opening(folder, kPart2), HasSubstr("part 2 of 3"));
    EXPECT_THAT(error_of_opening(folder, kPart2), HasSubstr("-00001-of-00003.gguf"));
}

TEST(GgufSplitTest, AMissingPartIsNamed) {
    const TempFolder folder;
    write_good_parts(folder);
    std::filesystem::remove(folder / kPart3);
    EXPECT_THAT(error_of_opening(folder), HasSubstr(kPart3));
}

TEST(GgufSplitTest, PartsThatDoNotBelongTogetherAreRefused) {
    const TempFolder folder;
    write_good_parts(folder);
    write_file(folder / kPart2, part({2, 3, 2}, "a").bytes());
    EXPECT_THAT(error_of_opening(folder), HasSubstr("says it is part 3 of 3, expected part 2"));
    write_file(folder / kPart2, part({1, 4, 2}, "a").bytes());
    EXPECT_THAT(error_of_opening(folder), HasSubstr("part 2 of 4"));
    write_file(folder / kPart2, part({1, 3, 2}, "b").bytes());
    EXPECT_THAT(error_of_opening(folder), HasSubstr("tensor b occurs in more than one part"));
    write_file(folder / kPart2, small_valid().bytes());
    EXPECT_THAT(error_of_opening(folder), HasSubstr("expected part 2 of 3"));
    write_file(folder / kPart2, {});
    EXPECT_THAT(error_of_opening(folder), HasSubstr(kPart2));
}

TEST(GgufSplitTest, TheAnnouncedNumberOfTensorsMustBeThere) {
    const TempFolder folder;
    write_good_parts(folder);
    write_file(folder / kPart1, part({0, 3, 3}, "").bytes());
    EXPECT_THAT(error_of_opening(folder), HasSubstr("3 were announced"));
    write_file(folder / kPart1, part({0, 3, -1}, "").bytes());
    EXPECT_NE(error_of_opening(folder), "");
}

TEST(GgufSplitTest, ARenamedFirstPartSaysWhatNamesAreNeeded) {
    const TempFolder folder;
    write_good_parts(folder);
    std::filesystem::rename(folder / kPart1, folder / "model.gguf");
    EXPECT_THAT(error_of_opening(folder, "model.gguf"), HasSubstr("-00001-of-00003.gguf"));
}

TEST(GgufSplitTest, AHugeNumberOfPartsIsRefused) {
    const TempFolder folder;
    write_file(folder / "m-00001-of-65535.gguf", part({0, 65535, 1}, "a").bytes());
    EXPECT_THAT(error_of_opening(folder, "m-00001-of-65535.gguf"), HasSubstr("at most 1024"));
}

}  // namespace
}  // namespace replica
