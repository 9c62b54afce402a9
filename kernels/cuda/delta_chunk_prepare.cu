// delta_chunk_prepare: what of a chunk of 64 rows does not depend on the state before it.
//
// Math      per value head, G_i = g_1 + .. + g_i, D_ij = exp(G_i - G_j):
//           A_ij = b_i (k_i.k_j) D_ij below the diagonal;  T = (I + A)^-1
//           P_ij = (q_i.k_j) D_ij up to the diagonal; q scaled by size^-1/2
//           Exponents are differences and not above 0. Rows past the sequence's end are zeros.
// Shapes    DeltaChunkParams; scratch as in delta_chunk.h; state_size 128, 4 taps
// Moves     27B, a chunk: 2.6 MB of u read, 4.2 MB of scratch written
// Floor     bandwidth: 6.9 MB a chunk at 4.3 TB/s, 1.6 us; 128 chunks of 8192 rows 0.2 ms
// Achieved  kernels/README.md
// Plan      One block per (chunk, key head), 8 warps. A warp convolves 8 rows after one another,
//           inputs in registers; products of unit vectors on tensor cores in three bf16 terms; T by
//           forward substitution in place of A, a thread per column, 16 rows at a time, all value
//           heads side by side. A block runs through its code once, so it is kept short: unrolled
//           throughout (165 KB) it did not fit the instruction cache, and a block took 75 us.
// Overlap   Waits for the kernel in front before anything else: that may read the scratch.
// Source    Yang et al. 2024, "Gated Delta Networks"
#include "kernels/cuda/delta_chunk_input.cuh"
#include "kernels/cuda/delta_solve.cuh"
#include "kernels/cuda/delta_tile.cuh"

namespace kernels::cuda {
namespace {

__device__ void store_half(std::uint8_t* to, std::uint32_t value) {
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(value);
}

/// The rows as vectors of `length`, split, into a pair of tiles.
__device__ void put_vectors(const WarpRows& rows, float length, std::uint8_t* tile) {
    const int lane = anew(lane_index());  // places are worked out anew: too many to keep
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
        const int row = warp_index() * kWarpRows + r;
        float squares = 0.0F;
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i)
            squares = fmaf(rows[r][i], rows[r][i], squares);
        const float factor = length * rsqrtf(warp_sum(squares) + kUnitEps);
#pragma unroll
        for (int i = 0; i < kLaneChannels; i += 2) {
            const SplitPair pair = split_pair(rows[r][i] * factor, rows[r][i + 1] * factor);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int channel = lane_channel(lane, i + j);
                std::uint8_t* to = tile + tile_place(row, channel / 8) + channel % 8 * 2;
                store_half(to, pair.high >> 16 * j);
                store_half(to + kWideTileBytes, pair.low >> 16 * j);
            }
        }
    }
}

/// K and Q of the chunk into tiles, V of all value heads to the slot.
__device__ void make_inputs(const DeltaNetParams& p, const ChunkRowsOf& chunk,
                            const ChunkSlot& slot, int key_head, std::uint8_t* tiles,
                            Inputs& inputs) {
    constexpr int kKeys = 0;
    constexpr int kQueries = 1;
    constexpr int kValues = 2;
    const int parts = kValues + p.n_v / p.n_k;
    const auto channel_of = [&](int part) {
        const int vectors = part == kKeys ? p.n_k + key_head
                            : part == kQueries
                                ? key_head
                                : 2 * p.n_k + value_head(p, key_head, part - kValues);
        return vectors * kChunkSize;
    };
    fetch_inputs(p, chunk, channel_of(0), inputs);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
        commit_copies();
        wait_copies<0>();
        __syncthreads();  // all threads' copies are there
        WarpRows rows;
        convolve(p, chunk, channel_of(part), inputs, rows, [&] {
            __syncthreads();  // the inputs are read
            if (part + 1 < parts) fetch_inputs(p, chunk, channel_of(part + 1), inputs);
        });
        if (part < kValues) {
            put_vectors(rows, part == kKeys ? 1.0F : rsqrtf(static_cast<float>(kChunkSize)),
                        tiles + part * 2 * kWideTileBytes);
            continue;
        }
        const int head = value_head(p, key_head, part - kValues);
        const int lane = anew(lane_index());
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            const int value = lane_channel(lane, i);
            auto* half = reinterpret_cast<float*>(slot.values(head, value / kChunkHalf));
#pragma unroll
            for (int r = 0; r < kWarpRows; ++r)
                half[value_place(warp_index() * kWarpRows + r, value % kChunkHalf)] = rows[r][i];
        }
    }
}

/// K K^T (warps 0-3) and Q K^T (warps 4-7) to squares of f32. All of them: branches around what
/// lies above the diagonal cost more, since products on both sides would not overlap.
__device__ void multiply(const std::uint8_t* keys, float* squares) {
    const int lane = lane_index();
    const int m = warp_index() % 4;
    const bool is_query = warp_index() >= 4;
    const std::uint32_t right = shared_address(keys);
    const std::uint32_t left = right + (is_query ? 2 * kWideTileBytes : 0);
    float* out = squares + (is_query ? kChunkSquareBytes / 4 : 0);
    float sum[8][4] = {};
#pragma unroll 1
    for (int k = 0; k < kChunkSize / 16; ++k) {
        const SplitLeft a = left_of_rows(left, kWideTileBytes, m, k, lane);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const SplitRight b = right_of_rows(right, kWideTileBytes, n, k, lane);
            add_product(sum[2 * n], a, b, 0);
            add_product(sum[2 * n + 1], a, b, 1);
        }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = 16 * m + lane / 4 + i / 2 * 8;
            out[row * kChunkStride + 8 * n + lane % 4 * 2 + i % 2] = sum[n][i];
        }
}

/// Of one value head, by a warp: running sums of g to `sums`, strengths to `strengths`, and the
/// factors the scan needs to the slot.
__device__ void make_gates(const DeltaNetParams& p, const ChunkRowsOf& chunk, int head, float* sums,
                           float* strengths, float* to) {
    const int lane = lane_index();
    float g[2];
    float b[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = 2 * lane + i;
        const bool is_there = row < chunk.count;
        const std::int64_t m = chunk.s.begin + chunk.first + (is_there ? row : 0);
        g[i] = is_there ? log_decay(p, m, head) : 0.0F;
        b[i] = is_there ? write_strength(p, m, head) : 0.0F;
    }
    float total = g[0] + g[1];
#pragma unroll
    for (int distance = 1; distance < kWarpLanes; distance *= 2) {
        const float before = __shfl_up_sync(~0U, total, static_cast<unsigned>(distance));
        if (lane >= distance) total += before;
    }
    const float end = __shfl_sync(~0U, total, kWarpLanes - 1);
    const float up_to[2] = {total - g[1], total};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = 2 * lane + i;
        sums[row] = up_to[i];
        strengths[row] = b[i];
        to[row] = b[i];
        to[kChunkRows + row] = expf(up_to[i]);
        to[2 * kChunkRows + row] = expf(end - up_to[i]);
    }
}

/// Calls `use(row, column)` for every second column of every row of a square, thread by thread.
template <class Use>
__device__ void for_pairs(Use use) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kChunkRows * kChunkRows / 2;
         i += kChunkPrepareThreads)
        use(i / (kChunkRows / 2), i % (kChunkRows / 2) * 2);
}
/// Two columns of a row, split, to a pair of tiles.
__device__ void put_pair(std::uint8_t* tile, int row, int column, float first, float second) {
    const SplitPair pair = split_pair(first, second);
    std::uint8_t* to = tile + tile_place(row, column / 8) + column % 8 * 2;
    *reinterpret_cast<std::uint32_t*>(to) = pair.high;
    *reinterpret_cast<std::uint32_t*>(to + kSquareTileBytes) = pair.low;
}

/// A of a value head to `a`, P of it to the slot.
__device__ void make_squares(const float* squares, const float* sums, const float* strengths,
                             float* a, std::uint8_t* answers) {
    for_pairs([&](int row, int column) {
        const float* keys = squares + row * kChunkStride + column;
        const float* queries = keys + kChunkSquareBytes / 4;
        float answer[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int c = column + j;
            // Above the diagonal exponents may be large; nothing there is used.
            const float decay = __expf(c <= row ? sums[row] - sums[c] : 0.0F);
            a[row * kChunkStride + c] = c < row ? strengths[row] * keys[j] * decay : 0.0F;
            answer[j] = c <= row ? queries[j] * decay : 0.0F;
        }
        put_pair(answers, row, column, answer[0], answer[1]);
    });
}

/// The chunk that slot `slot` holds.
__device__ ChunkRowsOf chunk_of(const DeltaChunkParams& p, int slot) {
    int index = 0;
#pragma unroll 1
    while (index + 1 < p.batch.pieces && p.batch.piece[index + 1].first_slot <= slot)
        ++index;
    const ChunkPiece& piece = p.batch.piece[index];
    ChunkRowsOf chunk;
    chunk.s = delta_sequence(p.net.step, piece.seq);
    chunk.first = piece.first_row + (slot - piece.first_slot) * kChunkRows;
    const int left = chunk.s.rows - chunk.first;
    chunk.count = left < kChunkRows ? left : kChunkRows;
    return chunk;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kChunkPrepareThreads, 2)
    delta_chunk_prepare(const __grid_constant__ DeltaChunkParams p) {
    let_next_kernel_start();
    wait_for_previous_kernel();
    const DeltaNetParams& net = p.net;
    auto* tiles = reinterpret_cast<std::uint8_t*>(shared_memory());  // K, Q
    auto* squares = reinterpret_cast<float*>(tiles + kChunkTilesBytes);
    float* sums = squares + 2 * (kChunkSquareBytes / 4);  // [heads, 2, rows] G, strength
    const int key_head = static_cast<int>(blockIdx.x);
    const ChunkSlot slot(p, static_cast<int>(blockIdx.y));
    const ChunkRowsOf chunk = chunk_of(p, static_cast<int>(blockIdx.y));
    const int heads = net.n_v / net.n_k;
    const int thread = static_cast<int>(threadIdx.x);

    if (const int index = warp_index(); index < heads) {
        const int head = value_head(net, key_head, index);
        make_gates(net, chunk, head, sums + index * 2 * kChunkRows,
                   sums + (index * 2 + 1) * kChunkRows, reinterpret_cast<float*>(slot.gates(head)));
    }
    make_inputs(net, chunk, slot, key_head, tiles, *reinterpret_cast<Inputs*>(squares));
    __syncthreads();  // K, Q and gates are whole, and the last inputs read
    multiply(tiles, squares);
    for (int i = thread; i < kChunkKeyHeadBytes / 16; i += kChunkPrepareThreads)
        reinterpret_cast<uint4*>(slot.keys(key_head))[i] = reinterpret_cast<const uint4*>(tiles)[i];
    __syncthreads();  // the squares are whole, and K and Q read: A takes their place
    auto* a = reinterpret_cast<float*>(tiles);
#pragma unroll 1
    for (int index = 0; index < heads; ++index)
        make_squares(squares, sums + index * 2 * kChunkRows, sums + (index * 2 + 1) * kChunkRows,
                     a + index * (kChunkSquareBytes / 4),
                     slot.answers(value_head(net, key_head, index)));
    __syncthreads();  // A is whole
    const int solved = thread / kChunkRows;
    invert_column(a + (solved < heads ? solved : 0) * (kChunkSquareBytes / 4), thread % kChunkRows,
                  solved >= heads);
#pragma unroll 1
    for (int index = 0; index < heads; ++index) {
        const float* inverse = a + index * (kChunkSquareBytes / 4);
        std::uint8_t* to = slot.inverse(value_head(net, key_head, index));
        for_pairs([&](int row, int column) {
            const float* pair = inverse + row * kChunkStride + column;
            put_pair(to, row, column, pair[0], pair[1]);
        });
    }
}

}  // namespace kernels::cuda
