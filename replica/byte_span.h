// A piece of a text by its bytes: what templates mark, tokenizers respect and parsers report.
#pragma once

#include <cstddef>

namespace replica {

/// Bytes [begin, end) of a text.
struct ByteSpan {
    std::size_t begin = 0, end = 0;
    friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

}  // namespace replica
