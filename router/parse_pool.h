// Threads that read large bodies, so that the decision thread goes on relaying meanwhile.
//
//   decision thread: co_await run(job) ─▶ a thread of the pool: job() ─▶ decision thread goes on
//
// A job sees nothing but what its caller keeps alive for it and nobody else touches: the body, and
// copies of what the decision thread may change. It must not log.
#pragma once

#include <cstddef>
#include <functional>

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

    /// Completes on the loop when `job` has returned. What it throws is thrown here.
    boost::asio::awaitable<void> run(std::function<void()> job);

private:
    boost::asio::any_io_executor loop_;
    const bool has_threads_;
    boost::asio::thread_pool threads_;
};

}  // namespace router
