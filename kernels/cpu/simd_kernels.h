// The vector kernels, as tables of plain function pointers: each *_simd.cpp is compiled once per
// instruction set and hands out the table of the one this processor runs best.
//
// A kernel works on one thread and allocates nothing. What it adds up in which order depends on
// the length of a row alone, never on how many rows share the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/activations.h"
#include "kernels/tensor.h"

namespace kernels::cpu {

// ---------------------------------------------------------------------------------------------
// Rows

struct RowKernels {
    /// out = x / sqrt(mean(x^2) + eps) * weight; `out` may be `x`.
    void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t count,
                     float* out);
    /// Fills the record of one row. A group with a value that is not finite gets a NaN scale.
    void (*quantise)(const float* x, std::int64_t count, std::uint8_t* record);
    /// out = silu(gate) * up
    void (*swiglu)(const float* gate, const float* up, std::int64_t count, float* out);
};
RowKernels row_kernels();

// ---------------------------------------------------------------------------------------------
// Tiles of a matrix product: up to kTileRows rows of W times some columns (rows of activations).

inline constexpr int kTileRows = 16;
/// Distance of columns in a tile's result. Twice the rows: kernels store whole vectors, and a tile
/// may be put together from pieces that begin anywhere in it.
inline constexpr std::size_t kTileStride = 2 * kTileRows;
/// Columns per call: their activations stay in the second cache while W streams past.
inline constexpr int kColumnBlock = 64;

struct Tile {
    const std::uint8_t* blocks = nullptr;  // first row of W
    std::int64_t row_bytes = 0;
    std::int64_t k = 0;
    int rows = 0;                                 // 1..kTileRows
    int columns = 0;                              // 1..kColumnBlock
    const std::uint8_t* const* column = nullptr;  // [columns] records, or rows of f32
    std::uint8_t* panel = nullptr;                // kPanelBytes of this thread's scratch
    float* out = nullptr;                         // [columns, kTileStride]
};

/// Decoded weights of one tile: at most 512 values of 16 rows with scales and minima per 16 values.
inline constexpr std::size_t kPanelValues = 512;
inline constexpr std::size_t kPanelBytes =
    kTileRows * (kPanelValues + 2 * sizeof(float) * kPanelValues / 16);

using TileKernel = void (*)(const Tile& tile);

struct TileKernels {
    TileKernel kernel = nullptr;
    bool quantised_columns = false;  // columns are records, otherwise f32
};
/// The kernel of a type; `kernel` is null when there is none.
TileKernels quant_tile_kernel(DType dtype);
TileKernels float_tile_kernel(DType dtype);

// ---------------------------------------------------------------------------------------------
// Gated delta net: consecutive rows of one value head

inline constexpr int kConvKernelMax = 8;
inline constexpr int kDeltaRows = 16;      // rows of one call, at most
inline constexpr int kDeltaStateRows = 8;  // rows of S that walk through the call's rows together

struct DeltaRow {
    const float* taps[kConvKernelMax];  // rows of u, oldest first; null = zeros
    float decay;                        // exp(g)
    float beta;                         // after the sigmoid
    const float* z;                     // [S]
    float* y;                           // [S]
    // Of a row that may be taken back: where its update goes.
    float* key_out;    // [S] unit key; null = not wanted
    float* delta_out;  // [S]; null = the row is committed
};

/// The update an accepted row of the last verify step makes: S <- decay S + delta key^T.
struct DeltaUpdate {
    const float* key;    // [S]
    const float* delta;  // [S]
    float decay;
};

struct DeltaHead {
    int state_size = 0;  // S
    int conv_kernel = 0;
    float norm_eps = 0.0F;
    const float* conv_w = nullptr;                             // [conv_dim, conv_kernel]
    std::int64_t q_channel = 0, k_channel = 0, v_channel = 0;  // where the head's S channels begin
    const float* norm_weight = nullptr;                        // [S]
    float* state = nullptr;                                    // [S (value), S (key)], updated
    const DeltaUpdate* update = nullptr;                       // [updates], made before the rows
    int updates = 0;                                           // 0..kDeltaRows
    const DeltaRow* row = nullptr;                             // [rows]
    int rows = 0;                                              // 0..kDeltaRows
    bool commits = true;    // false: the rows leave `state` as the updates made it
    float* work = nullptr;  // [4 * rows + kDeltaStateRows, S]
};

struct DeltaKernels {
    void (*head)(const DeltaHead& head);
};
DeltaKernels delta_kernels();

// ---------------------------------------------------------------------------------------------
// Attention of some queries over the pages of their KV head

inline constexpr int kAttentionQueries = 16;  // of one call: heads of a row, or of several rows
inline constexpr int kAttentionStretch = 64;  // tokens read at a time; a page of more is cut

struct AttentionQueries {
    int queries = 0;  // 1..kAttentionQueries, all of one sequence and KV head
    int head_dim = 0;
    bool kv_is_f16 = false;
    const float* q = nullptr;                // [queries, D], normed, rotated, scaled by 1/sqrt(D)
    std::int64_t tokens[kAttentionQueries];  // attended by each: 0..tokens-1; ascending
    const std::uint8_t* k = nullptr;         // the KV head's part of page 0
    const std::uint8_t* v = nullptr;
    std::int64_t page_bytes = 0;                // distance of pages
    const std::int32_t* block_table = nullptr;  // of the sequence
    int block_tokens = 0;
    float* stretch = nullptr;  // work memory [2, kAttentionStretch, D]
    float* out = nullptr;      // [queries, D]; also the running sum
};

struct AttentionKernels {
    void (*attend)(const AttentionQueries& queries);
    void (*store_f16)(const float* values, std::int64_t count, std::uint16_t* out);
    /// out = in * sigmoid(gate)
    void (*gate)(const float* in, const float* gate, std::int64_t count, float* out);
};
AttentionKernels attention_kernels();

// ---------------------------------------------------------------------------------------------
// Which instruction set

/// The one in use, as Highway names it: "AVX3_DL".
std::string simd_target();
/// All that were built and that this processor can run, best first.
std::vector<std::string> simd_targets();
/// Test hook: backends made from now on use this one; "" = the best again.
void set_simd_target_for_test(const std::string& name);

}  // namespace kernels::cpu
