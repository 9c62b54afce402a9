// Token pieces in, whole UTF-8 characters out. A token may end in the middle of a character: its
// bytes, at most 3, wait for the next token. Bytes that cannot become a character give one U+FFFD
// per maximal ill-formed part (Unicode 15, section 3.9), so the text does not depend on how the
// bytes were cut into tokens.
#pragma once

#include <string>
#include <string_view>

namespace replica {

/// One generation's text; not thread-safe.
class StreamDecoder {
public:
    /// Appends the whole characters that `bytes` completes to `text`.
    void feed(std::string_view bytes, std::string& text);
    /// The generation is over: a waiting incomplete character becomes one U+FFFD.
    void finish(std::string& text);
    /// Bytes that wait, 0..3.
    std::string_view pending() const { return pending_; }

private:
    std::string pending_;
};

}  // namespace replica
