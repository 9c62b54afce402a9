// kernels/cuda/cluster_copies.cuh for the host.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

inline void copy_word_async(float* to, const float* from) {
    on_host::copy_some_time(reinterpret_cast<std::byte*>(to), from, sizeof(float));
}
inline void publish_barriers() {}
inline void barrier_arrive_in_block(std::uint32_t barrier, int rank) {
    BarrierState& state = *barrier_at(barrier, rank);
    --state.missing;
    turn(state);
    on_host::pause_some_time();
}
inline void bulk_copy_to_both(std::uint32_t to, const void* from, int bytes,
                              std::uint32_t barrier) {
    for (int rank = 0; rank < 2; ++rank)
        land_some_time(to, from, bytes, barrier, rank);
}
inline void send_to_block(const float* here, int rank, float value, std::uint32_t barrier) {
    std::byte* place = on_host::shared(rank) + shared_address(here);
    BarrierState* state = barrier_at(barrier, rank);
    on_host::do_some_time([=] {
        std::memcpy(place, &value, sizeof value);
        state->bytes -= static_cast<int>(sizeof value);
        turn(*state);
    });
}

}  // namespace kernels::cuda
