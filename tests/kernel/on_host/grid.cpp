#include "tests/kernel/on_host/grid.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include <ucontext.h>

namespace on_host {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;

enum class Wait { kNone, kWarp, kBlock, kCluster, kCondition };

struct Copy {
    std::byte* to;
    const void* from;
    std::size_t bytes;
};

struct Fiber {
    std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
    ucontext_t start{};
    std::jmp_buf place{};
    bool has_started = false;
    bool is_done = false;
    Wait wait = Wait::kNone;
    int arrivals = 0;  // at the cluster's barrier
    int waits = 0;
    Position position;
    std::array<std::byte, kPayloadBytes> payload{};
    std::vector<Copy> copies;
    std::function<bool()> condition;
};

struct SharedMemory {
    static constexpr std::size_t kAlignment = 1024;
    std::unique_ptr<std::byte[]> bytes = std::make_unique<std::byte[]>(kSharedBytes + kAlignment);
    std::byte* begin() const {
        const auto address = reinterpret_cast<std::uintptr_t>(bytes.get());
        return bytes.get() + (kAlignment - address % kAlignment) % kAlignment;
    }
};

/// A cluster under way; used again for each.
class Cluster {
public:
    Cluster(const Grid& grid, const std::function<void()>& kernel)
        : grid_(grid),
          kernel_(kernel),
          random_(grid.seed),
          fibers_(static_cast<std::size_t>(grid.threads * grid.cluster)),
          gathered_(fibers_.size() * kPayloadBytes),
          shared_(static_cast<std::size_t>(grid.cluster)) {
        for (std::size_t i = 0; i < fibers_.size(); i += kWarpLanes)
            warps_.push_back(i);
    }

    void run_grid() {
        std::vector<Place> places;
        for (unsigned y = 0; y < static_cast<unsigned>(grid_.y); ++y)
            for (unsigned x = 0; x < static_cast<unsigned>(grid_.x);
                 x += static_cast<unsigned>(grid_.cluster))
                places.push_back({x, y});
        if (grid_.seed != 0) std::ranges::shuffle(places, random_);
        for (const Place& place : places)
            run(place);
    }

    Fiber& current() { return *current_; }
    std::byte* shared(int rank) const { return shared_[static_cast<std::size_t>(rank)].begin(); }
    const std::byte* gathered() const {
        const std::size_t index = static_cast<std::size_t>(current_ - fibers_.data());
        return gathered_.data() + index / kWarpLanes * kWarpLanes * kPayloadBytes;
    }
    bool flip() { return grid_.seed != 0 && random_() % 2 == 0; }

    /// Does a warp let others go past it?
    bool is_late() {
        constexpr unsigned kOneOf = 8;
        return grid_.seed != 0 && random_() % kOneOf == 0;
    }

    void yield() {
        if (_setjmp(current_->place) == 0) _longjmp(scheduler_, 1);
    }
    [[noreturn]] void end(const char* what) {
        failure_ = what;
        _longjmp(scheduler_, 1);
    }

private:
    static void enter() {
        Cluster& cluster = *active();
        cluster.kernel_();
        cluster.current_->is_done = true;
        _longjmp(cluster.scheduler_, 1);
    }

    void begin(const Place& first) {
        for (const SharedMemory& memory : shared_)
            std::memset(memory.begin(), 0xFF, kSharedBytes);
        for (std::size_t i = 0; i < fibers_.size(); ++i) {
            Fiber& fiber = fibers_[i];
            const auto index = static_cast<unsigned>(i);
            const auto threads = static_cast<unsigned>(grid_.threads);
            fiber.has_started = fiber.is_done = false;
            fiber.wait = Wait::kNone;
            fiber.arrivals = fiber.waits = 0;
            fiber.position = {
                .thread = {index % threads, 0},
                .block = {first.x + index / threads, first.y},
                .block_size = {threads, 1},
                .grid_size = {static_cast<unsigned>(grid_.x), static_cast<unsigned>(grid_.y)},
                .rank = static_cast<int>(index / threads)};
        }
    }

    void run(const Place& first) {
        begin(first);
        const auto is_done = [](const Fiber& fiber) { return fiber.is_done; };
        while (!std::ranges::all_of(fibers_, is_done)) {
            if (grid_.seed != 0) std::ranges::shuffle(warps_, random_);
            bool has_moved = false;
            for (const std::size_t warp : warps_) {
                if (is_late()) {
                    has_moved = true;  // for all we know it could
                    continue;
                }
                while (run_warp(warp))
                    has_moved = true;
            }
            has_moved |= release_blocks();
            has_moved |= release_cluster();
            if (!has_moved || flip()) has_moved |= do_one_later();
            has_moved |= release_conditions();
            if (!has_moved) throw std::logic_error("deadlock");
        }
        if (!later_.empty()) throw std::logic_error("copies nobody waited for");
        for (const Fiber& fiber : fibers_)
            if (!fiber.copies.empty()) throw std::logic_error("copies nobody waited for");
    }

    void resume(Fiber& fiber) {
        current_ = &fiber;
        if (_setjmp(scheduler_) == 0) {
            if (fiber.has_started) _longjmp(fiber.place, 1);
            fiber.has_started = true;
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = fiber.stack.get();
            fiber.start.uc_stack.ss_size = kStackBytes;
            fiber.start.uc_link = nullptr;
            makecontext(&fiber.start, &Cluster::enter, 0);
            setcontext(&fiber.start);
        }
        if (failure_ != nullptr) throw std::logic_error(failure_);
    }

    /// Its lanes until each waits; whether one has moved.
    bool run_warp(std::size_t first) {
        const auto lanes = std::span(fibers_).subspan(first, kWarpLanes);
        bool has_moved = false;
        for (Fiber& fiber : lanes) {
            if (fiber.is_done || fiber.wait != Wait::kNone) continue;
            resume(fiber);
            has_moved = true;
        }
        const auto meeting = std::ranges::count_if(
            lanes, [](const Fiber& fiber) { return fiber.wait == Wait::kWarp; });
        const bool is_waited_for = std::ranges::any_of(lanes, [](const Fiber& fiber) {
            return !fiber.is_done && fiber.wait == Wait::kCondition;
        });
        if (meeting == 0 || is_waited_for) return has_moved;
        if (meeting != kWarpLanes) throw std::logic_error("lanes of a warp have parted");
        for (std::size_t i = 0; i < kWarpLanes; ++i) {
            std::ranges::copy(lanes[i].payload, gathered_.data() + (first + i) * kPayloadBytes);
            lanes[i].wait = Wait::kNone;
        }
        return true;
    }

    bool release_blocks() {
        bool has_moved = false;
        const auto threads = static_cast<std::size_t>(grid_.threads);
        for (std::size_t first = 0; first < fibers_.size(); first += threads) {
            const auto block = std::span(fibers_).subspan(first, threads);
            if (!std::ranges::all_of(block, [](const Fiber& f) { return f.wait == Wait::kBlock; }))
                continue;
            for (Fiber& fiber : block)
                fiber.wait = Wait::kNone;
            has_moved = true;
        }
        return has_moved;
    }

    bool release_cluster() {
        const int arrivals = std::ranges::min_element(fibers_, {}, &Fiber::arrivals)->arrivals;
        bool has_moved = false;
        for (Fiber& fiber : fibers_) {
            if (fiber.wait != Wait::kCluster || fiber.waits > arrivals) continue;
            fiber.wait = Wait::kNone;
            has_moved = true;
        }
        return has_moved;
    }

    bool release_conditions() {
        bool has_moved = false;
        for (Fiber& fiber : fibers_) {
            if (fiber.is_done || fiber.wait != Wait::kCondition || !fiber.condition()) continue;
            fiber.wait = Wait::kNone;
            has_moved = true;
        }
        return has_moved;
    }

    bool do_one_later() {
        if (later_.empty()) return false;
        const std::size_t index = grid_.seed != 0 ? random_() % later_.size() : 0;
        std::swap(later_[index], later_.back());
        later_.back()();
        later_.pop_back();
        return true;
    }

public:
    std::vector<std::function<void()>>& later() { return later_; }

    static Cluster*& active() {
        static Cluster* cluster = nullptr;
        return cluster;
    }

private:
    const Grid& grid_;
    const std::function<void()>& kernel_;
    std::mt19937 random_;
    std::vector<Fiber> fibers_;
    std::vector<std::byte> gathered_;  // [fibers] payloads of each warp's last exchange
    std::vector<SharedMemory> shared_;
    std::vector<std::size_t> warps_;  // first fiber of each, in the order they run
    std::vector<std::function<void()>> later_;
    Fiber* current_ = nullptr;
    std::jmp_buf scheduler_{};
    const char* failure_ = nullptr;
};

Cluster& cluster() {
    return *Cluster::active();
}
void wait(Wait what) {
    cluster().current().wait = what;
    cluster().yield();
}

}  // namespace

void run(const Grid& grid, const std::function<void()>& kernel) {
    if (grid.threads % kWarpLanes != 0 || grid.x % grid.cluster != 0)
        throw std::logic_error("a grid of whole warps and whole clusters");
    Cluster all(grid, kernel);
    Cluster::active() = &all;
    all.run_grid();
    Cluster::active() = nullptr;
}

const Position& position() {
    return cluster().current().position;
}
std::byte* shared(int rank) {
    return cluster().shared(rank < 0 ? position().rank : rank);
}
void wait_for_block() {
    wait(Wait::kBlock);
}
const std::byte* exchange(const void* payload, std::size_t bytes) {
    std::memcpy(cluster().current().payload.data(), payload, bytes);
    wait(Wait::kWarp);
    return cluster().gathered();
}
void arrive_at_cluster() {
    ++cluster().current().arrivals;
}
void wait_for_cluster() {
    Fiber& fiber = cluster().current();
    if (++fiber.waits > fiber.arrivals) fail("a cluster's wait without its arrival");
    wait(Wait::kCluster);
}
void wait_until(const std::function<bool()>& condition) {
    cluster().current().condition = condition;
    wait(Wait::kCondition);
}
void pause_some_time() {
    if (cluster().flip()) wait_until([] { return true; });
}
void do_some_time(const std::function<void()>& what) {
    if (cluster().flip()) {
        cluster().later().push_back(what);
    } else {
        what();
    }
}
void copy_some_time(std::byte* to, const void* from, std::size_t bytes) {
    if (cluster().flip()) {
        cluster().current().copies.push_back({to, from, bytes});
    } else {
        std::memcpy(to, from, bytes);
    }
}
void finish_copies() {
    std::vector<Copy>& copies = cluster().current().copies;
    for (const Copy& copy : copies)
        std::memcpy(copy.to, copy.from, copy.bytes);
    copies.clear();
}
void fail(const char* what) {
    cluster().end(what);
}

}  // namespace on_host
