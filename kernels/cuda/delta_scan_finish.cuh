// The second warpgroup of delta_chunk_scan: the gated norm of a chunk's outputs, and at the end the
// inputs that later steps need.
#pragma once

#include "kernels/cuda/delta_input.cuh"
#include "kernels/cuda/delta_scan_shared.cuh"

namespace kernels::cuda {

inline constexpr int kEndedRows = kChunkRows / kScanWarps;    // of a warp
inline constexpr int kEndedValues = kChunkHalf / kWarpLanes;  // of a lane in such a row
using EndedRows = float[kEndedRows][kEndedValues];

/// The last inputs of the sequence: those of the block's value columns, and of the queries or the
/// keys when its head speaks for them.
__device__ inline void store_inputs(const DeltaNetParams& p, const DeltaSequence& s,
                                    const ScanBlock& b, int thread) {
    const int kept = s.rows < p.ring ? s.rows : p.ring;
    const auto keep = [&](int first, int count) {
        for (int i = thread; i < kept * count; i += kChunkScanGroup) {
            const int t = s.rows - kept + i / count;
            ring_row(p, s, s.before + t)[first + i % count] =
                p.u[(s.begin + t) * p.u_stride + first + i % count];
        }
    };
    keep((2 * p.n_k + b.head) * kChunkSize + b.half * kChunkHalf, kChunkHalf);
    if (value_head(p, b.key_head, 0) == b.head)
        keep((b.half * p.n_k + b.key_head) * kChunkSize, kChunkSize);
}

/// Of 2 kRows sums half go to a lane's partner, whose other half come: 16 exchanges for 16 rows,
/// where sums row by row would take 80.
template <int kRows>
__device__ inline void exchange_halves(float (&sums)[kEndedRows], int lane) {
    const bool is_upper = (lane & 2 * kRows) != 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const float sent = is_upper ? sums[r] : sums[r + kRows];
        const float kept = is_upper ? sums[r + kRows] : sums[r];
        sums[r] = kept + __shfl_xor_sync(~0U, sent, 2 * kRows);
    }
}
/// Sums of squares of the warp's rows: of row lane / 2.
__device__ inline float row_squares(const EndedRows& out, int lane) {
    float squares[kEndedRows];
#pragma unroll
    for (int r = 0; r < kEndedRows; ++r) {
        squares[r] = out[r][0] * out[r][0];
#pragma unroll
        for (int i = 1; i < kEndedValues; ++i)
            squares[r] = fmaf(out[r][i], out[r][i], squares[r]);
    }
    exchange_halves<kEndedRows / 2>(squares, lane);
    exchange_halves<kEndedRows / 4>(squares, lane);
    exchange_halves<kEndedRows / 8>(squares, lane);
    exchange_halves<kEndedRows / 16>(squares, lane);
    return squares[0] + __shfl_xor_sync(~0U, squares[0], 1);
}

/// RMSNorm(O) w silu(z) of the warp's rows.
__device__ inline void finish_rows(const DeltaChunkParams& p, const ScanShared& at,
                                   const ScanBlock& b, const ChunkPiece& piece,
                                   const DeltaSequence& s) {
    static_assert(2 * kEndedRows == kWarpLanes);
    const DeltaNetParams& net = p.net;
    const int column = b.head * kChunkSize + b.half * kChunkHalf + b.lane;
    const int own_row = b.warp * kEndedRows;
    const std::int64_t last = s.begin + s.rows - 1;
    float norm[kEndedValues];
#pragma unroll
    for (int i = 0; i < kEndedValues; ++i)
        norm[i] = net.norm_weight[b.half * kChunkHalf + b.lane + i * kWarpLanes];
#pragma unroll 1
    for (int chunk = 0; chunk < piece.chunks; ++chunk) {
        const int first = piece.first_row + chunk * kChunkRows + own_row;
        // Output gates, while the outputs are made.
        EndedRows gate;
#pragma unroll
        for (int r = 0; r < kEndedRows; ++r) {
            const std::int64_t m = s.begin + first + r;
            const float* z = net.z + (m < last ? m : last) * net.z_stride + column;
#pragma unroll
            for (int i = 0; i < kEndedValues; ++i)
                gate[r][i] = z[i * kWarpLanes];
        }
#pragma unroll
        for (int r = 0; r < kEndedRows; ++r)
#pragma unroll
            for (int i = 0; i < kEndedValues; ++i)
                gate[r][i] = norm[i] * silu(gate[r][i]);
        barrier_wait(at.outputs_full(), parity_of_one(chunk));
        EndedRows out;
#pragma unroll
        for (int r = 0; r < kEndedRows; ++r)
#pragma unroll
            for (int i = 0; i < kEndedValues; ++i)
                out[r][i] = at.outputs()[(own_row + r) * kChunkStride + b.lane + i * kWarpLanes];
        barrier_arrive(at.outputs_free());
        const float own = row_squares(out, b.lane);
        const int row = own_row + b.lane / 2;
        float* sums = at.sums(chunk) + row;
        const std::uint32_t here = at.sums_here(chunk, b.warp);
        if (b.lane == 0) barrier_expect(here, kEndedRows * static_cast<int>(sizeof(float)));
        if (b.lane % 2 == 0) send_to_block(sums + b.half * kChunkRows, 1 - b.half, own, here);
        barrier_wait(here, parity_of_two(chunk));
        const float other = sums[(1 - b.half) * kChunkRows];
        const float squares = b.half == 0 ? own + other : other + own;
        const float factor = 1.0F / sqrtf(squares / static_cast<float>(kChunkSize) + net.norm_eps);
        float* y = net.y + (s.begin + first) * net.y_stride + column;
#pragma unroll
        for (int r = 0; r < kEndedRows; ++r) {
            const float of_row = __shfl_sync(~0U, factor, 2 * r);
#pragma unroll
            for (int i = 0; i < kEndedValues; ++i)
                if (first + r < s.rows)
                    y[r * net.y_stride + i * kWarpLanes] = out[r][i] * of_row * gate[r][i];
        }
    }
    if (piece.is_last != 0) store_inputs(net, s, b, b.warp * kWarpLanes + b.lane);
}

}  // namespace kernels::cuda
