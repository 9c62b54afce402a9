// The thread pool hands out every index once, to a fixed thread, again and again, and stops
// cleanly.
#include "kernels/cpu/thread_pool.h"

#include <vector>

#include <gtest/gtest.h>

namespace kernels::cpu {
namespace {

TEST(ThreadPoolTest, EveryIndexIsDoneOnceByItsOwnThread) {
    for (const int threads : {1, 2, 3, 5}) {
        ThreadPool pool(threads, {});
        for (const std::int64_t count : {0, 1, 2, 3, 7, 100}) {
            std::vector<int> done(static_cast<std::size_t>(count), -1);
            pool.run(count, [&](const LoopPart& part) {
                for (std::int64_t i = part.begin; i < part.end; ++i) {
                    EXPECT_EQ(done[static_cast<std::size_t>(i)], -1);
                    done[static_cast<std::size_t>(i)] = part.thread;
                }
            });
            for (std::int64_t i = 0; i < count; ++i) {
                EXPECT_GE(done[static_cast<std::size_t>(i)], 0) << "index " << i << " forgotten";
                if (i > 0) {
                    EXPECT_GE(done[static_cast<std::size_t>(i)],
                              done[static_cast<std::size_t>(i - 1)]);
                }
            }
        }
    }
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
