// The scheduler driven over random traces against real block pools and slots: whatever arrives,
// budgets hold, no block or slot is lost or doubled, nobody starves, the order is respected, no
// prompt stalls those who decode, and everyone finishes.
#include <algorithm>
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
    std::int32_t drafts_max = 0;     // every decoding sequence drafts 0 .. so many
    bool has_checkpoints = false;    // prompts stop at random places on their way
    bool has_small_budgets = false;  // the budget of a step is anything from its least on
    std::int32_t pace = 2;           // of so many steps one brings an arrival
    ScheduleLimits limits{
        .token_budget = 24, .sequence_limit = 6, .block_tokens = 4, .logit_rows = 6};
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
            if (arrived < trace_.sequences && up_to(trace_.pace) == 1) add(++arrived);
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
        for (const auto& sequence : alive_) {
            SequenceView& view = sequence->view;
            view.drafts = view.is_decoding ? up_to(trace_.drafts_max + 1) - 1 : 0;
            view.chunk_end = trace_.has_checkpoints ? up_to(view.tokens) : 0;
            views.push_back(view);
        }
        const std::int32_t least = trace_.limits.sequence_limit;
        const std::int32_t budget = trace_.has_small_budgets
                                        ? least + up_to(trace_.limits.token_budget - least + 1) - 1
                                        : trace_.limits.token_budget;
        const StepPlan& plan = scheduler_.plan({.sequences = views,
                                                .blocks_free = pool_.free_count(),
                                                .slots_free = slots_.free_count(),
                                                .token_budget = budget});
        check_order(plan, views);
        check_decoding(plan, views);
        if (testing::Test::HasFatalFailure()) return;
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
        ASSERT_LE(rows, budget);
        ASSERT_LE(logit_rows_, trace_.limits.logit_rows);
        logit_rows_ = 0;
        for (const auto& sequence : alive_) {
            if (!sequence->view.is_running) sequence->view.waited += std::chrono::seconds(1);
            ASSERT_FALSE(sequence->view.is_decoding && !sequence->is_finished &&
                         sequence->view.computed + 2 <= sequence->view.tokens)
                << "a decoding sequence is one token behind at most";
        }
        check_running();
        std::erase_if(alive_, [](const auto& sequence) { return sequence->is_finished; });
    }

    /// Whoever is admitted comes before all who go on waiting; whoever is preempted behind all who
    /// stay.
    void check_order(const StepPlan& plan, const std::vector<SequenceView>& views) {
        const auto is_in = [](const std::vector<std::int32_t>& list, std::size_t index) {
            return std::ranges::find(list, static_cast<std::int32_t>(index)) != list.end();
        };
        for (std::size_t i = 0; i < views.size(); ++i) {
            if (!views[i].is_running && !is_in(plan.admitted, i)) {
                for (const std::int32_t admitted : plan.admitted)
                    ASSERT_TRUE(comes_before(views[static_cast<std::size_t>(admitted)], views[i]));
            }
            if (views[i].is_running && !is_in(plan.preempted, i)) {
                for (const std::int32_t preempted : plan.preempted)
                    ASSERT_TRUE(comes_before(views[i], views[static_cast<std::size_t>(preempted)]));
            }
        }
    }

    /// Every decoding sequence gets its row in every step, however long the prompts beside it are.
    void check_decoding(const StepPlan& plan, const std::vector<SequenceView>& views) {
        const auto decoding = static_cast<std::size_t>(std::ranges::count_if(
            views, [](const SequenceView& view) { return view.is_decoding; }));
        const auto preempted =
            static_cast<std::size_t>(std::ranges::count_if(plan.preempted, [&](std::int32_t index) {
                return views[static_cast<std::size_t>(index)].is_decoding;
            }));
        ASSERT_EQ(plan.decode.size() + preempted, decoding);
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
        ASSERT_TRUE(sequence.blocks.grow_to(view.computed + rows, pool_)) << "over the pool";
        view.blocks = sequence.blocks.size();
        const std::int32_t drafts = view.is_decoding ? rows - 1 : 0;
        ASSERT_LE(drafts, view.drafts);
        ASSERT_LE(view.computed + rows - drafts, view.tokens);
        view.computed += rows - drafts;
        if (view.computed < view.tokens) return;
        logit_rows_ += 1 + drafts;
        const std::int32_t accepted = drafts > 0 ? up_to(drafts + 1) - 1 : 0;
        view.computed += accepted;
        view.tokens += 1 + accepted;
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
    std::int32_t logit_rows_ = 0;  // of the step
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

TEST(SchedulerSimulationTest, DraftsCheckpointsAndSmallBudgetsBreakNothing) {
    std::int32_t preemptions = 0;
    for (std::uint32_t seed = 400; seed < 440; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Simulation simulation(
            {.seed = seed,
             .blocks = 42,
             .drafts_max = 3,
             .has_checkpoints = true,
             .has_small_budgets = true,
             .limits = {
                 .token_budget = 24, .sequence_limit = 6, .block_tokens = 4, .logit_rows = 12}});
        simulation.run();
        if (HasFatalFailure()) return;
        preemptions += simulation.preemptions();
    }
    EXPECT_GT(preemptions, 0) << "the trace is meant to preempt";
}

/// Arrivals of the best priority never end; the one of the worst is served all the same.
TEST(SchedulerSimulationTest, AgeingServesTheWorstPriorityUnderEndlessLoad) {
    constexpr ScheduleLimits kOne{
        .token_budget = 8, .sequence_limit = 1, .block_tokens = 4, .logit_rows = 1};
    Scheduler scheduler(kOne);
    SequenceView worst{.tokens = 4, .priority = 100, .arrival = 0};
    std::uint64_t arrivals = 0;
    std::int32_t seconds = 0;
    for (;; ++seconds) {
        ASSERT_LT(seconds, 1100)
            << "a hundred points of priority are a thousand seconds of waiting";
        const std::vector<SequenceView> waiting{
            worst, SequenceView{.tokens = 4, .priority = 0, .arrival = ++arrivals}};
        const StepPlan& plan =
            scheduler.plan({.sequences = waiting, .blocks_free = 10, .slots_free = 1});
        ASSERT_EQ(plan.admitted.size(), 1U);
        if (plan.admitted.front() == 0) break;
        worst.waited += std::chrono::seconds(1);
    }
    EXPECT_GE(seconds, 1000);
}

}  // namespace
}  // namespace replica
