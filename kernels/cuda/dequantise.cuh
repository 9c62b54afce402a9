// dequantise: W as binary16, rows of inputs, for a matrix product that reads that; or, of
// the file's rows, the largest |W|, from which the power of two follows that it is multiplied by.
//
// Math      y[n, k] = binary16(scale * W[n, k]), scale a power of two; W decodes as decode.cuh has
// it Shapes    packed records [tiles, k_records] or file rows [outputs]; y [16 tiles or outputs,
// ld],
//           zeros behind K up to ld
// Moves     W once, 2 * outputs * ld bytes written
// Floor     the copy ceiling: 27B gate/up IQ4_XS reads 96 MB, writes 356 MB, 105 us at 4.3 TB/s
// Achieved  kernels/README.md
// Plan      packed: a warp per record, the next one's codes asked for as they are used; fragments
// become values in
//           registers, pass through 8 KB of shared memory by stmatrix and leave as whole rows of
//           512 bytes. file: a thread per eight weights
#pragma once

#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

inline constexpr int kDequantiseWarps = 16;
inline constexpr int kDequantiseThreads = kDequantiseWarps * kWarpLanes;
inline constexpr int kStageRowBytes = 2 * kRecordInputs + 16;  // eight rows in different banks

__device__ inline void see_largest(std::uint32_t* to, float largest) {
    // Positive floats are ordered as integers are; NaN is above all.
    const std::uint32_t bits = __reduce_max_sync(~0U, __float_as_uint(largest));
    if (lane_index() == 0) atomicMax(to, bits);
}

/// Two exact codes to scaled values.
__device__ inline float2 scaled_pair(std::uint32_t codes, float scale, float minimum) {
    return {fmaf(low_half_to_float(codes), scale, -minimum),
            fmaf(high_half_to_float(codes), scale, -minimum)};
}

template <class Format>
__device__ void dequantise_packed(const DequantiseParams& p) {
    using Layout = RecordLayout<typename Format::Packed>;
    constexpr int kPairs = kRecordInputs / kStepInputs / 2;
    extern __shared__ uint4 shared[];
    const int lane = lane_index();
    const std::uint32_t base = shared_address(shared);
    const LaneTable table{.base = base, .offset = static_cast<std::uint32_t>(4 * lane)};
    const int units = p.tiles * p.k_records;  // below 2^31: a slice is
    const int stride = static_cast<int>(gridDim.x) * kDequantiseWarps;
    int unit = static_cast<int>(blockIdx.x) * kDequantiseWarps + warp_index();
    const auto source = [&](int at) {
        return RecordSource{p.from + std::int64_t{at} * Layout::kBytes, at < units ? 1 : 0};
    };
    Format format{};
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
        format.reload(source(unit), lane, pair);
    format.side.load(source(unit), lane);
    if constexpr (Format::kHasTable) fill_table<Format>(base);
    const std::uint32_t stage =
        base + (Format::kHasTable ? kTableBytes : 0) + warp_index() * kTileRows * kStageRowBytes;
    // The matrix of the fragment a lane names, and its row: stmatrix takes four in turn.
    const std::uint32_t stage_row =
        stage + (lane % 8 + 8 * (lane / 8 % 2)) * kStageRowBytes + 16 * (lane / 16);
    __syncthreads();             // the table
    wait_for_previous_kernel();  // which may still read y
    for (; unit < units; unit += stride) {
        const RecordSource next = source(unit + stride);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
            for (int step = 2 * pair; step < 2 * pair + 2; ++step) {
                const Fragment f = format.fragment(table, step);
                const ScalePair scale = format.scale(step / Format::kGroupSteps);
                ScalePair minimum{};
                if constexpr (Format::kHasMinimum)
                    minimum = format.minimum(step / Format::kGroupSteps);
                std::uint32_t out[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float2 v =
                        scaled_pair(f.a[i], (i % 2 == 0 ? scale.low : scale.high) * p.scale,
                                    (i % 2 == 0 ? minimum.low : minimum.high) * p.scale);
                    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out[i]) : "f"(v.y), "f"(v.x));
                }
                asm volatile(
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                        stage_row + 32 * step),
                    "r"(out[0]), "r"(out[1]), "r"(out[2]), "r"(out[3])
                    : "memory");
            }
            format.reload(next, lane, pair);
        }
        format.side.load(next, lane);
        __syncwarp();
        const int tile = unit / p.k_records;
        const int input = unit % p.k_records * kRecordInputs + 8 * lane;
        std::uint16_t* to = p.y + std::int64_t{tile} * kTileRows * p.ld + input;
        if (input < p.ld)
#pragma unroll
            for (int row = 0; row < kTileRows; ++row)
                store_global16(to + row * p.ld,
                               load_shared16(stage + row * kStageRowBytes + 16 * lane));
        __syncwarp();
    }
}

template <class Format, bool kLargest>
__device__ void dequantise_file(const DequantiseParams& p) {
    wait_for_previous_kernel();
    const int groups = static_cast<int>(p.ld / kGroup);
    const std::int64_t total = std::int64_t{p.tiles} * groups;
    const std::int64_t stride = std::int64_t{gridDim.x} * kDequantiseThreads;
    float largest = 0.0F;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kDequantiseThreads + threadIdx.x; i < total;
         i += stride) {
        const std::int64_t row = i / groups;
        const int k = static_cast<int>(i % groups) * kGroup;
        float w[kGroup] = {};
        if (k < p.k) Format::decode(p.from + row * p.row_bytes, k, p.k, w);
        std::uint32_t pairs[kGroup / 2];
#pragma unroll
        for (int j = 0; j < kGroup; j += 2) {
            const float a = w[j] * p.scale;
            const float b = w[j + 1] * p.scale;
            if constexpr (kLargest) {
                largest = fabsf(a) > largest || a != a ? fabsf(a) : largest;
                largest = fabsf(b) > largest || b != b ? fabsf(b) : largest;
            } else {
                asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs[j / 2]) : "f"(b), "f"(a));
            }
        }
        if constexpr (!kLargest)
            *reinterpret_cast<uint4*>(p.y + row * p.ld + k) = {pairs[0], pairs[1], pairs[2],
                                                               pairs[3]};
    }
    if constexpr (kLargest) see_largest(p.largest, largest);
}

}  // namespace kernels::cuda
