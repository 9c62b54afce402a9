#include "kernels/cuda/tensor_store.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <string>

#include "kernels/backend.h"
#include "kernels/element_bytes.h"

namespace kernels::cuda {
namespace {

std::size_t tensor_bytes(const TensorView& view) {
    return static_cast<std::size_t>(view.shape[0] * view.row_elements() *
                                    element_bytes(view.dtype));
}

std::size_t item_bytes(const TensorView& tensor) {
    return static_cast<std::size_t>(tensor.row_elements() * element_bytes(tensor.dtype));
}
/// Where an item begins.
std::size_t item_offset(const TensorView& tensor, std::int64_t index) {
    assert(index >= 0 && index < tensor.shape[0] && "an item of the tensor");
    return static_cast<std::size_t>(index * tensor.row_stride * element_bytes(tensor.dtype));
}

}  // namespace

DeviceAddress address_of(const TensorView& view, std::size_t offset_bytes) {
    return reinterpret_cast<DeviceAddress>(view.data) + offset_bytes;
}

TensorView TensorStore::take(DType dtype, std::span<const std::int64_t> shape) {
    assert(!shape.empty() && shape.size() <= 4);
    TensorView view{.dtype = dtype, .rank = static_cast<int>(shape.size())};
    std::int64_t total = element_bytes(dtype);
    for (std::size_t i = 0; i < shape.size(); ++i) {
        assert(shape[i] >= 0);
        view.shape[i] = shape[i];
        if (__builtin_mul_overflow(total, shape[i], &total)) throw std::bad_alloc();
    }
    view.row_stride = view.row_elements();
    const auto bytes = static_cast<std::size_t>(total);
    try {
        view.data = reinterpret_cast<void*>(arena_.take(bytes));
    } catch (const CudaError& error) {
        if (error.status != kOutOfMemory) throw;
        throw OutOfDeviceMemory("a tensor of " + std::to_string(bytes >> 20) +
                                " MiB: " + error.what());
    }
    return view;
}

TensorView TensorStore::allocate(DType dtype, std::span<const std::int64_t> shape) {
    const TensorView view = take(dtype, shape);
    if (const std::size_t bytes = tensor_bytes(view); bytes > 0)
        check_cuda(driver_, driver_.fill_bytes(address_of(view), 0, bytes, stream_),
                   "zeroing of a tensor");
    return view;
}

TensorView TensorStore::upload(std::span<const float> values, std::span<const std::int64_t> shape) {
    const TensorView view = take(DType::kF32, shape);
    assert(values.size_bytes() == tensor_bytes(view));
    write(view, std::as_bytes(values), 0);
    return view;
}

void TensorStore::copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to) {
    if (from == to) return;
    check_cuda(driver_,
               driver_.copy_on_device(address_of(tensor, item_offset(tensor, to)),
                                      address_of(tensor, item_offset(tensor, from)),
                                      item_bytes(tensor), stream_),
               "copy of an item");
}

void TensorStore::read_item(const TensorView& tensor, std::int64_t index, std::span<std::byte> to) {
    assert(to.size() == item_bytes(tensor));
    read(tensor, to, item_offset(tensor, index));
}

void TensorStore::write_item(const TensorView& tensor, std::int64_t index,
                             std::span<const std::byte> from) {
    assert(from.size() == item_bytes(tensor));
    write(tensor, from, item_offset(tensor, index));
}

void TensorStore::write(const TensorView& to, std::span<const std::byte> bytes,
                        std::size_t offset_bytes) {
    for (DeviceAddress address = address_of(to, offset_bytes); !bytes.empty();) {
        const auto part = bytes.first(std::min(bytes.size(), Staging::kPartBytes));
        staging_.send(address, part);
        address += part.size();
        bytes = bytes.subspan(part.size());
    }
}

void TensorStore::read(const TensorView& from, std::span<std::byte> bytes,
                       std::size_t offset_bytes) {
    staging_.receive(bytes, address_of(from, offset_bytes));
}

}  // namespace kernels::cuda
