// What the fuzz targets share: the one entry they have, and how they read their input.
//
//   bytes ─▶ a few bytes that steer the target (format, flags, how to cut) ─▶ the text under test
//
// A target checks what must hold by `assert`; the sanitizers check the memory. libFuzzer calls the
// entry with inputs it makes; replay_main.cpp calls the same entry with the committed seeds, so
// that every finding is a plain test afterwards.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/utf8.h"

#ifdef NDEBUG
#error "the invariants of the fuzz targets are asserts"
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// Gives away its bytes from the front; zeros when there are none left.
class Input {
public:
    Input(const std::uint8_t* data, std::size_t size)
        : bytes_(reinterpret_cast<const char*>(data), size) {}

    std::uint8_t byte() {
        if (bytes_.empty()) return 0;
        const auto first = static_cast<std::uint8_t>(bytes_.front());
        bytes_.remove_prefix(1);
        return first;
    }
    /// Everything up to the next `end`, which goes too; all of it when there is none.
    std::string_view until(char end) {
        const std::string_view part = bytes_.substr(0, bytes_.find(end));
        bytes_.remove_prefix(std::min(part.size() + 1, bytes_.size()));
        return part;
    }
    std::string_view rest() const { return bytes_; }

private:
    std::string_view bytes_;
};

/// Hands `text` to `take` in pieces: single bytes for seed 0, else 1 to 16 bytes each, drawn from
/// the seed (the generator is Knuth's MMIX one).
template <class Take>
void in_pieces(std::string_view text, std::uint64_t seed, Take&& take) {
    std::uint64_t state = seed;
    while (!text.empty()) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const std::size_t wanted = seed == 0 ? 1 : 1 + static_cast<std::size_t>(state >> 60U);
        const std::size_t size = std::min(wanted, text.size());
        take(text.substr(0, size));
        text.remove_prefix(size);
    }
}

/// Whether a message is fit for a person's terminal: UTF-8, no control characters, not endless.
inline bool is_message(std::string_view text, std::size_t bytes_max) {
    if (text.empty() || text.size() > bytes_max) return false;
    if (proto::find_broken_utf8(text) != std::string_view::npos) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x20 || byte == 0x7F) return false;
        // U+0080 to U+009F are controls as well.
        if (byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0) return false;
    }
    return true;
}

}  // namespace fuzz
