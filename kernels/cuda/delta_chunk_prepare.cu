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
//           old inputs in registers; products of unit vectors on tensor cores in three bf16 terms;
//           T by forward substitution, a thread per column, all value heads side by side.
// Overlap   Waits for the kernel in front before anything else: that may read the scratch.
// Source    Yang et al. 2024, "Gated Delta Networks"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/delta_input.cuh"
#include "kernels/cuda/delta_tile.cuh"

namespace kernels::cuda {
namespace {

constexpr int kWarps = kChunkPrepareThreads / kWarpLanes;
constexpr int kWarpRows = kChunkRows / kWarps;
constexpr int kLaneChannels = kChunkSize / kWarpLanes;  // two and two that are 64 apart

__device__ int lane_channel(int i) {
    return 2 * lane_index() + i / 2 * 64 + i % 2;
}

/// The chunk's rows of the sequence: rows [first, first + count).
struct ChunkRowsOf {
    DeltaSequence s;
    int first, count;
};

/// A row of the convolution's inputs, or none before the sequence's first token. Read from
/// `address` either way: a branch around each load would wait for them one by one.
struct InputRow {
    const float* address;
    bool is_there;
};
/// Row `t` of the sequence in the step; earlier rows lie in the ring.
__device__ InputRow input_row(const DeltaNetParams& p, const DeltaSequence& s, int t) {
    const float* first = p.u + s.begin * p.u_stride;
    if (t >= 0) return {first + t * p.u_stride, true};
    if (s.before + t >= 0) return {ring_row(p, s, s.before + t), true};
    return {first, false};
}

/// Calls `use(row, values)` for the warp's rows with silu(convolution) of the 128 channels from
/// `first_channel` on, zeros past the end.
template <class Use>
__device__ void convolve(const DeltaNetParams& p, const ChunkRowsOf& chunk, int first_channel,
                         Use use) {
    float4 taps[kLaneChannels];
    float old[kTaps - 1][kLaneChannels];
    const int row0 = warp_index() * kWarpRows;
    const int loaded0 = row0 < chunk.count ? row0 : 0;  // past the end: rows that exist, unused
#pragma unroll
    for (int i = 0; i < kLaneChannels; ++i)
        taps[i] = taps_of(p, first_channel + lane_channel(i));
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
        const InputRow row = input_row(p, chunk.s, chunk.first + loaded0 - (kTaps - 1) + j);
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            const float value = row.address[first_channel + lane_channel(i)];
            old[j][i] = row.is_there ? value : 0.0F;
        }
    }
    float next[kWarpRows][kLaneChannels];
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            const bool is_there = row0 + r < chunk.count;
            const int t = chunk.first + (is_there ? row0 + r : 0);
            const float value =
                p.u[(chunk.s.begin + t) * p.u_stride + first_channel + lane_channel(i)];
            next[r][i] = is_there ? value : 0.0F;
        }
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
        float values[kLaneChannels];
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            float sum = 0.0F;
#pragma unroll
            for (int j = 0; j < kTaps - 1; ++j)
                sum = fmaf(tap(taps[i], j), old[j][i], sum);
            sum = fmaf(taps[i].w, next[r][i], sum);
            values[i] = row0 + r < chunk.count ? silu(sum) : 0.0F;
#pragma unroll
            for (int j = 0; j + 1 < kTaps - 1; ++j)
                old[j][i] = old[j + 1][i];
            old[kTaps - 2][i] = next[r][i];
        }
        use(row0 + r, values);
    }
}

/// Unit vectors of `length`, split, into a pair of tiles.
__device__ void make_vectors(const DeltaNetParams& p, const ChunkRowsOf& chunk, int first_channel,
                             float length, std::uint8_t* tile) {
    convolve(p, chunk, first_channel, [&](int row, const float(&values)[kLaneChannels]) {
        float squares = 0.0F;
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i)
            squares = fmaf(values[i], values[i], squares);
        const float factor = length * rsqrtf(warp_sum(squares) + kUnitEps);
#pragma unroll
        for (int i = 0; i < kLaneChannels; i += 2) {
            const SplitPair pair = split_pair(values[i] * factor, values[i + 1] * factor);
            const int channel = lane_channel(i);
            const int place = tile_place(row, channel / 8) + channel % 8 * 2;
            *reinterpret_cast<std::uint32_t*>(tile + place) = pair.high;
            *reinterpret_cast<std::uint32_t*>(tile + kWideTileBytes + place) = pair.low;
        }
    });
}

/// K K^T (warps 0-3) and Q K^T (warps 4-7), up to the diagonal's tiles, to squares of f32.
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
            if (n > m) continue;  // the same for the whole warp
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

/// A of a value head to `a`, P of it, split, to the slot; two columns a thread at a time.
__device__ void make_squares(const float* squares, const float* sums, const float* strengths,
                             float* a, std::uint8_t* answers) {
    for (int i = static_cast<int>(threadIdx.x); i < kChunkRows * kChunkRows / 2;
         i += kChunkPrepareThreads) {
        const int row = i / (kChunkRows / 2);
        const int column = i % (kChunkRows / 2) * 2;
        const float* keys = squares + row * kChunkStride + column;
        const float* queries = keys + kChunkSquareBytes / 4;
        float answer[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int c = column + j;
            const float decay = c <= row ? expf(sums[row] - sums[c]) : 0.0F;
            a[row * kChunkStride + c] = c < row ? strengths[row] * keys[j] * decay : 0.0F;
            answer[j] = c <= row ? queries[j] * decay : 0.0F;
        }
        const SplitPair pair = split_pair(answer[0], answer[1]);
        const int place = tile_place(row, column / 8) + column % 8 * 2;
        *reinterpret_cast<std::uint32_t*>(answers + place) = pair.high;
        *reinterpret_cast<std::uint32_t*>(answers + kSquareTileBytes + place) = pair.low;
    }
}

/// Column `column` of (I + A)^-1 by forward substitution, split, to the slot. Rows before kFirst
/// are zeros.
template <int kFirst>
__device__ void invert_column(const float* a, int column, std::uint8_t* inverse) {
    static_assert(kFirst % 4 == 0);
    float t[kChunkRows];
#pragma unroll
    for (int row = 0; row < kChunkRows; ++row) {
        float sums[4] = {row == column ? 1.0F : 0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
        for (int k = kFirst; k < row; k += 4) {
            const float4 four = *reinterpret_cast<const float4*>(a + row * kChunkStride + k);
            sums[0] = fmaf(-four.x, t[k], sums[0]);
            if (k + 1 < row) sums[1] = fmaf(-four.y, t[k + 1], sums[1]);
            if (k + 2 < row) sums[2] = fmaf(-four.z, t[k + 2], sums[2]);
            if (k + 3 < row) sums[3] = fmaf(-four.w, t[k + 3], sums[3]);
        }
        t[row] = sums[0] + sums[1] + (sums[2] + sums[3]);
        const SplitPair pair = split_pair(t[row], 0.0F);
        const int place = tile_place(row, column / 8) + column % 8 * 2;
        *reinterpret_cast<std::uint16_t*>(inverse + place) = static_cast<std::uint16_t>(pair.high);
        *reinterpret_cast<std::uint16_t*>(inverse + kSquareTileBytes + place) =
            static_cast<std::uint16_t>(pair.low);
    }
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

    make_vectors(net, chunk, (net.n_k + key_head) * kChunkSize, 1.0F, tiles);
    make_vectors(net, chunk, key_head * kChunkSize, rsqrtf(static_cast<float>(kChunkSize)),
                 tiles + 2 * kWideTileBytes);
    if (const int index = warp_index(); index < heads) {
        const int head = value_head(net, key_head, index);
        make_gates(net, chunk, head, sums + index * 2 * kChunkRows,
                   sums + (index * 2 + 1) * kChunkRows, reinterpret_cast<float*>(slot.gates(head)));
    }
#pragma unroll 1
    for (int index = 0; index < heads; ++index) {
        const int head = value_head(net, key_head, index);
        convolve(net, chunk, (2 * net.n_k + head) * kChunkSize,
                 [&](int row, const float(&values)[kLaneChannels]) {
#pragma unroll
                     for (int i = 0; i < kLaneChannels; i += 2) {
                         auto* half = reinterpret_cast<float*>(slot.values(head, i / 2));
                         *reinterpret_cast<float2*>(half + row * kChunkHalf + 2 * lane_index()) = {
                             values[i], values[i + 1]};
                     }
                 });
    }
    __syncthreads();  // K, Q and gates are whole
    multiply(tiles, squares);
    for (int i = thread; i < kChunkKeyHeadBytes / 16; i += kChunkPrepareThreads)
        reinterpret_cast<uint4*>(slot.keys(key_head))[i] = reinterpret_cast<const uint4*>(tiles)[i];
    __syncthreads();  // the squares are whole, and K and Q read: A takes their place
    auto* a = reinterpret_cast<float*>(tiles);
    for (int index = 0; index < heads; ++index)
        make_squares(squares, sums + index * 2 * kChunkRows, sums + (index * 2 + 1) * kChunkRows,
                     a + index * (kChunkSquareBytes / 4),
                     slot.answers(value_head(net, key_head, index)));
    __syncthreads();  // A is whole
    if (const int index = thread / kChunkRows; index < heads) {
        const int column = thread % kChunkRows;
        const float* of = a + index * (kChunkSquareBytes / 4);
        std::uint8_t* inverse = slot.inverse(value_head(net, key_head, index));
        if (column < kChunkRows / 2) {  // the same for the whole warp
            invert_column<0>(of, column, inverse);
        } else {
            invert_column<kChunkRows / 2>(of, column, inverse);
        }
    }
}

}  // namespace kernels::cuda
