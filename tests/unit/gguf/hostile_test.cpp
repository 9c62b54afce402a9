// Proves that no damage to a file makes the reader crash: a valid file is cut at every byte, and
// every byte of its header takes every other value. Whatever opens then must be consistent: all
// data inside the file. Under the sanitizers this also proves that nothing is read out of bounds.
#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "kernels/quant/decode.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/value.h"
#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using namespace test;

/// Touches everything an accepted header offers.
void expect_consistent(const GgufHeader& header, std::uint64_t file_size) {
    std::size_t text_bytes = 0;
    for (const GgufEntry& entry : header.entries)
        text_bytes += value_text(entry, 4, 16).size();
    EXPECT_LT(text_bytes, 100000U);
    for (const GgufTensor& tensor : header.tensors) {
        ASSERT_LE(tensor.file_offset, file_size) << tensor.name;
        ASSERT_LE(tensor.bytes, file_size - tensor.file_offset) << tensor.name;
        ASSERT_GE(tensor.elements(), 1);
    }
}

TEST(GgufHostileTest, AFileCutAnywhereIsRefused) {
    const Bytes whole = small_valid().bytes();
    ASSERT_EQ(error_of(whole), "");
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const auto end = whole.begin() + static_cast<std::ptrdiff_t>(size);
        EXPECT_NE(error_of(Bytes(whole.begin(), end)), "") << "cut at " << size;
    }
}

TEST(GgufHostileTest, AFileOnDiskCutAnywhereIsRefused) {
    const TempFolder folder;
    const Bytes whole = small_valid().bytes();
    const auto path = folder / "cut.gguf";
    write_file(path, whole);
    for (std::size_t size = whole.size(); size-- > 0;) {
        std::filesystem::resize_file(path, size);
        EXPECT_FALSE(GgufFile::open(path)) << "cut at " << size;
    }
}

TEST(GgufHostileTest, NoChangedByteOfTheHeaderDoesHarm) {
    const RawGguf raw = small_valid();
    const Bytes whole = raw.bytes();
    const std::size_t header_bytes = raw.header().size();
    Bytes damaged = whole;
    for (std::size_t at = 0; at < header_bytes; ++at) {
        for (int step = 1; step < 256; ++step) {
            damaged[at] = static_cast<std::byte>(static_cast<int>(whole[at]) + step);
            const Parsed parsed(damaged, {.allow_unsupported_types = step % 2 == 0});
            if (parsed.header) expect_consistent(*parsed.header, whole.size());
        }
        damaged[at] = whole[at];
    }
}

TEST(GgufHostileTest, NoChangedByteOfTheFileOnDiskDoesHarm) {
    const TempFolder folder;
    const RawGguf raw = small_valid();
    Bytes bytes = raw.bytes();
    const auto path = folder / "damaged.gguf";
    for (std::size_t at = 0; at < raw.header().size(); ++at) {
        for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
            bytes[at] ^= flip;
            write_file(path, bytes);
            if (const auto file = GgufFile::open(path)) {
                for (const GgufTensor& tensor : file->tensors()) {
                    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
                    if (tensor.dtype != kernels::DType::kI32)
                        kernels::decode_row(tensor.dtype, tensor.data, values.data(),
                                            tensor.elements());
                }
            }
            bytes[at] ^= flip;
        }
    }
}

TEST(GgufHostileTest, EveryEightByteFieldSurvivesExtremeValues) {
    const RawGguf raw = small_valid();
    const Bytes whole = raw.bytes();
    const std::size_t header_bytes = raw.header().size();
    for (std::size_t at = 0; at + 8 <= header_bytes; ++at) {
        for (const std::uint64_t value :
             {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{1} << 63,
              ~std::uint64_t{0}, ~std::uint64_t{31}, std::uint64_t{0}}) {
            Bytes damaged = whole;
            const auto field = std::as_bytes(std::span(&value, 1));
            std::copy(field.begin(), field.end(),
                      damaged.begin() + static_cast<std::ptrdiff_t>(at));
            const Parsed parsed(std::move(damaged));
            if (parsed.header) expect_consistent(*parsed.header, whole.size());
        }
    }
}

TEST(GgufHostileTest, ALongArrayInAShortFileCostsNothing) {
    // The claim is checked against the file's size before anything is allocated.
    RawGguf raw;
    raw.entries = {array_entry("list", 8, 0x1fffffffffffffff, strings({"a"}))};
    EXPECT_NE(error_of(raw), "");
}

TEST(GgufHostileTest, ManyEqualKeysAreFoundQuickly) {
    RawGguf raw;
    for (int i = 0; i < 60000; ++i)
        raw.entries.push_back(entry("key" + std::to_string(i), 0, std::uint8_t{0}));
    EXPECT_EQ(error_of(raw), "");
    raw.entries.push_back(entry("key0", 0, std::uint8_t{0}));
    EXPECT_NE(error_of(raw), "");
}

}  // namespace
}  // namespace replica
