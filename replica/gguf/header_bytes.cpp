#include "replica/gguf/header_bytes.h"

#include <algorithm>
#include <cassert>
#include <span>

#include "replica/gguf/reader.h"

namespace replica {
namespace {

constexpr std::uint64_t kHeaderPieceBytes = 1U << 20;

}  // namespace

HeaderBytes::HeaderBytes(const InputFile& file)
    : name_(file.path().string()), file_(&file), file_size_(file.size()) {}

HeaderBytes::HeaderBytes(std::string name, std::vector<std::byte> bytes)
    : name_(std::move(name)), file_size_(bytes.size()), bytes_(std::move(bytes)) {}

GgufResult<void> HeaderBytes::ensure(std::uint64_t end) {
    assert(end <= file_size_ && "the cursor checked the file's size");
    const std::uint64_t have = bytes_.size();
    if (end <= have) return {};
    // Growing by half keeps the total of copies linear; never past the file's end.
    const std::uint64_t wanted = std::max(end, have + std::max(have / 2, kHeaderPieceBytes));
    bytes_.resize(std::min(wanted, file_size_));
    return file_->read_at(have, std::span(bytes_).subspan(have));
}

void HeaderCursor::fail(GgufErrorKind kind, std::string why, std::string fix) {
    if (failed_) return;
    failed_ = true;
    const std::string place = place_.empty() ? "" : place_ + ", ";
    error_ = {kind, std::string(file_name()) + ": " + place + "byte " + std::to_string(position_),
              std::move(why), std::move(fix)};
}

void HeaderCursor::fail(std::string why) {
    fail(GgufErrorKind::kMalformed, std::move(why),
         "the file is damaged or incomplete: fetch or convert it again");
}

const std::byte* HeaderCursor::take(std::uint64_t count) {
    if (failed_) return nullptr;
    if (count > remaining()) {
        fail("needs " + std::to_string(count) + " bytes, the file has " +
             std::to_string(remaining()) + " left");
        return nullptr;
    }
    if (position_ + count > kGgufHeaderBytesMax) {
        fail(GgufErrorKind::kUnsupported,
             "the header is longer than " + std::to_string(kGgufHeaderBytesMax) + " bytes",
             "no real model needs that: check where the file comes from");
        return nullptr;
    }
    if (GgufResult<void> ensured = bytes_.ensure(position_ + count); !ensured) {
        failed_ = true;
        error_ = ensured.error();
        return nullptr;
    }
    return bytes_.data() + std::exchange(position_, position_ + count);
}

std::string_view HeaderCursor::read_string(std::uint64_t bytes_max) {
    const auto length = read<std::uint64_t>();
    if (length > bytes_max) {
        fail("a string of " + std::to_string(length) + " bytes, at most " +
             std::to_string(bytes_max) + " are allowed here");
    }
    const std::byte* at = take(length);
    if (at == nullptr) return {};
    return {reinterpret_cast<const char*>(at), static_cast<std::size_t>(length)};
}

}  // namespace replica
