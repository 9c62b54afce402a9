// Where a prompt leaves checkpoints: the boundaries that recur, never more than a handful.
#include "replica/engine/checkpoint_plan.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> plan(std::vector<std::int32_t> boundaries, std::int32_t prompt_tokens,
                               std::int32_t cached_tokens = 0, bool shares_prompt = false) {
    return plan_checkpoints({.boundaries = boundaries,
                             .prompt_tokens = prompt_tokens,
                             .cached_tokens = cached_tokens,
                             .shares_prompt = shares_prompt});
}

TEST(CheckpointPlanTest, TheFirstAndTheLastTwoBoundaries) {
    EXPECT_THAT(plan({100, 200, 300, 400, 495}, 500), ElementsAre(100, 400, 495));
}

TEST(CheckpointPlanTest, WithoutABoundaryNearTheEndTheLastTokenButOne) {
    EXPECT_THAT(plan({100}, 500), ElementsAre(100, 499));
    EXPECT_THAT(plan({}, 500), ElementsAre(499));
    EXPECT_THAT(plan({}, 9), ElementsAre(8));
}

TEST(CheckpointPlanTest, NothingInAVeryShortPrompt) {
    EXPECT_THAT(plan({}, 8), IsEmpty());
    EXPECT_THAT(plan({3}, 7), IsEmpty());
}

TEST(CheckpointPlanTest, NothingThatIsThereAlready) {
    EXPECT_THAT(plan({100, 200, 300, 495}, 500, 300), ElementsAre(495));
    EXPECT_THAT(plan({100, 200, 300, 495}, 500, 495), IsEmpty());
}

TEST(CheckpointPlanTest, OfTwoThatAreTooCloseTheLaterOne) {
    EXPECT_THAT(plan({100, 484, 495}, 500), ElementsAre(100, 495));
    EXPECT_THAT(plan({100, 200, 495}, 500), ElementsAre(100, 200, 495));
}

TEST(CheckpointPlanTest, TheFirstBoundaryStaysHoweverShortTheQuestionBehindIt) {
    EXPECT_THAT(plan({486, 495}, 500), ElementsAre(486, 495));
    EXPECT_THAT(plan({486, 490, 495}, 500), ElementsAre(486, 495));
}

TEST(CheckpointPlanTest, WhereAnotherTextPartedOthersMayToo) {
    const std::vector<std::int32_t> boundaries{20, 490};
    CheckpointQuestion question{
        .boundaries = boundaries, .prompt_tokens = 500, .cached_tokens = 20, .parting_tokens = 256};
    EXPECT_THAT(plan_checkpoints(question), ElementsAre(256, 490));
    question.parting_tokens = 484;
    EXPECT_THAT(plan_checkpoints(question), ElementsAre(484, 490));
    question.parting_tokens = 16;
    EXPECT_THAT(plan_checkpoints(question), ElementsAre(490));
}

TEST(CheckpointPlanTest, ALongTextIsKeptInStrides) {
    EXPECT_THAT(plan({50, 9990}, 10000),
                ElementsAre(50, kCheckpointStride, 2 * kCheckpointStride, 9990));
}

TEST(CheckpointPlanTest, ChoicesShareThePromptUpToItsLastToken) {
    EXPECT_THAT(plan({100, 495}, 500, 0, true), ElementsAre(100, 495, 499));
    EXPECT_THAT(plan({}, 5, 0, true), ElementsAre(4));
    EXPECT_THAT(plan({}, 1, 0, true), IsEmpty());
    EXPECT_THAT(plan({}, 500, 499, true), IsEmpty());
}

TEST(CheckpointPlanTest, PlacesAreAscendingInsideThePromptAndFew) {
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
        const auto tokens = static_cast<std::int32_t>(1 + random() % 30000);
        std::vector<std::int32_t> boundaries(random() % 40);
        for (std::int32_t& boundary : boundaries)
            boundary = static_cast<std::int32_t>(random() % 32000);
        std::ranges::sort(boundaries);
        const auto cached = static_cast<std::int32_t>(random() % static_cast<unsigned>(tokens));
        const auto places = plan(boundaries, tokens, cached, random() % 2 == 0);
        std::int32_t last = cached;
        for (const std::int32_t place : places) {
            ASSERT_GT(place, last);
            ASSERT_LT(place, tokens);
            last = place;
        }
        ASSERT_LE(places.size(), 7U + static_cast<std::size_t>(tokens / kCheckpointStride));
    }
}

}  // namespace
}  // namespace replica
