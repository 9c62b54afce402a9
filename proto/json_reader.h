// json_reader: untrusted JSON, read strictly and within limits.
//
// One pass over the bytes checks everything and builds the tree as it goes; nothing is allocated
// beyond what the limits allow, and the stack depth is bounded by `depth_max`. Refused, each with
// the byte offset in the message: bytes after the value, BOM, NaN and Infinity, duplicate keys,
// broken UTF-8, lone surrogates, too many levels, members or values, integers beyond 64 bits.
// Integers and floats stay apart: 5 is an integer, 5.0 a float.
#pragma once

#include <string_view>

#include "proto/error.h"
#include "proto/json.h"
#include "proto/limits.h"

namespace proto {

struct JsonLimits {
    int depth_max = kJsonDepthMax;              // levels of arrays and objects
    std::size_t members_max = kJsonMembersMax;  // of one object
    std::size_t values_max = kJsonValuesMax;    // in all
    std::size_t key_bytes_max = kJsonKeyBytesMax;
};

/// The value in `text`, or the error a client is to see (codes invalid_json, json_too_deep,
/// duplicate_key, invalid_value).
Result<Json> read_json(std::string_view text, const JsonLimits& limits = {});

/// The same, and the value must be an object.
Result<Json> read_json_object(std::string_view text, const JsonLimits& limits = {});

}  // namespace proto
