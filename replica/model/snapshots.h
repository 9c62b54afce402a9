// Saved recurrent states, in host memory: what a hybrid model's prefix cache resumes from.
//
// One place holds a sequence's whole recurrent memory: of every delta-net layer the state, then the
// convolution ring. The memory is reserved at once and backed by pages only when first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "replica/model/forward.h"

namespace replica {

class Snapshots {
public:
    /// Throws std::bad_alloc when the address space has no room.
    Snapshots(std::int32_t count, std::uint64_t bytes_each);

    void save(kernels::Backend& backend, const ModelMemory& memory, std::int32_t slot,
              std::int32_t snapshot);
    void load(kernels::Backend& backend, const ModelMemory& memory, std::int32_t snapshot,
              std::int32_t slot) const;

private:
    struct Free {
        void operator()(std::byte* pointer) const { std::free(pointer); }
    };
    std::span<std::byte> place(std::int32_t snapshot) const;

    std::int32_t count_;
    std::size_t bytes_each_;
    std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace replica
