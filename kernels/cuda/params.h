// Parameters of every kernel, as host and device see them. A kernel takes one struct by value;
// addresses and capacities are in it, per-step values are read from the step in device memory, so
// that a captured launch stays right for the next step.
#pragma once

#include <cstdint>

namespace kernels::cuda {

/// The step descriptor on the device; addresses fixed since prepare (step_upload.h).
struct StepView {
    const std::int32_t* rows;           // [1] live rows
    const std::int32_t* seqs;           // [1]
    const std::int32_t* logit_rows;     // [1]
    const std::int32_t* table_stride;   // [1] entries of block_table per sequence
    const std::int32_t* token;          // [rows]
    const std::int32_t* position;       // [rows]
    const std::int32_t* seq_of_row;     // [rows]
    const std::int32_t* row_begin;      // [seqs + 1]
    const std::int32_t* kv_len_before;  // [seqs]
    const std::int32_t* state_slot;     // [seqs]
    const std::int32_t* replay_rows;    // [seqs]
    const std::int32_t* commit;         // [seqs] 1 or 0
    const std::int32_t* hidden_row;     // [rows]
    const std::int32_t* logit_row;      // [logit_rows]
    const std::int32_t* block_table;    // [seqs, table_stride]
};

inline constexpr int kSegmentsMax = 4;

/// Rows of one type within a matrix: the file's blocks, or packed records (packed.h).
struct SegmentView {
    const std::uint8_t* blocks;  // [outputs] rows of row_bytes; packed: [tiles, k_records] records
    std::int64_t row_bytes;      // of the file's rows
    std::int32_t first;          // row of the matrix at which it begins
    std::int32_t outputs;
    std::int32_t dtype;  // kernels::DType
    float unit;          // packed: a power of two that puts the largest weight below 2^15
    bool is_packed;
    bool is_interleaved;      // packed: tiles of 8 rows of the first half and 8 of the second
    bool has_lanes = false;   // packed: in the order of lane_order.h
    float half_scale = 0.0F;  // weights times this fit binary16 well (prefill_plan.h); 0 = do not
};

struct EmbedParams {
    StepView step;
    SegmentView segments[kSegmentsMax];
    std::int32_t segment_count;
    std::int32_t k;
    float* x;  // [rows, k]
    std::int64_t x_stride;
};

struct NormParams {
    const std::int32_t* rows;     // [1] how many live
    const std::int32_t* row_map;  // [rows] rows of x to take; null = in order
    const float* x;               // [*, k]
    std::int64_t x_stride;
    const float* weight;  // [k]; null = plain copy
    float eps;
    std::int32_t k;
    std::int32_t k_padded;  // columns k .. k_padded of y become zeros
    float* y;               // [rows, k_padded]; may be x itself when there is no row_map
    std::int64_t y_stride;
};

enum class LinearEpilogue : std::int32_t {
    kStore,
    kAdd,        // y += value
    kSiluTimes,  // y = silu(y) * value: the second half of SwiGLU finishes what the first stored
    kSwiGlu      // y = silu(first half) * second half; interleaved tiles only
};

struct LinearParams {
    const std::int32_t* rows;     // [1] live rows M
    const std::int32_t* row_map;  // [rows] rows of x to take; null = in order
    const std::uint8_t* blocks;   // [outputs] rows of row_bytes
    std::int64_t row_bytes;
    std::int32_t outputs;
    std::int32_t k;
    const float* x;  // [*, k rounded up to 8], 16-byte aligned rows
    std::int64_t x_stride;
    const float* bias;  // [outputs]; null = none
    float* y;           // [rows, outputs]
    std::int64_t y_stride;
    LinearEpilogue epilogue;
};

/// Rows of x of a product, as the seam gives them.
struct XInput {
    const float* x;  // [*, k]
    std::int64_t x_stride;
    const std::int32_t* row_map;  // [rows] rows of x to take; null = in order
    const float* weight;          // [k]; null = no RMSNorm
    float eps;
    std::int32_t k;
    bool is_paired;  // x and weight may be read by 8 bytes
};

/// Rows first_row + i as matmul_wide reads them, at place i.
struct PrepareXParams {
    const std::int32_t* rows;  // [1] live rows
    std::int32_t first_row;
    XInput input;
    std::int32_t k_records;
    std::int32_t columns;  // of the kernel that reads: the places of a stage
    std::uint8_t* y;       // [k_records] stages of wide_stage_bytes (matmul_cut.h)
    float* factors;        // [columns] the row's power of two, over its rms
};

/// The largest weight of packed records.
struct PeakParams {
    const std::uint8_t* records;
    std::int64_t count;
    unsigned* peak;  // [1] bits of a f32; zero before
};

struct MatmulParams {
    const std::int32_t* rows;     // [1] live rows
    std::int32_t first_row;       // of this launch
    const std::uint8_t* records;  // [tiles, k_records] of the type's record
    std::int32_t tiles, k_records;
    std::int32_t groups, blocks;  // the cut (matmul_cut.h)
    XInput input;                 // matmul_mma makes its own records of x
    const std::uint8_t* x;        // matmul_wide takes these, as in PrepareXParams
    const float* x_factors;
    std::int32_t window_slots;    // records of x in shared memory
    std::int32_t window_columns;  // rows of x in shared memory: all there are, up to eight
    std::int32_t pair_slots;      // matmul_pair: parts of a block that shared memory holds
    const float* bias;            // [outputs of the matrix]; null = none
    float* y;                     // [rows, *]; output `begin` of the matrix at column 0
    std::int64_t y_stride;
    std::int32_t outputs;       // of this segment
    std::int32_t first_output;  // of this segment in the matrix
    std::int32_t half;          // interleaved tiles: outputs / 2; else 0
    std::int32_t begin, end;    // outputs of the matrix that are stored; not for kSwiGlu
    LinearEpilogue epilogue;
    float weight_unit;        // matmul_wide: the matrix's power of two; factors undo it
    float* partials;          // matmul_plan.h: partial_floats
    std::uint32_t* arrivals;  // [tiles] zero between launches
};

/// Rows first_row + i as the kernels of sm_70 read them, at place i: int8 with a scale per 32
/// inputs for matmul_dp4a, binary16 for matmul_hmma. Places without a row become zeros.
struct PrepareLanesParams {
    const std::int32_t* rows;  // [1] live rows
    std::int32_t first_row;
    XInput input;
    std::int32_t slabs;    // of 32 inputs, whole stretches
    std::int32_t columns;  // places of a slab
    void* x;               // [slabs][columns] 32 int8, or 32 binary16 whose 16 bytes are swizzled
    void* sides;           // int8: [slabs][columns] LaneSide; binary16: [slabs][columns] f32, sums
    float* factors;        // binary16: [columns] the row's power of two, over its rms
};

/// Of 32 quantised inputs q: x = scale * q.
struct alignas(16) LaneSide {
    float scale;
    std::int32_t sums[2];  // of q over the first and the last sixteen
    float sum;             // scale times both
};

/// A segment whose records lie in the order of lane_order.h, times up to 64 rows.
struct LaneMatmulParams {
    const std::int32_t* rows;     // [1] live rows
    std::int32_t first_row;       // of this launch
    const std::uint8_t* records;  // [tiles, k_records]
    std::int32_t tiles, k_records;
    std::int32_t stretches;  // of 128 inputs
    std::int32_t columns;    // places of x in a slab
    std::int32_t splits;     // parts of K; above one, sums go to `partials` (matmul_hmma)
    const void* x;           // as in PrepareLanesParams
    const void* sides;
    const float* factors;
    float* partials;    // [splits][columns][tiles * 32]
    const float* bias;  // [outputs of the matrix]; null = none
    float* y;           // [rows, *]; output `begin` of the matrix at column 0
    std::int64_t y_stride;
    std::int32_t outputs;       // of this segment
    std::int32_t first_output;  // of this segment in the matrix
    std::int32_t begin, end;    // outputs of the matrix that are stored
    LinearEpilogue epilogue;    // not kSwiGlu
};

/// W as binary16: packed records (tiles of 16 rows) or the file's rows.
struct DequantiseParams {
    const std::uint8_t* from;
    std::int64_t row_bytes;  // of the file's rows
    std::int32_t tiles;      // of records; file: rows
    std::int32_t k_records;  // packed only
    std::int32_t k;          // file only
    float scale;             // a power of two
    std::uint16_t* y;        // [rows, ld] binary16
    std::int64_t ld;
    std::uint32_t* largest;  // [1] bits of the largest |scale * w| so far; the other kernel
};

// Threads of cast_rows, and of cast_rows_short, which takes rows of up to so many inputs.
inline constexpr int kCastThreads = 512;
inline constexpr int kCastShortThreads = 256, kCastShortInputs = 3 * 8 * kCastShortThreads;
/// Outputs of a thread of finish_sums.
inline constexpr int kFinishColumns = 4;

/// Rows of x as cuBLASLt reads them.
struct CastRowsParams {
    const std::int32_t* rows;  // [1] live rows
    XInput input;
    bool is_wide;             // x may be read by 16 bytes
    std::uint16_t* x16;       // [rows, ld] binary16
    std::int64_t ld;          // k rounded up to 64
    std::int32_t* exponents;  // [rows]
    float* added;             // [rows, added_columns] that the product is added to; null = none
    std::int64_t added_stride;
    std::int32_t added_columns;
};

struct FinishParams {
    const std::int32_t* rows;  // [1] live rows
    const std::int32_t* exponents;
    const float* sums;  // [rows, columns], SwiGLU twice as many; finish_sums only
    std::int64_t sums_stride;
    const float* bias;  // of the first column; null = none
    std::int32_t half;  // SwiGLU: outputs of one half
    float* y;           // [rows, columns]
    std::int64_t y_stride;
    std::int32_t columns;
    LinearEpilogue epilogue;
    bool is_wide;  // finish_sums may read and write y by 16 bytes
};

/// Two segments of a matrix as one launch (matmul_mixed.cu).
struct MatmulMixedParams {
    MatmulParams first, second;
};

/// Repacks file rows that lie on the device (packed.h).
struct PackParams {
    const std::uint8_t* rows;
    const std::uint8_t* partner;  // null = not interleaved
    std::int64_t row_bytes;
    std::int32_t row_count;
    std::int32_t k;
    std::int64_t tiles;
    std::int32_t k_records;
    std::uint8_t* packed;  // [tiles, k_records] records
};

struct DeltaNetParams {
    StepView step;
    std::int32_t n_k, n_v, state_size, conv_kernel;
    bool is_grouped;  // value head j reads key head j div (n_v/n_k), else j mod n_k
    float norm_eps;
    const float* u;  // [rows, conv_dim]
    std::int64_t u_stride;
    const float* z;  // [rows, n_v * state_size]
    std::int64_t z_stride;
    const float* beta;  // [rows, n_v]
    std::int64_t beta_stride;
    const float* alpha;  // [rows, n_v]
    std::int64_t alpha_stride;
    const float* conv_w;       // [conv_dim, conv_kernel]
    const float* dt_bias;      // [n_v]
    const float* a;            // [n_v]
    const float* norm_weight;  // [state_size]
    float* state;              // [slots, n_v, state_size (value), state_size (key)]
    std::int64_t state_stride;
    float* conv_ring;  // [slots, ring, conv_dim], position p at row p mod ring
    std::int64_t conv_ring_stride;
    std::int32_t ring;
    float* replay;  // [slots, *, replay_row]: unit keys, deltas, decays of a row
    std::int64_t replay_stride;
    std::int64_t replay_row;  // n_k * state_size + n_v * state_size + n_v
    float* keys;              // [rows, n_k * state_size] scratch: keys on their way to `replay`
    std::int64_t keys_stride;
    float* y;  // [rows, n_v * state_size]
    std::int64_t y_stride;
    std::int32_t rows_above;  // plain kernels: sequences of no more rows are not theirs
};

struct AttentionParams {
    StepView step;
    std::int32_t n_h, n_kv, head_dim, n_rot, block_tokens;
    bool has_gate, is_adjacent, is_f16;
    // The plain kernels leave sequences with fewer or more rows alone.
    std::int32_t seq_rows_min, seq_rows_max;
    float norm_eps;
    const float* q;  // [rows, n_h * head_dim * (has_gate ? 2 : 1)]
    std::int64_t q_stride;
    const float* k;  // [rows, n_kv * head_dim]
    std::int64_t k_stride;
    const float* v;
    std::int64_t v_stride;
    const float* q_norm;  // [head_dim]; null = none
    const float* k_norm;
    const float* rope;  // [positions, n_rot]
    std::int64_t rope_stride;
    void* k_pages;  // [blocks, n_kv, block_tokens, head_dim] f16 or f32
    void* v_pages;
    std::int64_t page_stride;  // elements between blocks, the same for both
    float* y;                  // [rows, n_h * head_dim]
    std::int64_t y_stride;
};

/// Sequences of few rows over pages of binary16 (attention_cut.h).
struct AttentionDecodeParams {
    AttentionParams attention;
    std::int32_t heads_of_group;  // query heads of a KV head
    std::int32_t token_shift;     // log2 of block_tokens
    std::int32_t group_slots;     // results of groups that find room
    float* parts;                 // slots of blocks, [grid, 2 regions], then of groups
    std::uint32_t* arrivals;      // [domains, then sequences][16384][warps] zero between launches
};

/// Sequences of more rows over pages of binary16.
struct AttentionPrefillParams {
    AttentionParams attention;
    std::int32_t heads_of_group;  // query heads of a KV head
    std::int32_t token_shift;     // log2 of block_tokens
    bool is_wide;                 // q and y may be read and written by 8 bytes
};

struct ReadStreamParams {
    const void* from;    // 16-byte aligned
    std::int64_t words;  // of 16 bytes
    unsigned* sink;      // [1] never written in practice, so that the reads stay
};

}  // namespace kernels::cuda
