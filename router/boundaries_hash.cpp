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
    : v0_(key.first ^ 0x736f6d6570736575U),
      v1_(key.second ^ 0x646f72616e646f6dU),
      v2_(key.first ^ 0x6c7967656e657261U),
      v3_(key.second ^ 0x7465646279746573U) {}

void SipHasher::round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
}

void SipHasher::add_word(std::uint64_t word) {
    v3_ ^= word;
    round();
    round();
    v0_ ^= word;
}

void SipHasher::add_bytes(std::string_view bytes) {
    std::size_t at = 0;
    while (at < bytes.size() && length_ % kWordBytes != 0) {
        tail_ |= std::uint64_t{static_cast<unsigned char>(bytes[at++])}
                 << (8 * (length_++ % kWordBytes));
        if (length_ % kWordBytes == 0) {
            add_word(tail_);
            tail_ = 0;
        }
    }
    for (; bytes.size() - at >= kWordBytes; at += kWordBytes, length_ += kWordBytes)
        add_word(word_at(bytes.data() + at));
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
    SipHasher end = *this;
    end.add_word(tail_ | (std::uint64_t{length_ & 0xff} << 56));
    end.v2_ ^= 0xff;
    for (int i = 0; i < 4; ++i)
        end.round();
    return end.v0_ ^ end.v1_ ^ end.v2_ ^ end.v3_;
}

}  // namespace router
