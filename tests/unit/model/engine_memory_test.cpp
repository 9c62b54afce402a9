// The engine around a real model, on its thread, in full flow: operator new is counted from the
// first step in which all sequences decode to the last. Plain, drafting, and with a penalty.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "replica/engine/engine.h"
#include "replica/gguf/reader.h"
#include "replica/model/runner.h"
#include "tests/unit/engine/allocation_counter.h"
#include "tests/unit/engine/counting_sink.h"

namespace replica {
namespace {

struct Counted {
    int allocations = 0;
    int steps = 0;
};

Counted decode(const std::string& model, std::int32_t drafts) {
    const auto file = GgufFile::open(std::string(QUADRIGA_SOURCE_DIR) + "/tests/golden/" + model);
    EXPECT_TRUE(file.has_value());
    const auto backend = kernels::make_cpu_backend({.threads = 2});
    const auto runner = ModelRunner::load(*file, *backend,
                                          {.context = 256,
                                           .sequences_max = 4,
                                           .step_rows_max = 32,
                                           .draft_tokens_max = drafts,
                                           .snapshot_memory_bytes = 1 << 20},
                                          LoadProgress{});
    EXPECT_TRUE(runner.has_value());
    Counted counted;
    EngineOptions options{.sequences_max = 4,
                          .draft_tokens_max = drafts,
                          .draft_batch_max = 4,
                          .drafts_always = true};
    int full_steps = 0;
    options.on_step = [&](const StepStats& step) {
        // What is counted lies between two of these calls, both on the engine's thread.
        const bool is_full = step.prefill_rows == 0 && step.sequences == 4;
        if (is_full && ++full_steps > 3) ++counted.steps;
        count_allocations_of_this_thread(is_full && full_steps >= 3 && full_steps < 25);
    };
    const int before = counted_allocations();
    {
        Engine engine(**runner, options);
        std::vector<std::shared_ptr<CountingSink>> sinks;
        for (std::int32_t i = 0; i < 4; ++i) {
            sinks.push_back(std::make_shared<CountingSink>());
            EngineRequest request{.prompt = {1 + i, 2, 3, 4, 5},
                                  .max_tokens = 200,
                                  .ignore_eos = true,
                                  .top_logprobs = i == 2 ? 5 : -1,
                                  .sinks = {sinks.back()}};
            request.sampling.temperature = i == 0 ? 0.0F : 1.0F;
            if (i == 3) request.sampling.repetition_penalty = 1.1F;
            engine.submit(std::move(request));
        }
        for (const auto& sink : sinks)
            sink->is_finished.wait(false);
    }
    counted.allocations = counted_allocations() - before;
    return counted;
}

TEST(EngineMemoryTest, ARecurrentModelDecodesWithoutAllocating) {
    const Counted counted = decode("qwen35-odd.gguf", 0);
    EXPECT_GT(counted.steps, 20);
    EXPECT_EQ(counted.allocations, 0);
}

TEST(EngineMemoryTest, ARecurrentModelDraftsWithoutAllocating) {
    const Counted counted = decode("qwen35-odd.gguf", 3);
    EXPECT_GT(counted.steps, 20);
    EXPECT_EQ(counted.allocations, 0);
}

TEST(EngineMemoryTest, AnAttentionModelDecodesWithoutAllocating) {
    const Counted counted = decode("llama-tiny.gguf", 0);
    EXPECT_GT(counted.steps, 20);
    EXPECT_EQ(counted.allocations, 0);
}

}  // namespace
}  // namespace replica
