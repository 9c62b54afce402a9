// kernels/cuda/barrier.cuh for the host. A barrier's eight bytes of shared memory hold its state.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

struct BarrierState {
    std::int16_t arrivals, missing;  // of a phase; of the current one
    std::int32_t bytes : 31;         // that copies still owe it
    std::uint32_t phase : 1;
};
static_assert(sizeof(BarrierState) == 8);

inline BarrierState* barrier_at(std::uint32_t barrier, int rank = -1) {
    if (barrier % sizeof(BarrierState) != 0 || barrier >= on_host::kSharedBytes)
        on_host::fail("a barrier outside shared memory or not aligned");
    return reinterpret_cast<BarrierState*>(on_host::shared(rank) + barrier);
}
inline void turn(BarrierState& state) {
    if (state.missing < 0) on_host::fail("more arrivals than a barrier waits for");
    if (state.missing > 0 || state.bytes != 0) return;
    state.missing = state.arrivals;
    state.phase ^= 1;
}

inline void barrier_init(std::uint32_t barrier, int arrivals) {
    *barrier_at(barrier) = {static_cast<std::int16_t>(arrivals),
                            static_cast<std::int16_t>(arrivals), 0, 0};
}
inline void barrier_arrive(std::uint32_t barrier) {
    BarrierState& state = *barrier_at(barrier);
    --state.missing;
    turn(state);
    on_host::pause_some_time();
}
inline void barrier_expect(std::uint32_t barrier, int bytes) {
    BarrierState& state = *barrier_at(barrier);
    state.bytes += bytes;
    --state.missing;
    turn(state);
}
inline void barrier_wait(std::uint32_t barrier, int parity) {
    const BarrierState* state = barrier_at(barrier);
    on_host::wait_until([=] { return state->phase != static_cast<std::uint32_t>(parity); });
}

/// To the place `to` of block `rank`; now or later.
inline void land_some_time(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier,
                           int rank) {
    if (to % 16 != 0 || bytes % 16 != 0 || to + bytes > on_host::kSharedBytes ||
        reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
        on_host::fail("a copy outside shared memory or not aligned");
    std::byte* place = on_host::shared(rank) + to;
    BarrierState* state = barrier_at(barrier, rank);
    on_host::do_some_time([=] {
        std::memcpy(place, from, static_cast<std::size_t>(bytes));
        state->bytes -= bytes;
        turn(*state);
    });
}
inline void bulk_copy(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
    land_some_time(to, from, bytes, barrier, -1);
}

}  // namespace kernels::cuda
