#include "router/parse_pool.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace router {
namespace {

namespace asio = boost::asio;

/// Belongs to the loop, but for `failure`, which is the job's until it has ended.
struct Wait {
    explicit Wait(const asio::any_io_executor& loop)
        : ended(loop, asio::steady_timer::time_point::max()) {}

    asio::steady_timer ended;  // cancelled then
    bool has_ended = false;
    std::exception_ptr failure;
};

}  // namespace

ParsePool::ParsePool(asio::any_io_executor loop, int threads)
    : loop_(std::move(loop)),
      has_threads_(threads > 0),
      threads_(static_cast<std::size_t>(std::max(threads, 1))) {}

ParsePool::~ParsePool() {
    threads_.stop();
    threads_.join();
}

asio::awaitable<void> ParsePool::run(std::function<void()> job, Unwanted is_unwanted) {
    if (!has_threads_) {
        job();
        co_return;
    }
    const auto wait = std::make_shared<Wait>(loop_);
    asio::post(threads_,
               [wait, loop = loop_, work = std::move(job), unwanted = std::move(is_unwanted)] {
                   try {
                       if (!unwanted || !*unwanted) work();
                   } catch (...) {
                       wait->failure = std::current_exception();
                   }
                   asio::post(loop, [wait] {
                       wait->has_ended = true;
                       wait->ended.cancel();
                   });
               });
    while (!wait->has_ended) {
        (void)co_await wait->ended.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    if (wait->failure) std::rethrow_exception(wait->failure);
}

}  // namespace router
