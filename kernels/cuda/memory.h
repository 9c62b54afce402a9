// Device memory of the backend: taken at load, given back with the backend.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/handles.h"

namespace kernels::cuda {

/// Hands out pieces aligned to 256 bytes; small ones share one buffer, since the driver gives
/// whole 2 MB pages. Pieces live as long as the arena.
class Arena {
public:
    explicit Arena(const Driver& driver) : driver_(driver) {}
    /// Contents are undefined. Throws CudaError (kOutOfMemory when the device is full).
    DeviceAddress take(std::size_t bytes);

private:
    const Driver& driver_;
    std::vector<DeviceBuffer> buffers_;
    DeviceAddress chunk_ = 0;  // where small pieces come from
    std::size_t chunk_left_ = 0;
};

}  // namespace kernels::cuda
