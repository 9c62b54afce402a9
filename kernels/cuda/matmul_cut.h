// How a product of a packed matrix with few tokens is cut over blocks; host and device.
//
//     units in order:   group 0: k 0 1 2 .. | group 1: k 0 1 2 .. | ...      (group = 16 row tiles)
//     blocks:           └ block 0 ┘└ block 1 ┘└ block 2 ┘ ...                equal runs, to one
//     unit
//
// The cut depends on the matrix and the number of multiprocessors, never on the number of tokens:
// that makes a row's bits independent of the batch it stands in.
#pragma once

#include <cstdint>

namespace kernels::cuda {

inline constexpr int kMatmulUnitTiles = 16;     // row tiles of a unit
inline constexpr int kMatmulFewColumns = 8;     // blocks make their own x' up to here
inline constexpr int kMatmulColumnsMax = 64;    // tokens of one launch; more take several
inline constexpr int kMatmulThreads = 512;      // of matmul_mma: a warp owns a row tile of a unit
inline constexpr int kMatmulPartRows = 128;     // of 32 floats: parts of cut tiles within a block
inline constexpr int kMatmulInputsMax = 32768;  // squares of a row's records lie in shared memory

/// x' of one record for matmul_wide: [columns / 8] groups of four atoms of 1,024 bytes, each eight
/// columns of 64 inputs (matmul_wgmma.cuh).
inline constexpr int kWideAtomBytes = 1024;
inline constexpr int kWideGroupBytes = 4 * kWideAtomBytes;
constexpr int wide_stage_bytes(int columns) {
    return columns / 8 * kWideGroupBytes;
}
/// Of the ring, so that it fits beside the table.
constexpr int wide_stages(int columns) {
    return columns <= 32 ? 8 : 5;
}
constexpr int wide_columns(std::int64_t rows) {
    return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}
inline constexpr int kWideThreads = 512;  // a warp owns a row tile of a unit, four share columns

/// Products of units and blocks stay within 32 bits: a division of 64 takes a kernel 0.1 us, and a
/// launch makes twenty of them.
inline constexpr std::int32_t kMatmulUnitsMax = 1 << 22;
inline constexpr std::int32_t kMatmulBlocksMax = 1 << 10;

/// Units of (16 row tiles x 256 inputs) cut into runs. Host and device compute with it.
struct MatmulCut {
    std::int32_t groups;     // of row tiles
    std::int32_t k_records;  // units of a group
    std::int32_t blocks;

    constexpr std::int32_t units() const { return groups * k_records; }
    /// First unit of block `block`; of `blocks`: the number of units.
    constexpr std::int32_t begin(std::int32_t block) const {
        return static_cast<std::int32_t>(unsigned_of(block) * unsigned_of(units()) /
                                         unsigned_of(blocks));
    }
    constexpr std::int32_t block_of(std::int32_t unit) const {
        return static_cast<std::int32_t>(((unsigned_of(unit) + 1) * unsigned_of(blocks) - 1) /
                                         unsigned_of(units()));
    }
    /// Blocks that share a group, first to last.
    constexpr std::int32_t first_block(std::int32_t group) const {
        return block_of(group * k_records);
    }
    constexpr std::int32_t last_block(std::int32_t group) const {
        return block_of((group + 1) * k_records - 1);
    }
    constexpr std::int32_t first_group(std::int32_t block) const {
        return begin(block) / k_records;
    }

private:
    static constexpr std::uint32_t unsigned_of(std::int32_t value) {
        return static_cast<std::uint32_t>(value);
    }
};

}  // namespace kernels::cuda
