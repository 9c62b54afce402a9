// What sample_rows is made of: entries and masses as integers, sums over a block and a cluster, the
// sort, the bins.
#pragma once

#include <cstdint>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/sample_rows.h"

namespace kernels::cuda {

inline constexpr float kNotALogit = NAN;
inline constexpr std::uint64_t kNoEntry = ~0ULL;
inline constexpr float kMassUnit = 1099511627776.0F;  // 2^40: a weight of 1

__device__ inline bool is_logit(float value) {
    return fabsf(value) <= 3.402823466e+38F;
}

/// A logit and its id as one number: smaller is earlier in the order (logit falling, id rising).
__device__ inline std::uint64_t entry_of(float logit, int id) {
    const std::uint32_t bits = __float_as_uint(logit + 0.0F);  // one zero
    const std::uint32_t rising =
        bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000U);
    return static_cast<std::uint64_t>(~rising) << 32 | static_cast<std::uint32_t>(id);
}
__device__ inline float logit_of(std::uint64_t entry) {
    const std::uint32_t rising = ~static_cast<std::uint32_t>(entry >> 32);
    return __uint_as_float((rising & 0x80000000U) != 0 ? rising ^ 0x80000000U : ~rising);
}

__device__ inline std::uint64_t mass_of(float weight) {
    return static_cast<std::uint64_t>(weight * kMassUnit + 0.5F);
}
/// The smallest mass above zero that is at least `share` of the whole.
__device__ inline std::uint64_t share_of(std::uint64_t whole, float share) {
    const auto mass =
        static_cast<std::uint64_t>(ceil(static_cast<double>(share) * static_cast<double>(whole)));
    return mass > 0 ? mass : 1;
}
__device__ inline void add_mass(std::uint64_t* to, std::uint64_t mass) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(mass));
}
/// Below the whole, for a uniform number below 1.
__device__ inline std::uint64_t share_of_draw(std::uint64_t whole, double uniform) {
    const auto target = static_cast<std::uint64_t>(uniform * static_cast<double>(whole));
    return target < whole ? target : whole - 1;
}

/// Stores into block `rank`'s shared memory, at the place that `here` has in ours.
__device__ inline void store_in_block(std::uint64_t* here, int rank, std::uint64_t value) {
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(here)), "r"(rank));
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(remote), "l"(value) : "memory");
}
__device__ inline std::uint32_t add_in_block(std::uint32_t* here, int rank, std::uint32_t value) {
    std::uint32_t remote, before;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(here)), "r"(rank));
    asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(remote), "r"(value)
                 : "memory");
    return before;
}
__device__ inline std::uint32_t load_from_block(const std::uint32_t* here, int rank) {
    std::uint32_t remote, value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(here)), "r"(rank));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
    return value;
}
__device__ inline std::uint64_t load_from_block(const std::uint64_t* here, int rank) {
    std::uint32_t remote;
    std::uint64_t value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(here)), "r"(rank));
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(value) : "r"(remote) : "memory");
    return value;
}

/// The block's shared memory; sample_shared_bytes holds it.
struct SampleShared {
    std::uint64_t* list;        // [kSampleListMax] block 0's
    std::uint64_t* bin_masses;  // [threads]
    std::uint64_t* bin_sums;    // [threads] masses of bins up to each, over the cluster
    std::uint64_t *best, *block_mass, *scan64, *border, *total;  // [8], [8], [32], [1], [1]
    std::uint32_t *bin_counts, *count_sums;                      // [threads] alike
    std::uint32_t *scan32, *list_count, *list_base;              // [32], [1], [1]
    int* found;                                                  // [1]
    float* worst;                                                // [8]
    float* logits;                                               // [threads * ids]

    __device__ SampleShared() {
        auto* next = reinterpret_cast<std::uint64_t*>(shared_memory());
        const auto take = [&](int count) {
            std::uint64_t* begin = next;
            next += count;
            return begin;
        };
        list = take(kSampleListMax);
        bin_masses = take(kSampleThreads);
        bin_sums = take(kSampleThreads);
        best = take(kSampleBlocks);
        block_mass = take(kSampleBlocks);
        scan64 = take(kWarpLanes);
        border = take(1);
        total = take(1);
        auto* next32 = reinterpret_cast<std::uint32_t*>(next);
        const auto take32 = [&](int count) {
            std::uint32_t* begin = next32;
            next32 += count;
            return begin;
        };
        bin_counts = take32(kSampleThreads);
        count_sums = take32(kSampleThreads);
        scan32 = take32(kWarpLanes);
        list_count = take32(1);
        list_base = take32(1);
        found = reinterpret_cast<int*>(take32(1));
        worst = reinterpret_cast<float*>(take32(kSampleBlocks));
        logits = reinterpret_cast<float*>(next32);
    }
    __device__ void clear_bins() const {
        bin_counts[threadIdx.x] = 0;
        bin_masses[threadIdx.x] = 0;
        if (threadIdx.x == 0) *list_count = 0;
    }
};

/// Sum over the threads up to this one. `partials` [32] is free again behind the call's barrier.
template <class T>
__device__ T block_scan(T value, T* partials) {
#pragma unroll
    for (int distance = 1; distance < kWarpLanes; distance *= 2) {
        const T other = __shfl_up_sync(~0U, value, distance);
        if (lane_index() >= distance) value += other;
    }
    __syncthreads();  // those before have read
    if (lane_index() == kWarpLanes - 1) partials[warp_index()] = value;
    __syncthreads();
    T before = 0;
    for (int warp = 0; warp < warp_index(); ++warp)
        before += partials[warp];
    return value + before;
}
template <class T>
__device__ T block_total(T value, T* partials) {
#pragma unroll
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(~0U, value, distance);
    __syncthreads();
    if (lane_index() == 0) partials[warp_index()] = value;
    __syncthreads();
    T sum = 0;
    for (int warp = 0; warp < kSampleThreads / kWarpLanes; ++warp)
        sum += partials[warp];
    return sum;
}

struct Extremes {
    std::uint64_t best = kNoEntry;
    float worst = INFINITY;

    __device__ void see(float logit, int id) {
        if (!is_logit(logit)) return;
        best = min(best, entry_of(logit, id));
        worst = fminf(worst, logit);
    }
};
__device__ inline Extremes block_extremes(Extremes own, const SampleShared& s) {
#pragma unroll
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
        own.best = min(own.best, __shfl_xor_sync(~0U, own.best, distance));
        own.worst = fminf(own.worst, __shfl_xor_sync(~0U, own.worst, distance));
    }
    auto* worst = reinterpret_cast<float*>(s.scan32);
    if (lane_index() == 0) {
        s.scan64[warp_index()] = own.best;
        worst[warp_index()] = own.worst;
    }
    __syncthreads();
    for (int warp = 0; warp < kSampleThreads / kWarpLanes; ++warp) {
        own.best = min(own.best, s.scan64[warp]);
        own.worst = fminf(own.worst, worst[warp]);
    }
    return own;
}

/// Bitonic sort of the first `count` entries, rising; pads the list to a power of two.
__device__ inline void sort_list(std::uint64_t* list, int count) {
    int size = kWarpLanes;
    while (size < count)
        size *= 2;
    for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kSampleThreads)
        list[i] = kNoEntry;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int distance = run / 2; distance > 0; distance /= 2) {
            for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kSampleThreads) {
                const int low = 2 * i - (i & (distance - 1));
                const int high = low + distance;
                const bool rises = (low & run) == 0;
                const std::uint64_t a = list[low];
                const std::uint64_t b = list[high];
                if ((a > b) == rises) {
                    list[low] = b;
                    list[high] = a;
                }
            }
            __syncthreads();
        }
}

/// Sums over the cluster of all bins up to this thread's; in shared memory for the others'.
struct BinSums {
    std::uint32_t counts;
    std::uint64_t masses;
    std::uint64_t whole_mass;
};
__device__ inline BinSums sum_bins(const SampleShared& s, bool has_masses) {
    BinSums sums{};
    for (int block = 0; block < kSampleBlocks; ++block) {
        sums.counts += load_from_block(s.bin_counts + threadIdx.x, block);
        if (has_masses) sums.masses += load_from_block(s.bin_masses + threadIdx.x, block);
    }
    sums.counts = block_scan(sums.counts, s.scan32);
    if (has_masses) sums.masses = block_scan(sums.masses, s.scan64);
    s.count_sums[threadIdx.x] = sums.counts;
    s.bin_sums[threadIdx.x] = sums.masses;
    __syncthreads();
    sums.whole_mass = s.bin_sums[kSampleThreads - 1];
    return sums;
}
/// The first bin whose thread says yes, or the last.
__device__ inline int find_bin(const SampleShared& s, bool is_reached) {
    if (threadIdx.x == 0) *s.found = kSampleThreads - 1;
    __syncthreads();
    if (is_reached) atomicMin(s.found, static_cast<int>(threadIdx.x));
    __syncthreads();
    return *s.found;
}
struct BinAt {
    std::uint32_t counts, counts_before;
    std::uint64_t masses_before;
};
__device__ inline BinAt bin_at(const SampleShared& s, int bin) {
    return {s.count_sums[bin], bin > 0 ? s.count_sums[bin - 1] : 0,
            bin > 0 ? s.bin_sums[bin - 1] : 0};
}

}  // namespace kernels::cuda
