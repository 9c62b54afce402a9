#include "replica/gguf/tool/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace replica {

GgufResult<void> run_pieces(std::uint64_t count, int threads,
                            const std::function<GgufResult<void>(std::uint64_t)>& work) {
    std::atomic<std::uint64_t> next = 0;
    std::atomic<bool> has_failed = false;
    std::mutex mutex;
    std::optional<GgufError> first_error;
    const auto loop = [&] {
        for (std::uint64_t i = next++; i < count && !has_failed; i = next++) {
            if (GgufResult<void> done = work(i); !done) {
                const std::scoped_lock lock(mutex);
                if (!first_error) first_error = std::move(done.error());
                has_failed = true;
            }
        }
    };
    {
        std::vector<std::jthread> helpers;
        for (int i = 1; i < threads; ++i)
            helpers.emplace_back(loop);
        loop();
    }
    if (first_error) return tl::unexpected(std::move(*first_error));
    return {};
}

int thread_count(int wanted) {
    if (wanted > 0) return wanted;
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace replica
