#include "kernels/cpu/memory.h"

#include <fstream>
#include <limits>
#include <new>
#include <string>

#include <sys/mman.h>

namespace kernels::cpu {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kSmallBytes = kChunkBytes / 8;  // larger pieces get a mapping of their own

}  // namespace

Arena::~Arena() {
    for (const Mapping& mapping : mappings_)
        ::munmap(mapping.address, mapping.bytes);
}

void* Arena::take(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes == 0) bytes = kAlignment;
    if (bytes > kSmallBytes) return map(bytes);
    if (bytes > chunk_left_) {
        chunk_ = map(kChunkBytes);
        chunk_left_ = kChunkBytes;
    }
    void* result = chunk_;
    chunk_ += bytes;
    chunk_left_ -= bytes;
    return result;
}

std::byte* Arena::map(std::size_t bytes) {
    // NORESERVE: a pool sized for the longest context is mostly never touched.
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    mappings_.push_back({address, bytes});
    return static_cast<std::byte*>(address);
}

std::uint64_t memory_available_bytes() {
    std::ifstream info("/proc/meminfo");
    std::string key;
    std::string unit;
    std::uint64_t value = 0;
    while (info >> key >> value) {
        std::getline(info, unit);
        if (key == "MemAvailable:") return value * 1024;
    }
    return 0;
}

}  // namespace kernels::cpu
