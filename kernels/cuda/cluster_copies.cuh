// Asynchronous copies beyond barrier.cuh and tensor_core.cuh: single words, and what blocks of a
// cluster send each other, counted by barriers at the receiver.
//
// Source    PTX ISA: cp.async, mapa, mbarrier, st.async, cp.async.bulk
#pragma once

#include <cstdint>

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

/// Four bytes to shared memory: one of this thread's copies (tensor_core.cuh).
__device__ inline void copy_word_async(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
}
/// Makes initialised barriers known to the copies and to the cluster.
__device__ inline void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// At the barrier that block `rank` of the cluster has in the place of ours. Orders what the thread
/// has read, not what it has written elsewhere: that would wait for all its stores.
__device__ inline void barrier_arrive_in_block(std::uint32_t barrier, int rank) {
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
/// Four bytes to the place in block `rank` that `here` is in ours; its barrier counts them.
__device__ inline void send_to_block(const float* here, int rank, float value,
                                     std::uint32_t barrier) {
    std::uint32_t to, counter;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(to)
                 : "r"(shared_address(here)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(barrier), "r"(rank));
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
        "r"(__float_as_uint(value)), "r"(counter)
        : "memory");
}
/// To the same place in both blocks of a cluster of two; each one's barrier counts the bytes.
__device__ inline void bulk_copy_to_both(std::uint32_t to, const void* from, int bytes,
                                         std::uint32_t barrier) {
    constexpr std::uint16_t kBoth = 3;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "h"(kBoth)
        : "memory");
}

}  // namespace kernels::cuda
