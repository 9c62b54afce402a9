// The launches of a step, written down instead of made: what a graph is looked up by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kernels::cuda {

enum class KernelId : std::size_t;

struct GridShape {
    std::int64_t x = 1;
    std::int64_t y = 1;
    int threads = 32;
    int shared_bytes = 0;  // dynamic; above 48 KB only after allow_shared_bytes
    // Starts while the kernel in front still runs; the kernel itself waits for it before it touches
    // what that one writes (programmatic dependent launch).
    bool overlaps_previous = false;

    bool operator==(const GridShape&) const = default;
};

struct Launch {
    KernelId id;
    GridShape grid;
    std::size_t begin;  // of its parameters in bytes()
    std::size_t size;

    bool operator==(const Launch&) const = default;
};

/// Kernels, grids and parameters, in order. Equal lists do the same to the device.
class LaunchList {
public:
    void clear() {
        launches_.clear();
        bytes_.clear();
    }
    void add(KernelId id, const GridShape& grid, const void* params, std::size_t size) {
        constexpr std::size_t kAlignment = 16;
        const std::size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
        bytes_.resize(begin + size);
        std::memcpy(bytes_.data() + begin, params, size);
        launches_.push_back({id, grid, begin, size});
    }
    bool empty() const { return launches_.empty(); }
    const std::vector<Launch>& launches() const { return launches_; }
    void* params(const Launch& launch) { return bytes_.data() + launch.begin; }
    /// Bytes that parameters leave unset may differ: then equal work counts as different.
    bool operator==(const LaunchList&) const = default;

private:
    std::vector<Launch> launches_;
    std::vector<std::byte> bytes_;
};

}  // namespace kernels::cuda
