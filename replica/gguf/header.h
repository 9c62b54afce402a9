// Parsing and checking the header of one GGUF file. Private to this folder; the tests call it, too.
//
// The header's length is not known before it is parsed, so HeaderBytes reads the file piece by
// piece as the parser advances, and everything parsed refers to it by offset until it is complete.
#pragma once

#include <cstdint>
#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/header_bytes.h"
#include "replica/gguf/metadata.h"
#include "replica/gguf/reader.h"

namespace replica {

struct GgufHeader {
    std::uint32_t version = 0;
    std::uint64_t alignment = kGgufAlignmentDefault;
    std::uint64_t data_start = 0;
    std::vector<GgufEntry> entries;   // views into the HeaderBytes
    std::vector<GgufTensor> tensors;  // `data` and `part` not set; file_offset is
};

/// Rules 1 to 11 of the format's validation list (see reader.h).
GgufResult<GgufHeader> parse_header(HeaderBytes& bytes, const GgufOptions& options);

/// Smallest multiple of `alignment` (a power of two) that is not below `value`; false on overflow.
bool align_up(std::uint64_t value, std::uint64_t alignment, std::uint64_t& aligned);

}  // namespace replica
