// How many requests may be inside at once. A request takes its place when its head has been read,
// before body, template or tokenizer cost anything, and keeps it until its handler has returned.
#pragma once

#include <cassert>
#include <memory>
#include <string>

#include "proto/error.h"

namespace replica::server {

/// I/O thread only. Outlives its tickets.
class Admission {
public:
    struct Limits {
        int running_max = 0;  // sequences the engine runs at once
        int waiting_max = 0;  // entries beyond those
    };
    explicit Admission(Limits limits) : limits_(limits) {}

    /// A place, given back when the last copy is gone; null when all are taken.
    std::shared_ptr<void> take() {
        if (inside_ >= limits_.running_max + limits_.waiting_max) return nullptr;
        ++inside_;
        return {this, [](Admission* self) {
                    --self->inside_;
                    assert(self->inside_ >= 0 && "a place was given back twice");
                }};
    }

    int inside() const { return inside_; }

    /// 429 with an estimated wait; `spread` in [0, 1) keeps clients from returning together.
    struct Wait {
        double seconds, spread;
    };
    proto::ApiError queue_full(Wait wait) const {
        proto::ApiError error;
        error.code = proto::ErrorCode::kQueueFull;
        error.retry_after_s = proto::retry_after_seconds(wait.seconds, wait.spread);
        const std::string places = std::to_string(limits_.waiting_max);
        error.message = "The queue is full: " + places + " of " + places +
                        " places are taken. Try again in " + std::to_string(*error.retry_after_s) +
                        " seconds.";
        return error;
    }

private:
    Limits limits_;
    int inside_ = 0;
};

}  // namespace replica::server
