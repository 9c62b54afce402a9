#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

namespace kernels::cuda {
namespace {

/// More threads than this gain nothing: the memory is busy then.
constexpr int kReadersMax = 8;
/// What a reader takes at a time: large against a page, small against a part.
constexpr std::size_t kGrain = std::size_t{1} << 20;
/// Smaller copies are not worth waking anybody for.
constexpr std::size_t kSmallBytes = 4 * kGrain;

int reader_count() {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(cores / 2, 1, kReadersMax);
}

/// Maps the pages of a file all at once rather than one fault at a time. Where the kernel does not
/// know how (before 5.14), the faults happen one by one in the copy.
void populate(const std::byte* begin, std::size_t bytes) {
    constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(begin) + bytes;
    static_cast<void>(::madvise(reinterpret_cast<void*>(first), end - first, kPopulateRead));
}

}  // namespace

void Staging::wait(Buffer& buffer) {
    if (!buffer.is_travelling) return;
    check_cuda(driver_, driver_.event_synchronize(buffer.sent.get()), "upload");
    buffer.is_travelling = false;
}

Staging::Buffer& Staging::next_free() {
    Buffer& buffer = buffers_[next_];
    next_ = 1 - next_;
    if (buffer.memory.get() == nullptr) {
        buffer.memory = make_pinned_buffer(driver_, kPartBytes);
        buffer.sent = make_event(driver_);
    }
    wait(buffer);
    return buffer;
}

void Staging::fill(std::byte* to, std::span<const std::byte> from) {
    if (from.size() <= kSmallBytes) {
        std::memcpy(to, from.data(), from.size());
        return;
    }
    if (readers_ == nullptr) {
        readers_ = std::make_unique<cpu::ThreadPool>(reader_count(), std::vector<int>{});
    }
    const auto grains = static_cast<std::int64_t>((from.size() + kGrain - 1) / kGrain);
    readers_->run(grains, [&](cpu::LoopPart part) {
        const std::size_t begin = static_cast<std::size_t>(part.begin) * kGrain;
        const std::size_t end = std::min(static_cast<std::size_t>(part.end) * kGrain, from.size());
        populate(from.data() + begin, end - begin);
        std::memcpy(to + begin, from.data() + begin, end - begin);
    });
}

void Staging::send(DeviceAddress to, std::span<const std::byte> from) {
    assert(from.size() <= kPartBytes && "parts fit their buffer");
    if (from.empty()) return;
    Buffer& buffer = next_free();
    fill(static_cast<std::byte*>(buffer.memory.get()), from);
    check_cuda(driver_, driver_.copy_to_device(to, buffer.memory.get(), from.size(), stream_),
               "upload");
    check_cuda(driver_, driver_.event_record(buffer.sent.get(), stream_), "event");
    buffer.is_travelling = true;
}

void Staging::receive(std::span<std::byte> to, DeviceAddress from) {
    // Small enough parts that the copy out of one overlaps with the next one's way even for one
    // state of a layer, 3 MB.
    constexpr std::size_t kStep = kGrain;
    struct Part {
        Buffer* buffer;
        std::size_t begin, bytes;
    };
    const auto take = [&](const Part& part) {
        wait(*part.buffer);
        std::memcpy(to.data() + part.begin, part.buffer->memory.get(), part.bytes);
    };
    Part last{.buffer = nullptr, .begin = 0, .bytes = 0};
    for (std::size_t begin = 0; begin < to.size(); begin += kStep) {
        const Part part{&next_free(), begin, std::min(kStep, to.size() - begin)};
        check_cuda(
            driver_,
            driver_.copy_to_host(part.buffer->memory.get(), from + begin, part.bytes, stream_),
            "download");
        check_cuda(driver_, driver_.event_record(part.buffer->sent.get(), stream_), "event");
        part.buffer->is_travelling = true;
        if (last.buffer != nullptr) take(last);
        last = part;
    }
    if (last.buffer != nullptr) take(last);
}

void Staging::end_loading() {
    readers_.reset();
}

}  // namespace kernels::cuda
