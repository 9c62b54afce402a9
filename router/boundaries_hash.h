// SipHash-1-3 over a stream of values: 64 bits with a secret key, so that nobody outside can make
// two prompts collide on purpose. A collision would cost a wrong hint, never a wrong answer, so the
// rounds are those that hash tables use, half of the paper's 2-4: every byte of every prompt
// passes.
//
// Every value is fed with its kind and length: ("ab", "c") and ("a", "bc") differ.
// Source: Aumasson and Bernstein 2012, "SipHash: a fast short-input PRF".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace router {

struct SipKey {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

/// Copyable: a copy continues on its own, which is how one pass over a prompt yields the hash at
/// each of its boundaries.
class SipHasher {
public:
    explicit SipHasher(SipKey key);

    void add_bytes(std::string_view bytes);
    /// The bytes with their length in front.
    void add_text(std::string_view text);
    void add_number(std::uint64_t value);

    /// The hash of all that was added so far; more may follow.
    [[nodiscard]] std::uint64_t value() const;

private:
    /// The four words that the algorithm mixes.
    struct State {
        std::uint64_t v0, v1, v2, v3;
        void round();
        void add_word(std::uint64_t word);
    };

    State state_;
    std::uint64_t tail_ = 0;  // the bytes of an unfinished word
    std::size_t length_ = 0;
};

}  // namespace router
