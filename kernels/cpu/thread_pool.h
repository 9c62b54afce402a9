// A few threads that share one loop at a time.
//
//   caller:  run(count, body) ── publishes (epoch, parts, next = 0) ─▶ claims parts ─▶ waits for
//   worker:  polls, gives way, then sleeps ── sees the epoch ────────▶ claims parts    the last one
//
// A loop is cut into a few more parts than there are threads, and whoever runs takes the next one:
// a thread that the system does not schedule delays at most the part it is in, and a loop during
// which it never runs is done by the others. Who computes what is therefore open, and no result may
// depend on it. A claim is one compare-and-swap on one word:
//
//   claim_   epoch (32) │ parts (16) │ next part (16)
//
// so that a thread which comes late cannot take a part of a loop it has not seen.
//
// A step runs hundreds of loops a few microseconds apart, and steps follow each other as closely: a
// waiting thread polls for about as long as that before it sleeps in the kernel, whence it would
// return only after tens of microseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace kernels::cpu {

/// One part of a loop: indices begin..end-1, done by `thread`. A thread may do several parts.
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

    /// Runs body(LoopPart) over 0..count-1 and returns when all parts are done. Parts begin in
    /// ascending order. Allocates nothing.
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
    void run_parts(int thread, std::uint32_t epoch);

    int threads_;
    int polls_;  // before giving way and sleeping
    std::vector<int> cores_;
    bool caller_is_pinned_ = false;

    // The loop in progress: written by the caller before it publishes `claim_` (release), read by a
    // thread after it has claimed a part (acquire). Unchanged until every claimed part is done.
    Function function_ = nullptr;
    const void* context_ = nullptr;
    std::int64_t count_ = 0;
    bool is_running_ = false;
    std::atomic<bool> stop_{false};  // a worker may still be waking for the last loop
    alignas(64) std::atomic<std::uint64_t> claim_{0};
    alignas(64) std::atomic<std::uint32_t> epoch_{0};  // what workers wait for
    alignas(64) std::atomic<std::uint32_t> done_{0};   // parts; orders the way back to the caller

    std::vector<std::thread> workers_;
};

}  // namespace kernels::cpu
