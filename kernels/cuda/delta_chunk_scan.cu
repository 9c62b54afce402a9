// delta_chunk_scan: walks over prepared chunks with the state in registers, and ends each row with
// the gated norm.
//
// Math      per value head and chunk, S [value, key], T, P, G, b from delta_chunk_prepare:
//           N = T b (V - exp(G) K S^T);  O = exp(G) Q S^T + P N
//           S <- exp(G_end) S + (exp(G_end - G) N)^T K;  y = RMSNorm(O) w silu(z)
// Shapes    DeltaChunkParams; state_size 128
// Moves     27B, a chunk: 4.2 MB of scratch, 1.6 MB of z, 1.6 MB of y
// Floor     arithmetic: 96 products of 64 x 64 x 16 a block and chunk, 3,072 cycles; chunks follow
//           each other, so 8192 rows take 0.22 ms at 1.8 GHz
// Achieved  kernels/README.md
// Plan      A cluster of two blocks per (value head, piece of a sequence), 64 value columns each.
//           One warpgroup multiplies. It keeps S^T over all keys as sums of the last product;
//           packed they are the left operand of the next one, and so are N^T and what leads to it:
//           nothing but K, Q, T, P and V goes through shared memory. Q S^T is under way while V - K
//           S^T is made, P N while the deltas fade, the update of S while outputs leave. A second
//           warpgroup ends rows; sums of squares for the norm cross the cluster. A thread of a
//           third one fetches: each block half of what both need, to both.
// Overlap   Waits for the kernel in front before anything else.
// Source    Yang et al. 2024, "Gated Delta Networks"
#include "kernels/cuda/delta_scan_finish.cuh"
#include "kernels/cuda/delta_scan_shared.cuh"
#include "kernels/cuda/delta_tile.cuh"
#include "kernels/cuda/split_products.cuh"

namespace kernels::cuda {
namespace {

constexpr int kKeyParts = kChunkSize / 16;  // steps of products over keys
constexpr int kRowParts = kChunkRows / 16;  // over rows
constexpr int kKeyTiles = kChunkSize / 8;
// What one role gives up another takes: together no more than all have at the start.
constexpr int kMultiplyRegisters = 256;
constexpr int kFinishRegisters = 160;
constexpr int kFetchRegisters = 40;

// ---- the third warpgroup

/// This block's half of a pair of tiles to both blocks.
template <int kTileBytes>
__device__ void fetch_half(std::uint32_t to, const std::uint8_t* from, int half,
                           std::uint32_t barrier) {
    bulk_copy_to_both(to + half * kTileBytes, from + half * kTileBytes, kTileBytes, barrier);
}

__device__ void fetch(const DeltaChunkParams& p, const ScanShared& at, const ScanBlock& b,
                      const ChunkPiece& piece) {
#pragma unroll 1
    for (int chunk = 0; chunk < piece.chunks; ++chunk) {
        const ChunkSlot slot(p, piece.first_slot + chunk);
        if (chunk >= 2) barrier_wait(at.stage_free(chunk), parity_of_two(chunk - 2));
        const std::uint32_t stage = at.stage_full(chunk);
        barrier_expect(stage, kChunkStageBytes + kChunkGateBytes);
        fetch_half<kWideTileBytes>(at.keys(chunk), slot.keys(b.key_head), b.half, stage);
        fetch_half<kWideTileBytes>(at.queries(chunk), slot.queries(b.key_head), b.half, stage);
        fetch_half<kSquareTileBytes>(at.answers(chunk), slot.answers(b.head), b.half, stage);
        bulk_copy(shared_address(at.gates(chunk)), slot.gates(b.head), kChunkGateBytes, stage);
        if (chunk >= 1) barrier_wait(at.single_free(), parity_of_one(chunk - 1));
        const std::uint32_t single = at.single_full();
        barrier_expect(single, kChunkSingleBytes);
        fetch_half<kSquareTileBytes>(at.inverse(), slot.inverse(b.head), b.half, single);
        bulk_copy(shared_address(at.values()), slot.values(b.head, b.half), kChunkValueBytes,
                  single);
    }
}

// ---- the first warpgroup

/// Where a lane's sums of the state lie: rows g, g + 8, of every 8 keys two beside each other.
__device__ float* state_place(const DeltaNetParams& p, const DeltaSequence& s, const ScanBlock& b,
                              int lane) {
    const int value = b.half * kChunkHalf + b.warp * 16 + lane / 4;
    return p.state + s.slot * p.state_stride +
           (static_cast<std::int64_t>(b.head) * kChunkSize + value) * kChunkSize + lane % 4 * 2;
}

__device__ void load_state(WarpgroupSums (&state)[2], const float* from, bool is_fresh) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float2 two = {0.0F, 0.0F};
            if (!is_fresh)
                two = *reinterpret_cast<const float2*>(from + i * 8 * kChunkSize + n * 8);
            state[n / 8][n % 8 * 4 + 2 * i] = two.x;
            state[n / 8][n % 8 * 4 + 2 * i + 1] = two.y;
        }
}
__device__ void store_state(const WarpgroupSums (&state)[2], float* to) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
            *reinterpret_cast<float2*>(to + i * 8 * kChunkSize + n * 8) = {
                state[n / 8][n % 8 * 4 + 2 * i], state[n / 8][n % 8 * 4 + 2 * i + 1]};
}

/// S^T as a left operand, all of it.
using Memory = SplitLeft[kKeyParts];

/// Starts sums (+)= S X^T over keys 16 kFirst .. 16 kEnd for X = K or Q: [values, rows]. Nothing is
/// added to when kFirst is 0.
template <int kFirst, int kEnd>
__device__ void start_recall(WarpgroupSums& sums, const Memory& memory, std::uint32_t tile) {
    const SplitOperand rows(tile, kWideTileBytes);
    warpgroup_fence();
#pragma unroll
    for (int k = kFirst; k < kEnd; ++k) {
        const SplitOperand part = rows.at(k / 4 * kPanelBytes + k % 4 * 32);
        if (k == 0)
            multiply_split_rows<false>(sums, memory[k], part);
        else
            multiply_split_rows<true>(sums, memory[k], part);
    }
    warpgroup_commit();
}
/// Kept in registers: not worked out again for each product.
__device__ void keep(SplitLeft& x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        x.high[i] = static_cast<std::uint32_t>(anew(static_cast<int>(x.high[i])));
        x.low[i] = static_cast<std::uint32_t>(anew(static_cast<int>(x.low[i])));
    }
}
template <int kFirst, int kEnd>
__device__ void pack(Memory& memory, const WarpgroupSums (&state)[2]) {
#pragma unroll
    for (int k = kFirst; k < kEnd; ++k)
        memory[k] = split_left(state[k / 4], k % 4), keep(memory[k]);
}

/// Columns `row`, `row` + 1 of a tile of sums.
__device__ void scale(WarpgroupSums& sums, int i, float even, float odd) {
    sums[4 * i] *= even;
    sums[4 * i + 1] *= odd;
    sums[4 * i + 2] *= even;
    sums[4 * i + 3] *= odd;
}

/// Starts sums += X L^T, L lower triangular [rows, rows]: a row takes nothing from later ones.
template <bool kAdds>
__device__ void start_triangle(WarpgroupSums& sums, const SplitLeft (&x)[kRowParts],
                               std::uint32_t tile) {
    const SplitOperand rows(tile, kSquareTileBytes);
    warpgroup_fence();
    multiply_split_rows<kAdds>(sums, x[0], rows);
    multiply_split_rows<true>(sums, x[1], rows.at(32));
    multiply_split_rows<true>(sums, x[2], rows.at(64));
    multiply_split_rows<true>(sums, x[3], rows.at(96));
    warpgroup_commit();
}

__device__ void put_outputs(const ScanShared& at, const ScanBlock& b, const WarpgroupSums& out,
                            int chunk) {
    if (chunk > 0) barrier_wait(at.outputs_free(), parity_of_one(chunk - 1));
    const int lane = anew(b.lane);
    float* first = at.outputs() + lane % 4 * 2 * kChunkStride + b.warp * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < kChunkRows / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float* to = first + (8 * n + i) * kChunkStride;
            to[0] = out[4 * n + i];
            to[8] = out[4 * n + i + 2];
        }
    barrier_arrive(at.outputs_full());
}

__device__ void multiply(const DeltaChunkParams& p, const ScanShared& at, const ScanBlock& b,
                         const ChunkPiece& piece, const DeltaSequence& s) {
    WarpgroupSums state[2], kept, out, delta;
    Memory memory;
    load_state(state, state_place(p.net, s, b, b.lane), s.before == 0 && piece.first_row == 0);
#pragma unroll 1
    for (int chunk = 0; chunk < piece.chunks; ++chunk) {
        // S K^T in halves: the second is packed, and outputs leave, while the first is used.
        pack<0, kKeyParts>(memory, state);
        barrier_wait(at.stage_full(chunk), parity_of_two(chunk));
        start_recall<0, kKeyParts>(kept, memory, at.keys(chunk));
        start_recall<0, kKeyParts>(out, memory, at.queries(chunk));
        // Places are worked out anew in each chunk: kept, they would not fit the registers.
        const int lane = anew(b.lane);
        const float* strengths = at.gates(chunk) + lane % 4 * 2;  // of a lane's columns
        const float* grown = strengths + kChunkRows;              // exp(G)
        const float* left = strengths + 2 * kChunkRows;           // exp(G_end - G)
        barrier_wait(at.single_full(), parity_of_one(chunk));
        warpgroup_wait<1>();  // S K^T
        pin(kept);
        // b (V - exp(G) S K^T)
        const float* v = at.values() + value_place(lane % 4 * 2, b.warp * 16 + lane / 4);
        const float* v8 = at.values() + value_place(lane % 4 * 2, b.warp * 16 + lane / 4 + 8);
#pragma unroll
        for (int n = 0; n < kChunkRows / 8; ++n) {
            const float2 strength = *reinterpret_cast<const float2*>(strengths + 8 * n);
            const float2 grow = *reinterpret_cast<const float2*>(grown + 8 * n);
            const int row = 8 * n * kChunkHalf;
            float* of = kept + 4 * n;
            of[0] = strength.x * fmaf(-grow.x, of[0], v[row]);
            of[1] = strength.y * fmaf(-grow.y, of[1], v[row + kChunkHalf]);
            of[2] = strength.x * fmaf(-grow.x, of[2], v8[row]);
            of[3] = strength.y * fmaf(-grow.y, of[3], v8[row + kChunkHalf]);
            if (n % 2 == 1) pin(kept);  // no more loads at a time than registers are left
        }
        warpgroup_wait<0>();  // S Q^T: its left operand gives its registers to the next
        pin(out);
        pin(kept);
        SplitLeft rest[kRowParts];
#pragma unroll
        for (int k = 0; k < kRowParts; ++k)
            rest[k] = split_left(kept, k);
        start_triangle<false>(delta, rest, at.inverse());  // N^T
        const float whole = at.gates(chunk)[2 * kChunkRows - 1];
#pragma unroll
        for (int n = 0; n < kChunkRows / 8; ++n) {
            const float2 grow = *reinterpret_cast<const float2*>(grown + 8 * n);
            scale(out, n, grow.x, grow.y);
            scale(state[0], n, whole, whole);
            scale(state[1], n, whole, whole);
        }
        warpgroup_wait<0>();
        pin(delta);
        release(at.single_free());
        // O^T, then S, whose left operand is packed while O^T is made.
#pragma unroll
        for (int k = 0; k < kRowParts; ++k)
            rest[k] = split_left(delta, k);
        start_triangle<true>(out, rest, at.answers(chunk));
        SplitLeft faded[kRowParts];
#pragma unroll
        for (int n = 0; n < kChunkRows / 8; ++n) {
            const float2 fade = *reinterpret_cast<const float2*>(left + 8 * n);
            scale(delta, n, fade.x, fade.y);
        }
#pragma unroll
        for (int k = 0; k < kRowParts; ++k)
            faded[k] = split_left(delta, k);
        const SplitOperand keys(at.keys(chunk), kWideTileBytes);
        warpgroup_fence();
#pragma unroll
        for (int k = 0; k < kRowParts; ++k) {
            const SplitOperand part = keys.at(16 * k * 128);
            multiply_split_columns(state[0], faded[k], part);
            multiply_split_columns(state[1], faded[k], part.at(kPanelBytes));
        }
        warpgroup_commit();
        warpgroup_wait<1>();  // O^T
        pin(out);
        put_outputs(at, b, out, chunk);
        warpgroup_wait<0>();
        pin(state[0]);
        pin(state[1]);
        release(at.stage_free(chunk));
    }
    store_state(state, state_place(p.net, s, b, anew(b.lane)));
}

}  // namespace

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kChunkScanThreads, 1)
    delta_chunk_scan(const __grid_constant__ DeltaChunkParams p) {
    let_next_kernel_start();
    const DeltaNetParams& net = p.net;
    const ScanShared at;
    ScanBlock b;
    b.head = static_cast<int>(blockIdx.x) / kScanBlocks;
    b.half = cluster_rank();
    b.key_head = net.is_grouped ? b.head / (net.n_v / net.n_k) : b.head % net.n_k;
    b.lane = lane_index();
    b.warp = warp_index() % kScanWarps;
    if (threadIdx.x == 0) at.init();
    cluster_arrive_bare();
    wait_for_previous_kernel();
    cluster_wait();  // both blocks' barriers are there
    const ChunkPiece& piece = p.batch.piece[blockIdx.y];
    const DeltaSequence s = delta_sequence(net.step, piece.seq);
    if (const int role = warp_index() / kScanWarps; role == 0) {
        grow_registers<kMultiplyRegisters>();
        multiply(p, at, b, piece, s);
    } else if (role == 1) {
        shrink_registers<kFinishRegisters>();
        finish_rows(p, at, b, piece, s);
    } else {
        shrink_registers<kFetchRegisters>();
        if (b.warp == 0 && b.lane == 0) fetch(p, at, b, piece);
    }
    __syncwarp();
    cluster_arrive_bare();  // nothing of ours is stored to from now on
    cluster_wait();
}

}  // namespace kernels::cuda
