// The pool that reads large bodies: the loop goes on while a job runs, which is shown by a job that
// cannot end before the loop has run something else. Order, not time.
#include "router/parse_pool.h"

#include <future>
#include <stdexcept>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

namespace router {
namespace {

namespace asio = boost::asio;

asio::awaitable<void> run_and_note(ParsePool& pool, std::function<void()> job,
                                   std::vector<std::string>& order) {
    order.emplace_back("before");
    co_await pool.run(std::move(job));
    order.emplace_back("after");
}

TEST(ParsePoolTest, TheLoopGoesOnWhileAJobRuns) {
    asio::io_context loop(1);
    ParsePool pool(loop.get_executor(), 2);
    std::vector<std::string> order;
    std::promise<void> event_relayed;
    std::function<void()> job = [&] { event_relayed.get_future().wait(); };
    asio::co_spawn(loop, run_and_note(pool, std::move(job), order), [](std::exception_ptr) {});
    asio::post(loop, [&] {
        order.emplace_back("event of another stream");
        event_relayed.set_value();
    });
    loop.run();
    EXPECT_EQ(order, (std::vector<std::string>{"before", "event of another stream", "after"}));
}

TEST(ParsePoolTest, AsManyJobsRunAtOnceAsThereAreThreads) {
    asio::io_context loop(1);
    ParsePool pool(loop.get_executor(), 2);
    std::vector<std::string> order;
    std::promise<void> first_runs;
    std::promise<void> second_runs;
    std::function<void()> first = [&] {  // each waits until the other has begun
        first_runs.set_value();
        second_runs.get_future().wait();
    };
    std::function<void()> second = [&] {
        second_runs.set_value();
        first_runs.get_future().wait();
    };
    asio::co_spawn(loop, run_and_note(pool, std::move(first), order), [](std::exception_ptr) {});
    asio::co_spawn(loop, run_and_note(pool, std::move(second), order), [](std::exception_ptr) {});
    loop.run();
    EXPECT_EQ(order.size(), 4U);
}

TEST(ParsePoolTest, AJobThatNobodyWantsAnyMoreIsNotRun) {
    asio::io_context loop(1);
    ParsePool pool(loop.get_executor(), 1);
    std::promise<void> first_may_end;
    bool has_run = false;
    const auto unwanted = std::make_shared<std::atomic<bool>>(false);
    std::function<void()> first = [&] { first_may_end.get_future().wait(); };
    std::function<void()> second = [&] { has_run = true; };
    ParsePool::Unwanted wish = unwanted;
    int ended = 0;
    asio::co_spawn(loop, pool.run(std::move(first)), [&](std::exception_ptr) { ++ended; });
    asio::co_spawn(loop, pool.run(std::move(second), std::move(wish)),
                   [&](std::exception_ptr) { ++ended; });
    asio::post(loop, [&] {
        *unwanted = true;
        first_may_end.set_value();
    });
    loop.run();
    EXPECT_EQ(ended, 2) << "its caller goes on";
    EXPECT_FALSE(has_run);
}

TEST(ParsePoolTest, WhatAJobThrowsIsThrownToItsCaller) {
    for (const int threads : {0, 2}) {
        asio::io_context loop(1);
        ParsePool pool(loop.get_executor(), threads);
        std::vector<std::string> order;
        std::function<void()> job = [] { throw std::runtime_error("no memory"); };
        std::string fault;
        asio::co_spawn(loop, run_and_note(pool, std::move(job), order),
                       [&](std::exception_ptr failure) {
                           try {
                               if (failure) std::rethrow_exception(failure);
                           } catch (const std::runtime_error& error) {
                               fault = error.what();
                           }
                       });
        loop.run();
        EXPECT_EQ(fault, "no memory");
    }
}

TEST(ParsePoolTest, TheEndWaitsForTheJobThatRuns) {
    bool has_ended = false;
    asio::io_context loop(1);
    std::vector<std::string> order;
    {
        ParsePool pool(loop.get_executor(), 1);
        std::promise<void> runs;
        std::function<void()> job = [&] {
            runs.set_value();
            has_ended = true;
        };
        asio::co_spawn(loop, run_and_note(pool, std::move(job), order), [](std::exception_ptr) {});
        loop.poll();
        runs.get_future().wait();
    }
    EXPECT_TRUE(has_ended);
}

}  // namespace
}  // namespace router
