// Verify steps of the delta net: whatever number of a step's rows is accepted, the state that
// replay makes has the bits of a sequence that was decoded token by token, and so have the outputs.
// Against plain single steps on the same backend: the fast path with every instruction set, and the
// reference.
#include <gtest/gtest.h>

#include "kernels/cpu/simd_kernels.h"
#include "tests/kernel/delta_net_support.h"

namespace kernels::test {
namespace {

using namespace delta_net;

/// The sequence's inputs with wrong drafts in rows begin .. end - 1.
Inputs with_wrong_rows(const Form& form, const Inputs& right, const Inputs& wrong, int begin,
                       int end) {
    Inputs mixed = right;
    const auto replace = [&](std::vector<float>& to, const std::vector<float>& from, int columns) {
        std::copy(from.begin() + std::int64_t{begin} * columns,
                  from.begin() + std::int64_t{end} * columns,
                  to.begin() + std::int64_t{begin} * columns);
    };
    replace(mixed.u, wrong.u, form.conv_dim());
    replace(mixed.z, wrong.z, form.values());
    replace(mixed.beta, wrong.beta, form.n_v);
    replace(mixed.alpha, wrong.alpha, form.n_v);
    return mixed;
}

/// A sequence decoded token by token: outputs of each row, state after each.
struct Plain {
    std::vector<std::vector<float>> y, state;

    Plain(const Layer& layer, const Inputs& in, int rows, BackendOptions options) {
        Runner runner(layer, options);
        for (int t = 0; t < rows; ++t) {
            y.push_back(runner.run({{&in, t, 1, 1}})[0]);
            state.push_back(runner.state_of(1));
        }
    }
    std::vector<float> y_of(int begin, int end) const {
        std::vector<float> all;
        for (int t = begin; t < end; ++t)
            all = joined(all, y[static_cast<std::size_t>(t)]);
        return all;
    }
    const std::vector<float>& state_after(int tokens) const {
        return state[static_cast<std::size_t>(tokens) - 1];
    }
};

std::vector<float> head_rows(const std::vector<float>& y, const Form& form, int rows) {
    return {y.begin(), y.begin() + std::int64_t{rows} * form.values()};
}

const Form kForms[] = {
    {.n_k = 2, .n_v = 6, .size = 20},                                 // a tail of lanes
    {.n_k = 2, .n_v = 6, .size = 8, .order = HeadOrder::kGrouped},    //
    {.n_k = 3, .n_v = 3, .size = 16, .conv_kernel = 2, .drafts = 1},  //
    {.n_k = 1, .n_v = 2, .size = 37, .conv_kernel = 8, .drafts = 8},  //
    {.n_k = 1, .n_v = 2, .size = 128, .order = HeadOrder::kGrouped, .drafts = 2}};

/// Verifies every number of rows after a prompt, accepts every number of them, goes on.
void check_accept_counts(const Form& form, const BackendOptions& options) {
    constexpr int kPrompt = 5;
    const Layer layer(form);
    const int rows_max = kPrompt + form.drafts + 3;
    const Inputs right(form, rows_max, 11);
    const Inputs wrong(form, rows_max, 12);
    const Plain plain(layer, right, rows_max, options);
    for (int rows = 1; rows <= 1 + form.drafts; ++rows) {
        for (int accepted = 0; accepted <= rows; ++accepted) {
            SCOPED_TRACE(std::to_string(accepted) + " of " + std::to_string(rows));
            Runner runner(layer, options);
            runner.run({{&right, 0, kPrompt, 1}});
            const Inputs mixed =
                with_wrong_rows(form, right, wrong, kPrompt + accepted, kPrompt + rows);
            const auto verified = runner.run(
                {{.inputs = &mixed, .begin = kPrompt, .rows = rows, .slot = 1, .commits = false}});
            EXPECT_EQ(first_difference(head_rows(verified[0], form, accepted),
                                       plain.y_of(kPrompt, kPrompt + accepted)),
                      "");
            EXPECT_EQ(first_difference(runner.state_of(1), plain.state_after(kPrompt)), "")
                << "the state waits at the last committed token";
            const int after = kPrompt + accepted;
            const auto next = runner.run({{.inputs = &right,
                                           .begin = after,
                                           .rows = 2,
                                           .slot = 1,
                                           .replay_rows = accepted}});
            EXPECT_EQ(first_difference(next[0], plain.y_of(after, after + 2)), "");
            EXPECT_EQ(first_difference(runner.state_of(1), plain.state_after(after + 2)), "");
        }
    }
}

TEST(DeltaNetVerifyTest, EveryAcceptCountEqualsSingleStepsBitForBit) {
    for (const Form& form : kForms) {
        SCOPED_TRACE("size " + std::to_string(form.size));
        check_accept_counts(form, {.accumulator = CpuAccumulator::kDouble});
        for (const std::string& target : cpu::simd_targets()) {
            SCOPED_TRACE(target);
            cpu::set_simd_target_for_test(target);
            check_accept_counts(form, {});
        }
        cpu::set_simd_target_for_test("");
    }
}

/// Verify steps, plain steps and replays without rows in random order, as long as the ring turns
/// several times.
void check_rounds(const Form& form, const BackendOptions& options) {
    constexpr int kRows = 90;
    const Layer layer(form);
    const Inputs right(form, kRows + 16, 21);
    const Inputs wrong(form, kRows + 16, 22);
    const Plain plain(layer, right, kRows + 16, options);
    Random random(23);
    const auto below = [&](int end) { return int(random.byte()) % end; };
    Runner runner(layer, options);
    int done = 0;
    int replays = 0;  // accepted rows that the state has not taken over yet
    while (done < kRows) {
        SCOPED_TRACE("after " + std::to_string(done) + " tokens, " + std::to_string(replays) +
                     " to replay");
        Piece piece{.inputs = &right, .begin = done, .slot = 1, .replay_rows = replays};
        const int kind = below(8);
        if (kind == 0 && done > 0) {  // replay alone
            runner.run({piece});
            EXPECT_EQ(first_difference(runner.state_of(1), plain.state_after(done)), "");
            replays = 0;
        } else if (kind == 1) {  // some rows that commit, at times more than the ring has
            piece.rows = 1 + below(14);
            const auto y = runner.run({piece});
            EXPECT_EQ(first_difference(y[0], plain.y_of(done, done + piece.rows)), "");
            done += piece.rows;
            EXPECT_EQ(first_difference(runner.state_of(1), plain.state_after(done)), "");
            replays = 0;
        } else {
            piece.rows = 1 + below(1 + form.drafts);
            piece.commits = false;
            replays = below(piece.rows + 1);
            const Inputs mixed =
                with_wrong_rows(form, right, wrong, done + replays, done + piece.rows);
            piece.inputs = &mixed;
            const auto y = runner.run({piece});
            EXPECT_EQ(
                first_difference(head_rows(y[0], form, replays), plain.y_of(done, done + replays)),
                "");
            if (done > 0) {
                EXPECT_EQ(first_difference(runner.state_of(1), plain.state_after(done)), "");
            }
            done += replays;
        }
    }
}

TEST(DeltaNetVerifyTest, RoundsOfAllKindsInAnyOrderEqualSingleSteps) {
    for (const Form& form : kForms) {
        SCOPED_TRACE("size " + std::to_string(form.size));
        check_rounds(form, {});
        if (form.size <= 20) check_rounds(form, {.accumulator = CpuAccumulator::kDouble});
    }
}

TEST(DeltaNetVerifyTest, AFreshSequenceMayBeginWithAVerifyStep) {
    const Layer layer(Form{});
    const Inputs in(layer.form, 6, 8);
    const Plain plain(layer, in, 6, {});
    Runner runner(layer);
    runner.poison_slots(std::numeric_limits<float>::quiet_NaN());
    const auto first =
        runner.run({{.inputs = &in, .begin = 0, .rows = 3, .slot = 1, .commits = false}});
    EXPECT_EQ(first_difference(first[0], plain.y_of(0, 3)), "");
    EXPECT_EQ(runner.state_of(1), std::vector<float>(runner.state_of(1).size(), 0.0F));
    const auto next =
        runner.run({{.inputs = &in, .begin = 2, .rows = 4, .slot = 1, .replay_rows = 2}});
    EXPECT_EQ(first_difference(next[0], plain.y_of(2, 6)), "");
    EXPECT_EQ(first_difference(runner.state_of(1), plain.state_after(6)), "");
}

TEST(DeltaNetVerifyTest, InAMixedBatchEverySequenceIsItselfAloneAndOtherSlotsStay) {
    const Layer layer(Form{.n_k = 2, .n_v = 6, .size = 16});
    std::vector<Inputs> in;
    for (std::uint64_t i = 0; i < 4; ++i)
        in.emplace_back(layer.form, 60, 40 + i);
    const auto run_all = [&](Runner& runner, const std::vector<std::vector<Piece>>& steps) {
        std::vector<std::vector<float>> results(4);
        for (const std::vector<Piece>& pieces : steps) {
            const auto y = runner.run(pieces);
            for (std::size_t i = 0; i < pieces.size(); ++i) {
                const auto owner = static_cast<std::size_t>(pieces[i].inputs - in.data());
                results[owner] = joined(results[owner], y[i]);
            }
        }
        return results;
    };
    // Sequences 0 and 3 verified before; then 0 verifies again, 1 decodes, 2 prefills, 3 replays.
    const std::vector<std::vector<Piece>> steps = {
        {{&in[0], 0, 7, 1}, {&in[1], 0, 4, 2}, {&in[3], 0, 9, 5}},
        {{&in[3], 9, 4, 5, 0, false}, {&in[1], 4, 1, 2}, {&in[0], 7, 5, 1, 0, false}},
        {{&in[0], 10, 4, 1, 3, false},
         {&in[1], 5, 1, 2},
         {&in[2], 0, 40, 4},
         {&in[3], 11, 0, 5, 2}},
        {{&in[2], 40, 1, 4}, {&in[3], 11, 1, 5}, {&in[0], 14, 2, 1, 4}}};
    std::vector<std::vector<float>> expected(4);
    std::vector<std::vector<float>> expected_state(4);
    const int slot_of[] = {1, 2, 4, 5};
    for (std::size_t s = 0; s < 4; ++s) {
        std::vector<std::vector<Piece>> own;
        for (const std::vector<Piece>& pieces : steps)
            for (const Piece& piece : pieces)
                if (piece.inputs == &in[s]) own.push_back({piece});
        Runner alone(layer);
        alone.poison_slots(0.5F);
        expected[s] = run_all(alone, own)[s];
        expected_state[s] = alone.everything_of(slot_of[s]);
    }
    for (const int threads : {1, 2, 3}) {
        Runner runner(layer, {.threads = threads});
        runner.poison_slots(0.5F);
        const std::vector<float> untouched = runner.everything_of(0);
        const auto results = run_all(runner, steps);
        for (std::size_t s = 0; s < 4; ++s) {
            EXPECT_EQ(first_difference(results[s], expected[s]), "") << "sequence " << s;
            EXPECT_EQ(first_difference(runner.everything_of(slot_of[s]), expected_state[s]), "");
        }
        EXPECT_EQ(first_difference(runner.everything_of(0), untouched), "");
        EXPECT_EQ(first_difference(runner.everything_of(3), untouched), "");
    }
}

TEST(DeltaNetVerifyTest, ALongChunkLeavesItsLastRowsInTheRing) {
    const Form form{.n_k = 1, .n_v = 1, .size = 8, .drafts = 3};
    const Layer layer(form);
    const Inputs in(form, 33, 5);
    Runner runner(layer);
    runner.run({{&in, 0, 2, 1}, {&in, 0, 33, 2}});
    const auto ring_row = [&](int slot, int position) {
        const float* row = runner.conv_ring.row<float>(slot) +
                           std::int64_t{position % form.ring()} * form.conv_dim();
        return std::vector<float>(row, row + form.conv_dim());
    };
    const auto input = [&](int position) {
        const auto begin = in.u.begin() + std::int64_t{position} * form.conv_dim();
        return std::vector<float>(begin, begin + form.conv_dim());
    };
    for (int p = 33 - form.ring(); p < 33; ++p)
        EXPECT_EQ(ring_row(2, p), input(p)) << p;
    EXPECT_EQ(ring_row(1, 0), input(0));
    EXPECT_EQ(ring_row(1, 1), input(1));
    EXPECT_EQ(ring_row(1, 2), std::vector<float>(std::size_t(form.conv_dim()), 0.0F))
        << "unwritten";
}

using DeltaNetVerifyDeathTest = testing::Test;

TEST(DeltaNetVerifyDeathTest, StepsThatTheBuffersCannotHoldAreOurMistake) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const Layer layer(Form{.drafts = 1});
    const Inputs in(layer.form, 8, 3);
    Runner runner(layer);
    EXPECT_DEATH(runner.run({{.inputs = &in, .begin = 0, .rows = 3, .slot = 1, .commits = false}}),
                 "at most 1 \\+ drafts rows");
    EXPECT_DEATH(runner.run({{.inputs = &in, .begin = 4, .rows = 1, .slot = 1, .replay_rows = 3}}),
                 "replay_rows_of");
    EXPECT_DEATH(runner.run({{.inputs = &in, .begin = 1, .rows = 1, .slot = 1, .replay_rows = 2}}),
                 "count as tokens");
}

TEST(DeltaNetVerifyDeathTest, ARingThatRowsTakenBackWouldOverwriteIsOurMistake) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const Layer layer(Form{.drafts = 3});
    const Inputs in(layer.form, 8, 3);
    Runner runner(layer);
    runner.conv_ring.shape[1] = layer.form.ring() - 1;
    EXPECT_DEATH(runner.run({{.inputs = &in, .begin = 0, .rows = 4, .slot = 1, .commits = false}}),
                 "holds all taps");
}

}  // namespace
}  // namespace kernels::test
