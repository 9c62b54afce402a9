// A grid of device code on the host: every CUDA thread is a fiber of this thread, which runs until
// it waits for its warp, its block, its cluster or a condition.
//
// What the hardware leaves open is drawn from `seed`: which block and which warp run first, which
// stays behind, and whether an asynchronous copy lands at once, when it is waited for or, when it
// announces itself at a barrier, any time. Results that hang on it show a missing barrier. Shared
// memory starts as NaN. A deadlock, a warp whose lanes part before they meet, an address outside
// shared memory or not aligned ends the run with std::logic_error.
//
// One grid at a time, on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace on_host {

inline constexpr int kWarpLanes = 32;
inline constexpr std::size_t kSharedBytes = 227 << 10;  // of a block
inline constexpr std::size_t kPayloadBytes = 32;        // a lane gives its warp at most this

struct Grid {
    int x = 1;
    int y = 1;
    int threads = kWarpLanes;  // of a block, whole warps
    int cluster = 1;           // blocks, along x
    std::uint32_t seed = 0;
};
void run(const Grid& grid, const std::function<void()>& kernel);

// For device code, inside run().

struct Place {
    unsigned x = 0;
    unsigned y = 0;
};
struct Position {
    Place thread, block, block_size, grid_size;
    int rank = 0;  // of the block in its cluster
};
const Position& position();

/// Shared memory of a block of the cluster; `rank` below 0: of our own.
std::byte* shared(int rank = -1);
void wait_for_block();
/// All lanes' payloads, kPayloadBytes apart; valid until the warp's next exchange.
const std::byte* exchange(const void* payload, std::size_t bytes);
void arrive_at_cluster();
void wait_for_cluster();
/// Until `condition` holds, which other threads or what is done later bring about.
void wait_until(const std::function<bool()>& condition);
/// Others may run first.
void pause_some_time();
/// Is done at once or some time later, whatever the calling thread does meanwhile.
void do_some_time(const std::function<void()>& what);
/// There at once or when finish_copies is called.
void copy_some_time(std::byte* to, const void* from, std::size_t bytes);
void finish_copies();
/// Ends the run.
[[noreturn]] void fail(const char* what);

}  // namespace on_host
