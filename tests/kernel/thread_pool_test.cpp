// The thread pool hands out every index once, again and again, does without a thread that does not
// run, and stops cleanly.
#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace kernels::cpu {
namespace {

TEST(ThreadPoolTest, EveryIndexIsDoneOnce) {
    for (const int threads : {1, 2, 3, 5}) {
        ThreadPool pool(threads, {});
        for (const std::int64_t count : {0, 1, 2, 3, 7, 100}) {
            std::vector<int> done(static_cast<std::size_t>(count));
            pool.run(count, [&](const LoopPart& part) {
                EXPECT_LT(part.thread, threads);
                EXPECT_LT(part.begin, part.end);
                for (std::int64_t i = part.begin; i < part.end; ++i)
                    ++done[static_cast<std::size_t>(i)];
            });
            EXPECT_EQ(done, std::vector<int>(static_cast<std::size_t>(count), 1));
        }
    }
}

TEST(ThreadPoolTest, AThreadThatDoesNotRunDelaysOnlyThePartItIsIn) {
    ThreadPool pool(2, {});
    constexpr std::int64_t kIndices = 100;
    std::atomic<std::int64_t> by_worker{0};
    std::atomic<std::int64_t> by_caller{0};
    pool.run(kIndices, [&](const LoopPart& part) {
        if (part.thread == 1) {
            // As if descheduled: it takes one part and does not go on before all others are done.
            by_worker = part.end - part.begin;
            by_worker.notify_one();
            std::int64_t others = by_caller;
            while (others != kIndices - by_worker) {
                by_caller.wait(others);
                others = by_caller;
            }
        } else {
            by_worker.wait(0);
            by_caller += part.end - part.begin;
            by_caller.notify_one();
        }
    });
    EXPECT_EQ(by_caller + by_worker, kIndices);
}

TEST(ThreadPoolTest, LoopsFollowEachOtherWithoutLoss) {
    ThreadPool pool(3, {});
    std::vector<std::int64_t> sums(3);
    for (int round = 0; round < 2000; ++round)
        pool.run(3, [&](const LoopPart& part) {
            for (std::int64_t i = part.begin; i < part.end; ++i)
                sums[static_cast<std::size_t>(i)] += round;  // plain: run orders the rounds
        });
    for (const std::int64_t sum : sums)
        EXPECT_EQ(sum, 1999 * 2000 / 2);
}

TEST(ThreadPoolTest, AnIdlePoolEndsAtOnce) {
    for (int i = 0; i < 50; ++i)
        ThreadPool pool(4, {});
}

}  // namespace
}  // namespace kernels::cpu
