// Tiles of delta_chunk.h in shared memory as operands of products, and where a slot's parts lie.
// Tiles are addressed in bytes of shared memory; the low tile lies `tile_bytes` behind the high
// one.
#pragma once

#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/split_bfloat.cuh"

namespace kernels::cuda {

/// Byte of piece `piece` of 16 bytes of row `row`, in a tile of any width.
__device__ inline int tile_place(int row, int piece) {
    return piece / 8 * kPanelBytes + row * 128 + ((piece % 8) ^ (row & 7)) * 16;
}

/// Where a value of a half of V lies: pieces of 16 bytes of a row at piece xor (row / 2 mod 4) * 2,
/// so that lanes that read 8 values of 4 rows two apart meet all banks.
__device__ inline int value_place(int row, int value) {
    return row * kChunkHalf + ((value / 4) ^ (row / 2 % 4 * 2)) * 4 + value % 4;
}

__device__ inline SplitRight load_right(std::uint32_t address, int tile_bytes) {
    SplitRight right;
    load_matrices(right.high, address);
    load_matrices(right.low, address + tile_bytes);
    return right;
}

/// The right operand X^T: columns of the product are rows 16 n .. 16 n + 15 of the tile, its inner
/// dimension columns 16 k .. 16 k + 15.
__device__ inline SplitRight right_of_rows(std::uint32_t tile, int tile_bytes, int n, int k,
                                           int lane) {
    const int row = 16 * n + lane / 16 * 8 + lane % 8;
    return load_right(tile + tile_place(row, 2 * k + lane / 8 % 2), tile_bytes);
}
/// The right operand X: columns of the product are columns of the tile, its inner dimension rows.
__device__ inline SplitRight right_of_columns(std::uint32_t tile, int tile_bytes, int n, int k,
                                              int lane) {
    const int row = 16 * k + lane / 8 % 2 * 8 + lane % 8;
    const std::uint32_t address = tile + tile_place(row, 2 * n + lane / 16);
    SplitRight right;
    load_transposed(right.high, address);
    load_transposed(right.low, address + tile_bytes);
    return right;
}
/// The left operand: rows 16 m .. of the tile, inner dimension columns 16 k ..
__device__ inline SplitLeft left_of_rows(std::uint32_t tile, int tile_bytes, int m, int k,
                                         int lane) {
    const int row = 16 * m + lane / 8 % 2 * 8 + lane % 8;
    const std::uint32_t address = tile + tile_place(row, 2 * k + lane / 16);
    SplitLeft left;
    load_matrices(left.high, address);
    load_matrices(left.low, address + tile_bytes);
    return left;
}

struct ChunkSlot {
    std::uint8_t* at;
    int n_k;
    __device__ ChunkSlot(const DeltaChunkParams& p, int slot)
        : at(p.scratch + slot * p.slot_bytes), n_k(p.net.n_k) {}
    __device__ std::uint8_t* keys(int key_head) const {
        return at + static_cast<std::int64_t>(key_head) * kChunkKeyHeadBytes;
    }
    __device__ std::uint8_t* queries(int key_head) const {
        return keys(key_head) + 2 * kWideTileBytes;
    }
    __device__ std::uint8_t* inverse(int head) const {
        return at + static_cast<std::int64_t>(n_k) * kChunkKeyHeadBytes +
               static_cast<std::int64_t>(head) * kChunkValueHeadBytes;
    }
    __device__ std::uint8_t* answers(int head) const {
        return inverse(head) + 2 * kSquareTileBytes;
    }
    __device__ std::uint8_t* values(int head, int half) const {
        return inverse(head) + 4 * kSquareTileBytes + half * kChunkValueBytes;
    }
    __device__ std::uint8_t* gates(int head) const {
        return inverse(head) + 4 * kSquareTileBytes + 2 * kChunkValueBytes;
    }
};

}  // namespace kernels::cuda
