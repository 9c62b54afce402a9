// Threads that read large bodies, so that the decision thread goes on relaying meanwhile.
//
//   decision thread: co_await run(job) ─▶ a thread of the pool: job() ─▶ decision thread goes on
//
// A job sees nothing but what its caller keeps alive for it and nobody else touches: the body, and
// copies of what the decision thread may change. It must not log.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

namespace router {

/// Longer bodies are read on the pool: below it the way there and back costs more than it saves.
inline constexpr std::size_t kParseInlineBytesMax = std::size_t{64} << 10;

class ParsePool {
public:
    /// With 0 threads jobs run in run() itself. `loop` runs the callers.
    ParsePool(boost::asio::any_io_executor loop, int threads);
    /// Waits for the jobs that run; their callers do not go on. Must come before the callers' end.
    ~ParsePool();
    ParsePool(const ParsePool&) = delete;
    ParsePool& operator=(const ParsePool&) = delete;

    using Unwanted = std::shared_ptr<const std::atomic<bool>>;
    /// Completes on the loop when `job` has returned. What it throws is thrown here. When
    /// `is_unwanted` is set before its turn comes, it is not run.
    boost::asio::awaitable<void> run(std::function<void()> job, Unwanted is_unwanted = {});

private:
    boost::asio::any_io_executor loop_;
    const bool has_threads_;
    boost::asio::thread_pool threads_;
};

}  // namespace router
