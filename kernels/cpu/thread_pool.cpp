#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <pthread.h>
#include <sched.h>

namespace kernels::cpu {
namespace {

/// Parts of a loop per thread: the last thread to finish keeps the others waiting for a quarter of
/// its share at most, and eight claims cost two threads well under a microsecond.
constexpr std::int64_t kPartsPerThread = 4;
constexpr std::uint64_t kPartsMax = 0xffff;

/// First some microseconds of polling, as long as the gaps between loops and between steps; then
/// some rounds of giving way, since under load the thread waited for may need this very processor;
/// then sleep. With more threads than processors there is no polling.
constexpr int kPolls = 512;
constexpr int kYields = 16;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Waits until `value` differs from `old`.
void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old, int polls) {
    for (int i = 0; i < polls; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
    }
    for (int i = 0; i < kYields; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        std::this_thread::yield();
    }
    value.wait(old, std::memory_order_acquire);
}

void pin(pthread_t thread, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(core), &set);
    if (const int error = pthread_setaffinity_np(thread, sizeof(set), &set); error != 0)
        throw std::runtime_error("cannot pin a thread to processor " + std::to_string(core) + ": " +
                                 std::strerror(error));
}

int usable_processors() {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

ThreadPool::ThreadPool(int threads, std::vector<int> cores)
    : threads_(threads > 0 ? threads : usable_processors()),
      polls_(threads_ <= usable_processors() ? kPolls : 0),
      cores_(std::move(cores)) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (const int core : cores_)
        if (core < 0 || core >= CPU_SETSIZE ||
            CPU_ISSET(static_cast<unsigned>(core), &allowed) == 0)
            throw std::runtime_error("cannot pin a thread to processor " + std::to_string(core) +
                                     ": this process may not use it");
    workers_.reserve(static_cast<std::size_t>(threads_ - 1));
    for (int thread = 1; thread < threads_; ++thread) {
        workers_.emplace_back([this, thread] { work(thread); });
        if (!cores_.empty())
            pin(workers_.back().native_handle(),
                cores_[static_cast<std::size_t>(thread) % cores_.size()]);
    }
}

ThreadPool::~ThreadPool() {
    stop_ = true;
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& worker : workers_)
        worker.join();
}

void ThreadPool::pin_caller() {
    if (caller_is_pinned_ || cores_.empty()) return;
    caller_is_pinned_ = true;
    pin(pthread_self(), cores_.front());
}

void ThreadPool::run_erased(std::int64_t count, Function function, const void* context) {
    assert(!is_running_ && "one loop at a time");
    if (count <= 0) return;
    if (threads_ == 1 || count == 1) {
        function(context, LoopPart{.thread = 0, .begin = 0, .end = count});
        return;
    }
    const std::uint64_t parts = std::min(static_cast<std::uint64_t>(count),
                                         static_cast<std::uint64_t>(threads_ * kPartsPerThread));
    assert(parts <= kPartsMax && "parts fit the word");
    is_running_ = true;
    function_ = function;
    context_ = context;
    count_ = count;
    done_.store(0, std::memory_order_relaxed);
    const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
    claim_.store(std::uint64_t{epoch} << 32 | parts << 16, std::memory_order_release);
    epoch_.store(epoch, std::memory_order_release);
    epoch_.notify_all();
    run_parts(0, epoch);
    for (std::uint32_t done = done_.load(std::memory_order_acquire); done != parts;
         done = done_.load(std::memory_order_acquire))
        wait_while_equal(done_, done, polls_);
    is_running_ = false;
}

void ThreadPool::work(int thread) {
    std::uint32_t seen = 0;
    while (true) {
        wait_while_equal(epoch_, seen, polls_);
        const std::uint32_t now = epoch_.load(std::memory_order_acquire);
        if (now == seen) continue;  // woken for nothing
        seen = now;
        if (stop_) return;
        run_parts(thread, now);
    }
}

/// Claims and does parts of loop `epoch` until none is left; of a loop that is over, none is.
void ThreadPool::run_parts(int thread, std::uint32_t epoch) {
    std::uint64_t word = claim_.load(std::memory_order_acquire);
    while (true) {
        const std::uint64_t next = word & kPartsMax;
        const std::uint64_t parts = word >> 16 & kPartsMax;
        if (word >> 32 != epoch || next == parts) return;
        // Were 2^32 loops run between the load and this, the wrong loop could lose a part; a step
        // would have to last for hours.
        if (!claim_.compare_exchange_weak(word, word + 1, std::memory_order_acquire)) continue;
        const auto index = static_cast<std::int64_t>(next);
        const auto of = static_cast<std::int64_t>(parts);
        function_(context_, LoopPart{.thread = thread,
                                     .begin = count_ * index / of,
                                     .end = count_ * (index + 1) / of});
        word = claim_.load(std::memory_order_acquire);
        // Only the caller waits, and only for the last part.
        if (done_.fetch_add(1, std::memory_order_release) + 1 == parts && thread != 0)
            done_.notify_one();
    }
}

}  // namespace kernels::cpu
