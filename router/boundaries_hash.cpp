#include "router/boundaries_hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace router {
namespace {

constexpr std::size_t kWordBytes = 8;

/// The eight bytes as a number, lowest first, on any machine.
std::uint64_t word_at(const char* bytes) {
    static_assert(std::endian::native == std::endian::little, "a copy is the little-endian word");
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, kWordBytes);
    return word;
}

}  // namespace

SipHasher::SipHasher(SipKey key)
    : state_{.v0 = key.first ^ 0x736f6d6570736575U,
             .v1 = key.second ^ 0x646f72616e646f6dU,
             .v2 = key.first ^ 0x6c7967656e657261U,
             .v3 = key.second ^ 0x7465646279746573U} {}

inline void SipHasher::State::round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
}

inline void SipHasher::State::add_word(std::uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
}

void SipHasher::add_bytes(std::string_view bytes) {
    std::size_t at = 0;
    while (at < bytes.size() && length_ % kWordBytes != 0) {
        tail_ |= std::uint64_t{static_cast<unsigned char>(bytes[at++])}
                 << (8 * (length_++ % kWordBytes));
        if (length_ % kWordBytes == 0) {
            state_.add_word(tail_);
            tail_ = 0;
        }
    }
    // In registers for the length of a text: this loop sees every byte of every prompt.
    State state = state_;
    const std::size_t words_begin = at;
    for (; bytes.size() - at >= kWordBytes; at += kWordBytes)
        state.add_word(word_at(bytes.data() + at));
    length_ += at - words_begin;
    state_ = state;
    for (; at < bytes.size(); ++at, ++length_) {
        tail_ |= std::uint64_t{static_cast<unsigned char>(bytes[at])}
                 << (8 * (length_ % kWordBytes));
    }
}

void SipHasher::add_number(std::uint64_t value) {
    std::array<char, kWordBytes> bytes{};
    std::memcpy(bytes.data(), &value, bytes.size());
    add_bytes({bytes.data(), bytes.size()});
}

void SipHasher::add_text(std::string_view text) {
    add_number(text.size());
    add_bytes(text);
}

std::uint64_t SipHasher::value() const {
    State end = state_;
    end.add_word(tail_ | (std::uint64_t{length_ & 0xff} << 56));
    end.v2 ^= 0xff;
    for (int i = 0; i < 3; ++i)
        end.round();
    return end.v0 ^ end.v1 ^ end.v2 ^ end.v3;
}

}  // namespace router
