// A sink that keeps what it heard and lets a test wait for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "replica/engine/engine.h"

namespace replica {

class RecordingSink : public TokenSink {
public:
    void on_start(std::int32_t cached_tokens) override {
        const std::lock_guard lock(mutex_);
        ++starts_;
        cached_tokens_ = cached_tokens;
    }
    SinkVerdict on_token(TokenId token, const kernels::RowLogprobs*) override {
        {
            const std::lock_guard lock(mutex_);
            EXPECT_EQ(finishes_, 0) << "a token after the end";
            EXPECT_EQ(starts_, 1) << "a token before the start";
            tokens_.push_back(token);
            changed_.notify_all();
        }
        return verdict ? verdict(token) : SinkVerdict::kContinue;
    }
    void on_finish(const FinishInfo& info) override {
        const std::lock_guard lock(mutex_);
        EXPECT_EQ(++finishes_, 1) << "finished twice";
        info_ = info;
        changed_.notify_all();
    }

    FinishInfo wait_finished() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return finishes_ > 0; });
        return info_;
    }
    void wait_tokens(std::size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return tokens_.size() >= count || finishes_ > 0; });
    }
    std::vector<TokenId> tokens() const {
        const std::lock_guard lock(mutex_);
        return tokens_;
    }
    int starts() const {
        const std::lock_guard lock(mutex_);
        return starts_;
    }
    std::int32_t cached_tokens() const {
        const std::lock_guard lock(mutex_);
        return cached_tokens_;
    }
    int finishes() const {
        const std::lock_guard lock(mutex_);
        return finishes_;
    }

    std::function<SinkVerdict(TokenId)> verdict;  // set before submit

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<TokenId> tokens_;
    int starts_ = 0;
    std::int32_t cached_tokens_ = 0;
    int finishes_ = 0;
    FinishInfo info_;
};

}  // namespace replica
