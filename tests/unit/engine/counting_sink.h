// A sink that hears everything, keeps nothing and allocates nothing; a test waits for its end.
#pragma once

#include <atomic>

#include "replica/engine/engine.h"

namespace replica {

class CountingSink : public TokenSink {
public:
    SinkVerdict on_token(TokenId, const kernels::RowLogprobs*) override {
        return SinkVerdict::kContinue;
    }
    void on_finish(const FinishInfo&) override {
        is_finished = true;
        is_finished.notify_all();
    }
    std::atomic<bool> is_finished = false;
};

}  // namespace replica
