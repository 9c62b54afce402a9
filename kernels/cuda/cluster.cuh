// What the delta net's kernels ask of the hardware beyond plain C++: clusters of blocks, streaming
// accesses. Each is one function, so that it can be replaced when
// device code is run on a host.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

__device__ inline int cluster_rank() {
    std::uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

/// Stores into the shared memory of block `rank` of the cluster, at the place that `here` has in
/// ours.
__device__ inline void store_shared_in_block(std::uint32_t here, int rank, float value) {
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(here), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}
__device__ inline void store_in_block(float* here, int rank, float value) {
    store_shared_in_block(shared_address(here), rank, value);
}

/// A barrier of the cluster in two halves: what was stored before `arrive` is seen behind `wait`.
/// `arrive` waits for all stores of the thread, so large ones come between the two. The bare form
/// orders no stores.
__device__ inline void cluster_arrive_bare() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
}
__device__ inline void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The same value, which the compiler takes for another: what is derived from it is computed again
/// instead of being kept in registers from an earlier part of the kernel.
__device__ inline int anew(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

/// Dynamic shared memory of the block.
__device__ inline float* shared_memory() {
    extern __shared__ float4 quadriga_shared[];
    return reinterpret_cast<float*>(quadriga_shared);
}

/// Memory that is touched once a step: it need not stay in the L2.
__device__ inline float4 load_once(const float* from) {
    return __ldcs(reinterpret_cast<const float4*>(from));
}
__device__ inline void store_once(float* to, const float4& value) {
    __stcs(reinterpret_cast<float4*>(to), value);
}

}  // namespace kernels::cuda
