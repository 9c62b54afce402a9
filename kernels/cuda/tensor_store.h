// Tensors on the device: taken once, filled and read in whole, in parts or by items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/staging.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

class TensorStore {
public:
    TensorStore(const Driver& driver, Arena& arena, Staging& staging, StreamHandle stream)
        : driver_(driver), arena_(arena), staging_(staging), stream_(stream) {}

    // Both throw OutOfDeviceMemory.
    TensorView allocate(DType dtype, std::span<const std::int64_t> shape);  // zeroed
    TensorView upload(std::span<const float> values, std::span<const std::int64_t> shape);

    // As Backend's: an item is one index of the first dimension.
    void copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to);
    void read_item(const TensorView& tensor, std::int64_t index, std::span<std::byte> to);
    void write_item(const TensorView& tensor, std::int64_t index, std::span<const std::byte> from);

    /// `bytes` may change when it returns.
    void write(const TensorView& to, std::span<const std::byte> bytes, std::size_t offset_bytes);
    /// Waits until `bytes` are there.
    void read(const TensorView& from, std::span<std::byte> bytes, std::size_t offset_bytes);

private:
    TensorView take(DType dtype, std::span<const std::int64_t> shape);

    const Driver& driver_;
    Arena& arena_;
    Staging& staging_;
    StreamHandle stream_;
};

DeviceAddress address_of(const TensorView& view, std::size_t offset_bytes = 0);

}  // namespace kernels::cuda
