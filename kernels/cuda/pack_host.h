// Packing on the host: the same index maps as on the device, byte by byte. For tests, and for tools
// that have no GPU; loading uses the device's packer.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/packed.h"

namespace kernels::cuda {

/// Does the type have a packed order, and do rows of `k` inputs fit it?
bool is_packable(DType dtype, std::int64_t k);
/// Bytes of one record of 16 rows x 256 inputs.
std::int64_t record_bytes(DType dtype);
std::int64_t record_count(std::int64_t k);  // along K
std::int64_t tile_count(std::int64_t rows);
/// Bytes of `rows` packed rows.
std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t k);

std::vector<std::uint8_t> pack_on_host(DType dtype, const PackSource& source);
/// The file's bytes of all rows, one after the other; with a partner, its rows after those of the
/// first. Only the counts of `shape` are read.
std::vector<std::uint8_t> unpack_on_host(DType dtype, const PackSource& shape,
                                         const std::vector<std::uint8_t>& packed);

}  // namespace kernels::cuda
