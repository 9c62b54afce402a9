// Host memory to the device and back through pinned buffers, in parts.
//
//   file pages ──copy, several threads──▶ pinned[i] ──copy engine──▶ device
//                                         pinned[1-i] is on its way meanwhile
//
// A copy from ordinary memory would be staged by the driver, on one thread and with a wait. Here
// the threads fill one buffer while the other travels, so that the slower of the two sets the
// pace: the reading of file pages, which one thread does at a few GB/s.
//
// One thread, the one that serves or loads, calls it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/handles.h"

namespace kernels::cuda {

class Staging {
public:
    /// Of each buffer: long copies, and pinned memory is dear.
    static constexpr std::size_t kPartBytes = std::size_t{32} << 20;

    Staging(const Driver& driver, StreamHandle stream) : driver_(driver), stream_(stream) {}

    /// Enqueues a copy of at most kPartBytes; `from` may change when this returns.
    void send(DeviceAddress to, std::span<const std::byte> from);
    /// Waits until `to` is filled; any size.
    void receive(std::span<std::byte> to, DeviceAddress from);

    /// From now on few threads and small buffers suffice: loading is over.
    void end_loading();

private:
    struct Buffer {
        PinnedBuffer memory;
        Event sent;  // after its last copy
        bool is_travelling = false;
    };
    Buffer& next_free();
    void fill(std::byte* to, std::span<const std::byte> from);
    void wait(Buffer& buffer);

    const Driver& driver_;
    StreamHandle stream_;
    std::array<Buffer, 2> buffers_;
    std::size_t next_ = 0;
    std::unique_ptr<cpu::ThreadPool> readers_;
};

}  // namespace kernels::cuda
