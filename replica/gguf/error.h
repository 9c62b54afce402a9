// What is wrong with a model file, in three parts a person can act on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace replica {

enum class GgufErrorKind {
    kIo,           // cannot open, read, map or write
    kMalformed,    // breaks a rule of the format
    kUnsupported,  // legal, but not for us: version 1, a tensor type without a decoder
    kMissing,      // a required key or tensor is absent
    kWrongValue,   // a key is there with another type or an impossible value
};

struct GgufError {
    GgufErrorKind kind = GgufErrorKind::kMalformed;
    std::string what;  // file, and the key, tensor or byte offset: "foal.gguf: tensor blk.0.attn_q"
    std::string why;   // the broken rule with its numbers
    std::string fix;   // what to do about it

    /// "what: why; fix" in one line.
    std::string text() const { return what + ": " + why + (fix.empty() ? "" : "; " + fix); }
};

/// Text of untrusted files goes into messages cut, and with `?` for all that is not printable
/// ASCII.
std::string printable(std::string_view text, std::size_t bytes_max = 80);

template <class T>
using GgufResult = tl::expected<T, GgufError>;

}  // namespace replica
