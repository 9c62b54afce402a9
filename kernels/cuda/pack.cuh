// A matrix's file rows, on the device, become packed records, in either order: pack.cu,
// pack_lanes.cu.
//
// Shapes    rows [row_count] of file blocks; packed [tiles, k_records] records of the type
// Moves     the matrix twice; at load only
// Plan      a thread gathers four bytes of a record; the file's bytes come from the caches
// Source    packed_byte, the same text that the host's packer and the tests run
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/lane_order.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

inline constexpr int kPackThreads = 256;

template <DType kType, template <class> class Layout>
__device__ inline void pack(const PackParams& p) {
    using F = PackedFormat<kType>;
    constexpr int kWords = Layout<F>::kBytes / 4;
    const std::int64_t index = std::int64_t{blockIdx.x} * kPackThreads + threadIdx.x;
    const std::int64_t record = index / kWords;
    const int word = static_cast<int>(index % kWords);
    if (record >= p.tiles * p.k_records) return;
    const PackSource source{.rows = p.rows,
                            .partner = p.partner,
                            .row_bytes = p.row_bytes,
                            .row_count = p.row_count,
                            .k = p.k};
    const std::int64_t tile = record / p.k_records;
    const int k_record = static_cast<int>(record % p.k_records);
    std::uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i)
        bytes |= static_cast<std::uint32_t>(
                     packed_byte<F, Layout<F>>(source, tile, k_record, 4 * word + i))
                 << (8 * i);
    reinterpret_cast<std::uint32_t*>(p.packed)[index] = bytes;
}

}  // namespace kernels::cuda
