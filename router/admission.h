// What a request holds from the moment its head is accepted to its end: who calls, when it came,
// and its part of what all share. The server keeps it as the request's ticket.
#pragma once

#include <memory>

#include "router/charge.h"
#include "router/key_budget.h"
#include "router/key_ring.h"
#include "router/wait_queue.h"

namespace router {

struct Admission {
    Clock::time_point arrival;
    std::shared_ptr<const Caller> caller;
    KeyBudget::Share body;             // bytes that have come of it, or are announced to come
    WaitQueue::Arrival arrival_place;  // of generations, until the request has been read
    KeyBudget::Share pass;             // of what needs no queue, to its end
    bool is_cut = false;               // its answer was broken off by us, for its replica's fault
};

/// The ticket of an accepted request, as admit() has left it; null for a refused one.
[[nodiscard]] inline std::shared_ptr<Admission> admission_of(const std::shared_ptr<void>& ticket) {
    return std::static_pointer_cast<Admission>(ticket);
}

}  // namespace router
