// delta_chunk_scan: walks over prepared chunks with the state in registers, and ends each row with
// the gated norm.
//
// Math      per value head and chunk, S [value, key], T, P, G, b from delta_chunk_prepare:
//           N = T b (V - exp(G) K S^T);  O = exp(G) Q S^T + P N
//           S <- exp(G_end) S + (exp(G_end - G) N)^T K;  y = RMSNorm(O) w silu(z)
// Shapes    DeltaChunkParams; state_size 128
// Moves     27B, a chunk: 4.2 MB of scratch, 1.6 MB of z, 1.6 MB of y
// Floor     arithmetic: 8.1 MFLOP a head and chunk in three terms; 8192 rows of the 27B 150 GFLOP,
//           0.25 ms at the 600 TFLOP/s of mma.sync
// Achieved  kernels/README.md
// Plan      A cluster of two blocks per (value head, piece of a sequence), 64 value columns each. A
//           warp keeps S^T's 16 columns over all keys as sums of the last product; packed they are
//           the left operand of the next one, and so are N^T and what leads to it: nothing but K,
//           Q, T, P and V goes through shared memory. The next chunk is copied while one is worked
//           on. Sums of squares for the norm cross the cluster once a chunk.
// Overlap   Waits for the kernel in front before anything else.
// Source    Yang et al. 2024, "Gated Delta Networks"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/delta_input.cuh"
#include "kernels/cuda/delta_tile.cuh"

namespace kernels::cuda {
namespace {

constexpr int kWarps = kChunkScanThreads / kWarpLanes;
static_assert(kWarps * 16 == kChunkHalf);
constexpr int kWarpRows = kChunkRows / kWarps;       // that a warp ends
constexpr int kRowValues = kChunkHalf / kWarpLanes;  // of a lane in such a row
constexpr int kRowTiles = kChunkRows / 8;  // column tiles of products with one column a row
constexpr int kKeyTiles = kChunkSize / 8;  // of products with one column a key

/// One stage of the pipeline in shared memory.
struct Stage {
    std::uint32_t keys, inverse;  // addresses
    float *values, *gates;
    __device__ explicit Stage(std::uint8_t* at)
        : keys(shared_address(at)),
          inverse(keys + 2 * kWideTileBytes),
          values(reinterpret_cast<float*>(at + 2 * kWideTileBytes + 2 * kSquareTileBytes)),
          gates(values + kChunkValueBytes / 4) {}
};

template <int kBytes>
__device__ void copy(std::uint32_t to, const std::uint8_t* from) {
    static_assert(kBytes % 16 == 0);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * 16; i < kBytes; i += kChunkScanThreads * 16)
        copy_async(to + i, from + i);
}

/// V in shared memory: pieces of 16 bytes of a row lie at piece xor (row / 2 mod 4) * 2, so that
/// lanes that read 8 values of 4 rows two apart meet all banks.
__device__ int value_place(int row, int value) {
    return row * kChunkHalf + ((value / 4) ^ (row / 2 % 4 * 2)) * 4 + value % 4;
}

__device__ void copy_values(float* to, const std::uint8_t* from) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kChunkValueBytes / 16; i += kChunkScanThreads)
        copy_async(shared_address(to + value_place(i / (kChunkHalf / 4), i % (kChunkHalf / 4) * 4)),
                   from + i * 16);
}

__device__ void scale(float (&sum)[4], float even, float odd) {
    sum[0] *= even;
    sum[1] *= odd;
    sum[2] *= even;
    sum[3] *= odd;
}

struct Block {
    int head, key_head, half, lane, warp;
};

/// Where a lane's four sums of a state tile lie: rows g, g + 8; two keys beside each other.
__device__ float* state_place(const DeltaNetParams& p, const DeltaSequence& s, const Block& b,
                              int tile, int pair) {
    const int value = b.half * kChunkHalf + b.warp * 16 + b.lane / 4 + pair * 8;
    return p.state + s.slot * p.state_stride +
           (static_cast<std::int64_t>(b.head) * kChunkSize + value) * kChunkSize + tile * 8 +
           b.lane % 4 * 2;
}

/// The last inputs of the sequence: those of the block's value columns, and of the queries or the
/// keys when its head speaks for them.
__device__ void store_inputs(const DeltaNetParams& p, const DeltaSequence& s, const Block& b) {
    const int kept = s.rows < p.ring ? s.rows : p.ring;
    const auto keep = [&](int first, int count) {
        for (int i = static_cast<int>(threadIdx.x); i < kept * count; i += kChunkScanThreads) {
            const int t = s.rows - kept + i / count;
            ring_row(p, s, s.before + t)[first + i % count] =
                p.u[(s.begin + t) * p.u_stride + first + i % count];
        }
    };
    keep((2 * p.n_k + b.head) * kChunkSize + b.half * kChunkHalf, kChunkHalf);
    if (value_head(p, b.key_head, 0) == b.head)
        keep((b.half * p.n_k + b.key_head) * kChunkSize, kChunkSize);
}

}  // namespace

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kChunkScanThreads, 1)
    delta_chunk_scan(const __grid_constant__ DeltaChunkParams p) {
    let_next_kernel_start();
    cluster_arrive_bare();  // the other block must have begun before it is stored to
    wait_for_previous_kernel();
    const DeltaNetParams& net = p.net;
    auto* shared = reinterpret_cast<std::uint8_t*>(shared_memory());
    const std::uint32_t queries = shared_address(shared + 2 * kChunkStageBytes);
    const std::uint32_t answers = queries + 2 * kWideTileBytes;
    auto* outputs = reinterpret_cast<float*>(shared + 2 * kChunkStageBytes + kChunkSingleBytes);
    float* warp_sums = outputs + kChunkSquareBytes / 4;  // [warps, rows]; outputs [rows, stride]
    float* half_sums = warp_sums + kWarps * kChunkRows;  // [2 by parity, 2 halves, rows]

    Block b;
    b.head = static_cast<int>(blockIdx.x) / 2;
    b.half = cluster_rank();
    b.key_head = net.is_grouped ? b.head / (net.n_v / net.n_k) : b.head % net.n_k;
    b.lane = lane_index();
    b.warp = warp_index();
    const int pair = b.lane % 4 * 2;  // a lane's columns in a tile
    const ChunkPiece& piece = p.batch.piece[blockIdx.y];
    const DeltaSequence s = delta_sequence(net.step, piece.seq);

    float norm[kRowValues];
#pragma unroll
    for (int i = 0; i < kRowValues; ++i)
        norm[i] = net.norm_weight[b.half * kChunkHalf + b.lane + i * kWarpLanes];

    const auto copy_stage = [&](int chunk) {
        const ChunkSlot slot(p, piece.first_slot + chunk);
        const Stage to(shared + chunk % 2 * kChunkStageBytes);
        copy<2 * kWideTileBytes>(to.keys, slot.keys(b.key_head));
        copy<2 * kSquareTileBytes>(to.inverse, slot.inverse(b.head));
        copy_values(to.values, slot.values(b.head, b.half));
        copy<kChunkGateBytes>(shared_address(to.gates), slot.gates(b.head));
    };
    const auto copy_single = [&](int chunk) {
        const ChunkSlot slot(p, piece.first_slot + chunk);
        copy<2 * kWideTileBytes>(queries, slot.queries(b.key_head));
        copy<2 * kSquareTileBytes>(answers, slot.answers(b.head));
    };
    copy_stage(0);
    copy_single(0);

    float state[kKeyTiles][4];
    const bool is_fresh = s.before == 0 && piece.first_row == 0;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float2 two = {0.0F, 0.0F};
            if (!is_fresh) two = *reinterpret_cast<const float2*>(state_place(net, s, b, n, i));
            state[n][2 * i] = two.x;
            state[n][2 * i + 1] = two.y;
        }

    cluster_wait();
#pragma unroll 1
    for (int chunk = 0; chunk < piece.chunks; ++chunk) {
        commit_copies();
        wait_copies<0>();
        __syncthreads();  // the chunk's copies are whole; all have left the chunk before it
        if (chunk + 1 < piece.chunks) copy_stage(chunk + 1);
        const Stage stage(shared + chunk % 2 * kChunkStageBytes);
        const float* strengths = stage.gates;
        const float* grown = stage.gates + kChunkRows;     // exp(G)
        const float* left = stage.gates + 2 * kChunkRows;  // exp(G_end - G)

        // Worked out anew in each part: kept, the places of operands would not fit the registers.
        int lane = anew(b.lane);

        // S K^T and S Q^T, values by rows of the chunk.
        float kept[kRowTiles][4] = {};
        float out[kRowTiles][4] = {};
#pragma unroll
        for (int k = 0; k < kKeyTiles / 2; ++k) {
            SplitLeft memory;
            memory.pack(state[2 * k], state[2 * k + 1]);
#pragma unroll
            for (int n = 0; n < kRowTiles / 2; ++n) {
                const SplitRight key = right_of_rows(stage.keys, kWideTileBytes, n, k, lane);
                add_product(kept[2 * n], memory, key, 0);
                add_product(kept[2 * n + 1], memory, key, 1);
                const SplitRight query = right_of_rows(queries, kWideTileBytes, n, k, lane);
                add_product(out[2 * n], memory, query, 0);
                add_product(out[2 * n + 1], memory, query, 1);
            }
        }
        // b (V - exp(G) S K^T), and exp(G) S Q^T.
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            const int row = anew(8 * n + pair);
            scale(out[n], grown[row], grown[row + 1]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = row + i % 2;
                const float v = stage.values[value_place(at, b.warp * 16 + b.lane / 4 + i / 2 * 8)];
                kept[n][i] = strengths[at] * fmaf(-grown[at], kept[n][i], v);
            }
        }
        lane = anew(lane);
        // N^T: T is below the diagonal, so a row takes nothing from later ones.
        float delta[kRowTiles][4] = {};
#pragma unroll
        for (int k = 0; k < kRowTiles / 2; ++k) {
            SplitLeft rest;
            rest.pack(kept[2 * k], kept[2 * k + 1]);
#pragma unroll
            for (int n = k; n < kRowTiles / 2; ++n) {
                const SplitRight inverse =
                    right_of_rows(stage.inverse, kSquareTileBytes, n, k, lane);
                add_product(delta[2 * n], rest, inverse, 0);
                add_product(delta[2 * n + 1], rest, inverse, 1);
            }
        }
        lane = anew(lane);
        // O^T
#pragma unroll
        for (int k = 0; k < kRowTiles / 2; ++k) {
            SplitLeft deltas;
            deltas.pack(delta[2 * k], delta[2 * k + 1]);
#pragma unroll
            for (int n = k; n < kRowTiles / 2; ++n) {
                const SplitRight answer = right_of_rows(answers, kSquareTileBytes, n, k, lane);
                add_product(out[2 * n], deltas, answer, 0);
                add_product(out[2 * n + 1], deltas, answer, 1);
            }
        }
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = 8 * n + pair + i;
                float* to = outputs + row * kChunkStride + b.warp * 16 + b.lane / 4;
                to[0] = out[n][i];
                to[8] = out[n][i + 2];
                float squares = fmaf(out[n][i], out[n][i], out[n][i + 2] * out[n][i + 2]);
#pragma unroll
                for (int distance = 4; distance < kWarpLanes; distance *= 2)
                    squares += __shfl_xor_sync(~0U, squares, distance);
                if (b.lane < 4) warp_sums[b.warp * kChunkRows + row] = squares;
            }
        __syncthreads();  // outputs and sums are whole; Q and P are read
        if (chunk + 1 < piece.chunks) copy_single(chunk + 1);
        float* sums = half_sums + chunk % 2 * 2 * kChunkRows;
        if (const int row = static_cast<int>(threadIdx.x); row < kChunkRows) {
            float squares = 0.0F;
#pragma unroll
            for (int warp = 0; warp < kWarps; ++warp)
                squares += warp_sums[warp * kChunkRows + row];
            store_in_block(sums + b.half * kChunkRows + row, 0, squares);
            store_in_block(sums + b.half * kChunkRows + row, 1, squares);
        }
        cluster_arrive();
        // Output gates of the rows that the warp ends, on their way already.
        const int first = piece.first_row + chunk * kChunkRows;
        const int own_row = b.warp * kWarpRows;
        const std::int64_t last = s.begin + s.rows - 1;
        float gate[kWarpRows][kRowValues];
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            const std::int64_t m = s.begin + first + own_row + r;
            const float* z = net.z + (m < last ? m : last) * net.z_stride + b.head * kChunkSize +
                             b.half * kChunkHalf + b.lane;
#pragma unroll
            for (int i = 0; i < kRowValues; ++i)
                gate[r][i] = z[i * kWarpLanes];
        }

        // S
        lane = anew(lane);
        const float whole = grown[kChunkRows - 1];
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
            scale(state[n], whole, whole);
#pragma unroll
        for (int k = 0; k < kRowTiles / 2; ++k) {
            const int row = 16 * k + pair;
            scale(delta[2 * k], left[row], left[row + 1]);
            scale(delta[2 * k + 1], left[row + 8], left[row + 9]);
            SplitLeft deltas;
            deltas.pack(delta[2 * k], delta[2 * k + 1]);
#pragma unroll
            for (int n = 0; n < kKeyTiles / 2; ++n) {
                const SplitRight key = right_of_columns(stage.keys, kWideTileBytes, n, k, lane);
                add_product(state[2 * n], deltas, key, 0);
                add_product(state[2 * n + 1], deltas, key, 1);
            }
        }
        cluster_wait();  // both halves' sums are here

#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            const int row = own_row + r;
            if (first + row >= s.rows) break;
            const float squares = sums[row] + sums[kChunkRows + row];
            const float factor =
                1.0F / sqrtf(squares / static_cast<float>(kChunkSize) + net.norm_eps);
            const std::int64_t m = s.begin + first + row;
#pragma unroll
            for (int i = 0; i < kRowValues; ++i) {
                const int value = b.lane + i * kWarpLanes;
                const int column = b.head * kChunkSize + b.half * kChunkHalf + value;
                net.y[m * net.y_stride + column] =
                    outputs[row * kChunkStride + value] * factor * norm[i] * silu(gate[r][i]);
            }
        }
    }

#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
            *reinterpret_cast<float2*>(state_place(net, s, b, n, i)) = {state[n][2 * i],
                                                                        state[n][2 * i + 1]};
    if (piece.is_last != 0) store_inputs(net, s, b);
}

}  // namespace kernels::cuda
