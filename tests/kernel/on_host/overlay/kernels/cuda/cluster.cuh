// kernels/cuda/cluster.cuh for the host.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

inline int cluster_rank() {
    return on_host::position().rank;
}
inline void store_in_block(float* here, int rank, float value) {
    std::memcpy(on_host::shared(rank) + shared_address(here), &value, sizeof value);
}
inline void cluster_arrive_bare() {
    on_host::arrive_at_cluster();
}
inline void cluster_arrive() {
    on_host::arrive_at_cluster();
}
inline void cluster_wait() {
    on_host::wait_for_cluster();
}
inline int anew(int value) {
    return value;
}
inline float* shared_memory() {
    return reinterpret_cast<float*>(on_host::shared());
}
inline void expect_aligned(const float* at) {
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(float4) != 0)
        on_host::fail("16 bytes at an address that is no multiple of 16");
}
inline float4 load_once(const float* from) {
    expect_aligned(from);
    return *reinterpret_cast<const float4*>(from);
}
inline void store_once(float* to, const float4& value) {
    expect_aligned(to);
    *reinterpret_cast<float4*>(to) = value;
}

}  // namespace kernels::cuda
