// `quadriga-gguf inspect`: a file's contents as text for people or as one JSON object.
#pragma once

#include <cstddef>
#include <string>

#include "replica/gguf/reader.h"

namespace replica {

struct InspectOptions {
    std::size_t elements_max = 8;        // shown of each array
    std::size_t string_bytes_max = 100;  // shown of each string
};

std::string inspect_text(const GgufFile& file, const InspectOptions& options);

/// {"files": [...], "metadata": {key: {type, value}}, "tensors": [...], "types": {...}, ...}.
/// Arrays longer than elements_max carry "count" and their first elements.
std::string inspect_json(const GgufFile& file, const InspectOptions& options);

}  // namespace replica
