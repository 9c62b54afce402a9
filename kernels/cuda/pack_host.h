// Packing on the host: the same index maps as on the device, byte by byte. For tests, and for tools
// that have no GPU; loading uses the device's packer.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/lane_order.h"

namespace kernels::cuda {

/// Does the type have a packed order, and do rows of `k` inputs fit it?
bool is_packable(DType dtype, std::int64_t k);
/// Bytes of one record of a row tile x 256 inputs.
std::int64_t record_bytes(DType dtype, WeightOrder order = WeightOrder::kTiles);
std::int64_t record_count(std::int64_t k);  // along K
/// Rows of a tile: 16, or 32 where a lane owns a row.
std::int64_t tile_rows(WeightOrder order);
std::int64_t tile_count(std::int64_t rows, WeightOrder order = WeightOrder::kTiles);
/// Bytes of `rows` packed rows.
std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t k,
                          WeightOrder order = WeightOrder::kTiles);

std::vector<std::uint8_t> pack_on_host(DType dtype, const PackSource& source,
                                       WeightOrder order = WeightOrder::kTiles);
/// The file's bytes of all rows, one after the other; with a partner, its rows after those of the
/// first. Only the counts of `shape` are read.
std::vector<std::uint8_t> unpack_on_host(DType dtype, const PackSource& shape,
                                         const std::vector<std::uint8_t>& packed,
                                         WeightOrder order = WeightOrder::kTiles);

}  // namespace kernels::cuda
