#include "replica/chat/jinja/budget.h"

#include <ctime>

#include "replica/chat/jinja/fault.h"

namespace replica::chat::jinja {

namespace {

constexpr std::uint64_t kNodesPerTimeCheck = 4096;  // a check is some 200 ns, a node some 50

std::int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

[[noreturn]] void fail_limit(const std::string& what) {
    throw Fault(TemplateErrorKind::kLimit, "the template exceeds the limit of " + what);
}

}  // namespace

Budget::Budget(const TemplateLimits& limits)
    : limits_(limits),
      nodes_at_next_time_check_(kNodesPerTimeCheck),
      deadline_ns_(thread_cpu_ns() + std::chrono::nanoseconds(limits.cpu_time_max).count()) {}

void Budget::charge_nodes(std::uint64_t count) {
    nodes_ += count;
    if (nodes_ > limits_.nodes_max) {
        fail_limit(std::to_string(limits_.nodes_max) + " evaluated nodes");
    }
    if (nodes_ >= nodes_at_next_time_check_) {
        nodes_at_next_time_check_ = nodes_ + kNodesPerTimeCheck;
        check_time();
    }
}

void Budget::charge_iteration() {
    if (++iterations_ > limits_.loop_iterations_max) {
        fail_limit(std::to_string(limits_.loop_iterations_max) + " loop iterations");
    }
    charge_nodes(1);
}

void Budget::check_text(std::size_t bytes) const {
    if (bytes > limits_.text_bytes_max) {
        fail_limit(std::to_string(limits_.text_bytes_max) + " bytes in one text");
    }
}

void Budget::check_time() const {
    if (thread_cpu_ns() > deadline_ns_) {
        fail_limit(std::to_string(limits_.cpu_time_max.count()) + " ms of processor time");
    }
}

}  // namespace replica::chat::jinja
