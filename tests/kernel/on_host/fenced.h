// Memory with a mebibyte behind it that may not be touched: a read or write past its end is a
// fault.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace on_host {

inline constexpr std::size_t kFenceBytes = std::size_t{1} << 20;  // whole pages

/// Owns a copy of values. Their count times their size must be a multiple of 16, so that they begin
/// at one.
template <class T>
class Fenced {
public:
    explicit Fenced(std::span<const T> values) : count_(values.size()) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t bytes = values.size_bytes();
        inside_ = (bytes + page - 1) / page * page;
        mapped_ = inside_ + kFenceBytes;
        base_ = static_cast<std::byte*>(
            mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base_ == MAP_FAILED || mprotect(base_ + inside_, kFenceBytes, PROT_NONE) != 0)
            throw std::bad_alloc();
        if (bytes > 0) std::memcpy(data(), values.data(), bytes);
    }
    explicit Fenced(const std::vector<T>& values) : Fenced(std::span<const T>(values)) {}
    Fenced(const Fenced&) = delete;
    Fenced& operator=(const Fenced&) = delete;
    ~Fenced() { munmap(base_, mapped_); }

    T* data() { return reinterpret_cast<T*>(base_ + inside_ - count_ * sizeof(T)); }
    std::vector<T> values() { return {data(), data() + count_}; }

private:
    std::size_t count_, inside_, mapped_;
    std::byte* base_;
};

}  // namespace on_host
