// Memory of the CPU backend: zeroed, aligned, taken at load, given back with the backend.
//
// Pages come from the system as zeros and are backed only when first touched, so a KV pool may be
// reserved for the longest context without paying for it. Small tensors share pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernels::cpu {

inline constexpr std::size_t kAlignment = 64;  // one cache line, one 512-bit vector

class Arena {
public:
    Arena() = default;
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// `bytes` zero bytes at a multiple of kAlignment. Throws std::bad_alloc.
    void* take(std::size_t bytes);

    template <class T>
    T* take_array(std::int64_t count) {
        return static_cast<T*>(take(static_cast<std::size_t>(count) * sizeof(T)));
    }

private:
    struct Mapping {
        void* address;
        std::size_t bytes;
    };
    std::byte* map(std::size_t bytes);

    std::vector<Mapping> mappings_;
    std::byte* chunk_ = nullptr;  // where small pieces come from
    std::size_t chunk_left_ = 0;
};

/// What the system could still give us (MemAvailable), 0 when it does not say.
std::uint64_t memory_available_bytes();

}  // namespace kernels::cpu
