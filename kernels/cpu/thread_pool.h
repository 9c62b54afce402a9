// A few threads that share one loop at a time.
//
//   caller:  run(count, body) ── epoch + 1 ──▶ body(thread 0, part 0) ── waits for the others
//   worker:  polls a little, then sleeps ────▶ body(thread t, part t) ── pending - 1
//
// The partition is static: thread t of T takes [count*t/T, count*(t+1)/T). Which thread does what
// is therefore fixed, though no result may depend on it. A step runs hundreds of such loops a few
// microseconds apart, so a waiting thread polls for a moment and gives way a few times before it
// sleeps in the kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace kernels::cpu {

/// One part of a loop: indices begin..end-1, done by `thread`.
struct LoopPart {
    int thread;
    std::int64_t begin;
    std::int64_t end;
};

/// One caller at a time. Bodies must not throw and must not call run.
class ThreadPool {
public:
    /// `threads` includes the caller. `cores`: processors to pin to in turn, empty = none.
    /// Throws std::runtime_error when a processor of the list cannot be had.
    ThreadPool(int threads, std::vector<int> cores);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return threads_; }

    /// Pins the calling thread, which is thread 0, once; does nothing without a list of cores.
    void pin_caller();

    /// Runs body(LoopPart) over 0..count-1 and returns when all parts are done. Allocates nothing.
    template <class Body>
    void run(std::int64_t count, const Body& body) {
        run_erased(
            count,
            [](const void* context, LoopPart part) { (*static_cast<const Body*>(context))(part); },
            &body);
    }

    /// The same on the calling thread alone: for loops shorter than a wake-up.
    template <class Body>
    void run_here(std::int64_t count, const Body& body) {
        if (count > 0) body(LoopPart{.thread = 0, .begin = 0, .end = count});
    }

private:
    using Function = void (*)(const void* context, LoopPart part);

    void run_erased(std::int64_t count, Function function, const void* context);
    void work(int thread);
    void run_part(int thread) const;

    int threads_;
    int polls_;  // before giving way and sleeping
    std::vector<int> cores_;
    bool caller_is_pinned_ = false;

    // The loop in progress: written by the caller before `epoch_` is raised (release), read by the
    // workers after they see it (acquire); `pending_` orders the way back.
    Function function_ = nullptr;
    const void* context_ = nullptr;
    std::int64_t count_ = 0;
    bool stop_ = false;
    alignas(64) std::atomic<std::uint32_t> epoch_{0};
    alignas(64) std::atomic<std::uint32_t> pending_{0};

    std::vector<std::thread> workers_;
};

}  // namespace kernels::cpu
