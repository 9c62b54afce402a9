// One table of everything a GGUF tensor may consist of: name, values and bytes per block.
//
// Types we cannot compute with are listed too, so that a message can name them and a listing can
// give their sizes; `supported` tells them apart. Ids that are in no row were removed from the
// format or are unknown to us.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/tensor.h"

namespace kernels {

struct Format {
    std::uint32_t type_id;  // in the file; equals DType where supported
    std::string_view name;  // "IQ4_XS"
    std::int32_t block_values;
    std::int32_t block_bytes;  // 0 = size not known to us
    bool supported;            // has a DType; decode_row reads it (all but I32)
};

/// The row of a type id, or nullptr.
const Format* find_format(std::uint32_t type_id);

/// The row of a type we support.
const Format& format_of(DType dtype);

/// Case does not matter: "iq4_xs". Supported types only.
std::optional<DType> dtype_by_name(std::string_view name);

std::span<const Format> all_formats();

inline std::string_view name_of(DType dtype) {
    return format_of(dtype).name;
}

/// Bytes of `values` consecutive values; `values` must be whole blocks.
std::int64_t row_bytes(DType dtype, std::int64_t values);

}  // namespace kernels
