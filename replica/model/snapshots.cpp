#include "replica/model/snapshots.h"

#include <cassert>
#include <new>

namespace replica {
namespace {

/// Calls `use(tensor, bytes)` for every tensor of the recurrent memory with its part of `place`.
template <class Use>
void for_each_part(const ModelMemory& memory, std::span<std::byte> place, Use use) {
    for (const LayerMemory& layer : memory.layers) {
        for (const kernels::TensorView* tensor : {&layer.state, &layer.conv_ring}) {
            if (tensor->empty()) continue;
            const auto bytes = static_cast<std::size_t>(tensor->row_elements()) * sizeof(float);
            assert(bytes <= place.size() && "a place holds all layers");
            use(*tensor, place.first(bytes));
            place = place.subspan(bytes);
        }
    }
    assert(place.empty() && "and nothing else");
}

}  // namespace

Snapshots::Snapshots(std::int32_t count, std::uint64_t bytes_each)
    : count_(count), bytes_each_(static_cast<std::size_t>(bytes_each)) {
    if (count == 0) return;
    // calloc refuses a product that overflows, and takes large pieces from the system untouched.
    memory_.reset(
        static_cast<std::byte*>(std::calloc(static_cast<std::size_t>(count), bytes_each_)));
    if (memory_ == nullptr) throw std::bad_alloc();
}

std::span<std::byte> Snapshots::place(std::int32_t snapshot) const {
    assert(snapshot >= 0 && snapshot < count_ && "a place of the plan");
    return {memory_.get() + static_cast<std::size_t>(snapshot) * bytes_each_, bytes_each_};
}

void Snapshots::save(kernels::Backend& backend, const ModelMemory& memory, std::int32_t slot,
                     std::int32_t snapshot) {
    for_each_part(memory, place(snapshot),
                  [&](const kernels::TensorView& tensor, std::span<std::byte> part) {
                      backend.read_item(tensor, slot, part);
                  });
}

void Snapshots::load(kernels::Backend& backend, const ModelMemory& memory, std::int32_t snapshot,
                     std::int32_t slot) const {
    for_each_part(memory, place(snapshot),
                  [&](const kernels::TensorView& tensor, std::span<std::byte> part) {
                      backend.write_item(tensor, slot, part);
                  });
}

}  // namespace replica
