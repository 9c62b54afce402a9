// The scheduler driven over random traces against real block pools and slots: whatever arrives,
// budgets hold, no block or slot is lost or doubled, nobody starves, and everyone finishes.
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "replica/cache/block_table.h"
#include "replica/cache/state_slots.h"
#include "replica/engine/scheduler.h"

namespace replica {
namespace {

struct Trace {
    std::uint32_t seed = 0;
    std::int32_t sequences = 60;
    std::int32_t blocks = 40;
    std::int32_t block_tokens = 4;
    std::int32_t prompt_max = 100;
    std::int32_t answer_max = 40;
    std::int32_t priority_span = 0;  // priorities 0 .. span
    ScheduleLimits limits{.token_budget = 24, .sequence_limit = 6, .block_tokens = 4};
};

struct Simulated {
    SequenceView view;
    std::int32_t prefill_until = 0;
    std::int32_t tokens_at_end = 0;
    BlockTable blocks;
    StateSlot slot = kScratchSlot;
    bool is_finished = false;
};

/// Carries out plans as the engine does, checking each one.
class Simulation {
public:
    explicit Simulation(const Trace& trace)
        : trace_(trace),
          random_(trace.seed),
          pool_({.block_count = trace.blocks, .block_tokens = trace.block_tokens}),
          slots_(trace.limits.sequence_limit),
          scheduler_(trace.limits) {}

    /// Steps until all have finished; sequences arrive at random times before.
    void run() {
        const std::int32_t steps_max = trace_.sequences * 2000;
        std::int32_t arrived = 0;
        while (arrived < trace_.sequences || !alive_.empty()) {
            if (arrived < trace_.sequences && random_() % 2 == 0) add(++arrived);
            if (!alive_.empty()) {
                step();
                if (testing::Test::HasFatalFailure()) return;
            }
            ASSERT_LT(++steps_, steps_max) << "somebody never finishes";
        }
        EXPECT_EQ(pool_.free_count(), trace_.blocks);
        EXPECT_EQ(slots_.free_count(), trace_.limits.sequence_limit);
    }

    std::int32_t preemptions() const { return preemptions_; }
    std::int32_t steps() const { return steps_; }

private:
    std::int32_t up_to(std::int32_t most) {
        return 1 + static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(most));
    }

    void add(std::int32_t arrival) {
        auto sequence = std::make_unique<Simulated>();
        sequence->view.tokens = up_to(trace_.prompt_max);
        sequence->view.arrival = static_cast<std::uint64_t>(arrival);
        sequence->view.priority = up_to(trace_.priority_span + 1) - 1;
        sequence->tokens_at_end = sequence->view.tokens + up_to(trace_.answer_max);
        alive_.push_back(std::move(sequence));
    }

    void step() {
        std::vector<SequenceView> views;
        for (const auto& sequence : alive_)
            views.push_back(sequence->view);
        const StepPlan& plan = scheduler_.plan({.sequences = views,
                                                .blocks_free = pool_.free_count(),
                                                .slots_free = slots_.free_count()});
        for (const std::int32_t index : plan.preempted)
            preempt(at(index));
        for (const std::int32_t index : plan.admitted)
            admit(at(index));
        std::int32_t rows = 0;
        std::set<std::int32_t> planned;
        for (const auto* part : {&plan.decode, &plan.prefill}) {
            for (const PlannedRows& entry : *part) {
                ASSERT_TRUE(planned.insert(entry.sequence).second) << "planned twice";
                ASSERT_GE(entry.rows, 1);
                ASSERT_EQ(at(entry.sequence).view.is_decoding, part == &plan.decode);
                rows += entry.rows;
                compute(at(entry.sequence), entry.rows);
                if (testing::Test::HasFatalFailure()) return;
            }
        }
        ASSERT_GE(rows, 1) << "a step that does nothing";
        ASSERT_LE(rows, trace_.limits.token_budget);
        for (const auto& sequence : alive_) {
            if (!sequence->view.is_running) sequence->view.waited += std::chrono::seconds(1);
            ASSERT_FALSE(sequence->view.is_decoding && !sequence->is_finished &&
                         sequence->view.computed + 2 <= sequence->view.tokens)
                << "a decoding sequence is one token behind at most";
        }
        check_running();
        std::erase_if(alive_, [](const auto& sequence) { return sequence->is_finished; });
    }

    void preempt(Simulated& sequence) {
        ASSERT_TRUE(sequence.view.is_running);
        ++preemptions_;
        sequence.blocks.release_all(pool_);
        slots_.release(sequence.slot);
        sequence.slot = kScratchSlot;
        sequence.view.is_running = false;
        sequence.view.is_decoding = false;
        sequence.view.computed = 0;
        sequence.view.blocks = 0;
    }

    void admit(Simulated& sequence) {
        ASSERT_FALSE(sequence.view.is_running);
        const auto slot = slots_.take();
        ASSERT_TRUE(slot.has_value());
        sequence.slot = *slot;
        sequence.view.is_running = true;
        sequence.prefill_until = sequence.view.tokens;
    }

    void compute(Simulated& sequence, std::int32_t rows) {
        SequenceView& view = sequence.view;
        ASSERT_TRUE(view.is_running);
        ASSERT_LE(view.computed + rows, view.tokens);
        ASSERT_TRUE(sequence.blocks.grow_to(view.computed + rows, pool_)) << "over the pool";
        view.computed += rows;
        view.blocks = sequence.blocks.size();
        if (view.computed < view.tokens) return;
        view.tokens += 1;
        view.is_decoding = true;
        if (view.tokens <= sequence.tokens_at_end) return;
        sequence.is_finished = true;
        sequence.blocks.release_all(pool_);
        slots_.release(sequence.slot);
    }

    void check_running() {
        std::int32_t running = 0;
        std::int32_t held = 0;
        for (const auto& sequence : alive_) {
            running += sequence->view.is_running && !sequence->is_finished ? 1 : 0;
            held += sequence->blocks.size();
        }
        ASSERT_LE(running, trace_.limits.sequence_limit);
        ASSERT_EQ(held + pool_.free_count(), trace_.blocks);
    }

    Simulated& at(std::int32_t index) { return *alive_[static_cast<std::size_t>(index)]; }

    Trace trace_;
    std::mt19937 random_;
    BlockPool pool_;
    StateSlots slots_;
    Scheduler scheduler_;
    std::vector<std::unique_ptr<Simulated>> alive_;
    std::int32_t steps_ = 0;
    std::int32_t preemptions_ = 0;
};

/// The pool holds one longest sequence and little more, so blocks run out all the time.
TEST(SchedulerSimulationTest, EveryoneFinishesWhenBlocksAreScarce) {
    std::int32_t preemptions = 0;
    for (std::uint32_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Simulation simulation({.seed = seed});
        simulation.run();
        if (HasFatalFailure()) return;
        preemptions += simulation.preemptions();
    }
    EXPECT_GT(preemptions, 0) << "the trace is meant to preempt";
}

TEST(SchedulerSimulationTest, EveryoneFinishesWithMixedPriorities) {
    for (std::uint32_t seed = 100; seed < 120; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Simulation simulation({.seed = seed, .priority_span = 100});
        simulation.run();
        if (HasFatalFailure()) return;
    }
}

TEST(SchedulerSimulationTest, EveryoneFinishesWithThePoolOfOneSequence) {
    for (std::uint32_t seed = 200; seed < 220; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Simulation simulation({.seed = seed, .sequences = 30, .blocks = 36});
        simulation.run();
        if (HasFatalFailure()) return;
    }
}

TEST(SchedulerSimulationTest, NothingIsPreemptedWhenBlocksAreAmple) {
    for (std::uint32_t seed = 300; seed < 310; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Simulation simulation({.seed = seed, .blocks = 6 * 36});
        simulation.run();
        if (HasFatalFailure()) return;
        EXPECT_EQ(simulation.preemptions(), 0);
    }
}

}  // namespace
}  // namespace replica
