#include "kernels/cuda/memory.h"

#include <algorithm>

namespace kernels::cuda {
namespace {

constexpr std::size_t kAlignment = 256;                    // what cuMemAlloc promises
constexpr std::size_t kChunkBytes = std::size_t{2} << 20;  // the driver's page
constexpr std::size_t kSmallBytes = kChunkBytes / 4;  // larger pieces get a buffer of their own

}  // namespace

DeviceAddress Arena::take(std::size_t bytes) {
    bytes = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > kSmallBytes) {
        buffers_.push_back(make_device_buffer(driver_, bytes));
        return buffers_.back().get();
    }
    if (bytes > chunk_left_) {
        buffers_.push_back(make_device_buffer(driver_, kChunkBytes));
        chunk_ = buffers_.back().get();
        chunk_left_ = kChunkBytes;
    }
    const DeviceAddress result = chunk_;
    chunk_ += bytes;
    chunk_left_ -= bytes;
    return result;
}

}  // namespace kernels::cuda
