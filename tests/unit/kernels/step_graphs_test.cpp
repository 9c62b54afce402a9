// Which steps are replayed, and which of them without being written down: a driver that counts
// stands for the card.
#include "kernels/cuda/step_graphs.h"

#include <cstddef>

#include <gtest/gtest.h>

#include "kernels/cuda/device_code.h"

namespace kernels::cuda {
namespace {

struct Calls {
    int launches = 0;  // outside of a capture
    int captured = 0;  // within
    int graphs = 0;    // launched
    bool captures = false;
};
Calls calls;

template <class Handle>
Handle handle() {
    static std::byte place;
    return reinterpret_cast<Handle>(&place);
}

Driver counting_driver() {
    Driver d{};
    d.module_load = [](ModuleHandle* module, const void*) {
        *module = handle<ModuleHandle>();
        return kSuccess;
    };
    d.module_unload = [](ModuleHandle) { return kSuccess; };
    d.module_function = [](FunctionHandle* function, ModuleHandle, const char*) {
        *function = handle<FunctionHandle>();
        return kSuccess;
    };
    d.launch = [](const LaunchConfig*, FunctionHandle, void**, void**) {
        ++(calls.captures ? calls.captured : calls.launches);
        return kSuccess;
    };
    d.stream_begin_capture = [](StreamHandle, int) {
        calls.captures = true;
        return kSuccess;
    };
    d.stream_end_capture = [](StreamHandle, GraphHandle* graph) {
        calls.captures = false;
        *graph = handle<GraphHandle>();
        return kSuccess;
    };
    d.graph_instantiate = [](GraphExecHandle* exec, GraphHandle, unsigned long long) {
        *exec = handle<GraphExecHandle>();
        return kSuccess;
    };
    d.graph_upload = [](GraphExecHandle, StreamHandle) { return kSuccess; };
    d.graph_launch = [](GraphExecHandle, StreamHandle) {
        ++calls.graphs;
        return kSuccess;
    };
    d.graph_exec_destroy = [](GraphExecHandle) { return kSuccess; };
    d.graph_destroy = [](GraphHandle) { return kSuccess; };
    return d;
}

class StepGraphsTest : public testing::Test {
protected:
    StepGraphsTest() { calls = {}; }

    /// Two launches, the second with `value` as its parameters.
    static LaunchList list_of(int value) {
        LaunchList list;
        list.add(KernelId::kEmbedRows, {.x = 1}, &value, sizeof(value));
        list.add(KernelId::kNormRows, {.x = 1}, &value, sizeof(value));
        return list;
    }
    void run(int value, const StepKey& key) {
        LaunchList list = list_of(value);
        graphs_.run(list, key.rows, key, nullptr);
    }

    Driver driver_ = counting_driver();
    KernelSet kernels_{driver_, own_code(CodeKind::kSm90)};
    StepGraphs graphs_{driver_, kernels_};
    StepKey key_{.rows = 1, .seqs = 1, .logit_rows = 1, .seq_rows_max = 1, .draws = true};
};

TEST_F(StepGraphsTest, AStepIsKnownOnceItsListWasEqualTwice) {
    run(7, key_);
    EXPECT_EQ(calls.launches, 2);
    EXPECT_FALSE(graphs_.knows(key_));
    run(7, key_);
    EXPECT_EQ(calls.captured, 2);
    EXPECT_EQ(calls.graphs, 1);
    ASSERT_TRUE(graphs_.knows(key_));
    graphs_.repeat(key_, nullptr);
    EXPECT_EQ(calls.graphs, 2);
    EXPECT_EQ(kernels_.runs(KernelId::kNormRows), 3U) << "each step counts";
}

TEST_F(StepGraphsTest, ARehearsedStepIsCapturedAndNotRun) {
    LaunchList list = list_of(7);
    graphs_.rehearse(list, key_, nullptr);
    EXPECT_EQ(calls.launches + calls.graphs, 0);
    EXPECT_EQ(kernels_.runs(KernelId::kNormRows), 0U);
    run(7, key_);
    EXPECT_EQ(calls.graphs, 1) << "the first real step is a graph already";
    EXPECT_EQ(calls.launches, 0);
    EXPECT_TRUE(graphs_.knows(key_));
}

TEST_F(StepGraphsTest, AKeyThatStandsForTwoListsIsNeverTrusted) {
    run(7, key_);
    run(8, key_);
    for (int i = 0; i < 4; ++i)
        run(8, key_);
    EXPECT_FALSE(graphs_.knows(key_));
}

TEST_F(StepGraphsTest, AKeyWhoseGraphWasGivenUpIsLearnedAgain) {
    run(7, key_);
    run(7, key_);
    for (int i = 0; i < static_cast<int>(kStepGraphsMax); ++i) {
        LaunchList list = list_of(100 + i);
        graphs_.run(list, 1, std::nullopt, nullptr);
    }
    EXPECT_FALSE(graphs_.knows(key_)) << "another list has its place";
    run(7, key_);
    run(7, key_);
    EXPECT_TRUE(graphs_.knows(key_));
}

TEST(StepKeyTest, TellsStepsApartByTheirCountsAndRefusesWhatDependsOnMore) {
    const std::int32_t row_begin[] = {0, 1, 6};
    StepDescriptor step;
    step.rows = 6;
    step.seqs = 2;
    step.row_begin = row_begin;
    const auto key = step_key(step, StepProgram::kTrunk);
    ASSERT_TRUE(key);
    EXPECT_EQ(key->seq_rows_max, 5);
    EXPECT_FALSE(key->draws);
    EXPECT_NE(key, step_key(step, StepProgram::kDraftFromTrunk));
    step.wants_logits = true;
    EXPECT_FALSE(step_key(step, StepProgram::kTrunk)) << "the head is asked for its logits";
    step.wants_logits = false;
    const std::int32_t long_rows[] = {0, 1, 18};
    step.rows = 18;
    step.row_begin = long_rows;
    EXPECT_FALSE(step_key(step, StepProgram::kTrunk)) << "a chunk is cut into its own launches";
}

}  // namespace
}  // namespace kernels::cuda
