#include "kernels/cuda/sample_edits.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/philox.h"

namespace kernels::cuda {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

TEST(SampleEditsTest, ARowWithoutChangesHasNoEdits) {
    std::vector<LogitEdit> edits;
    SamplingRow row;
    row.temperature = 0.5F;
    row.top_k = 40;
    row.seed = 3;
    row.draw_index = 9;
    const SampleRow flat = flatten(row, edits);
    EXPECT_THAT(edits, IsEmpty());
    EXPECT_EQ(flat.edit_count, 0);
    EXPECT_EQ(flat.inverse_temperature, 2.0F);
    EXPECT_EQ(flat.top_k, 40);
    EXPECT_EQ(flat.uniform, draw_uniform(3, 9));
}

TEST(SampleEditsTest, ATemperatureOfNearlyNothingIsGreedy) {
    std::vector<LogitEdit> edits;
    SamplingRow row;
    row.temperature = 1e-6F;
    EXPECT_EQ(flatten(row, edits).inverse_temperature, 0.0F);
}

TEST(SampleEditsTest, AllThatChangesATokenIsOneEdit) {
    const std::vector<LogitBias> bias = {{7, 2.0F}, {5, 1.0F}, {7, 0.5F}};
    const std::vector<TokenCount> counts = {{7, 2, 1}, {9, 0, 4}};
    const std::vector<std::int32_t> drafted = {7, 4, 4};
    SamplingRow row;
    row.bias = bias;
    row.counts = counts;
    row.drafted = drafted;
    std::vector<LogitEdit> edits = {{100, 0.0F, 1, 1}};  // of a row in front
    const SampleRow flat = flatten(row, edits);
    EXPECT_EQ(flat.edit_begin, 1);
    EXPECT_EQ(flat.edit_count, 4);
    EXPECT_THAT(edits, ElementsAre(Field(&LogitEdit::token, 100), Field(&LogitEdit::token, 4),
                                   Field(&LogitEdit::token, 5), Field(&LogitEdit::token, 7),
                                   Field(&LogitEdit::token, 9)));
    EXPECT_EQ(edits[1].generated, 2);
    EXPECT_EQ(edits[1].occurred, 2);
    EXPECT_EQ(edits[3].bias, 2.5F);
    EXPECT_EQ(edits[3].generated, 3);
    EXPECT_EQ(edits[3].occurred, 4);
    EXPECT_EQ(edits[4].generated, 0);
    EXPECT_EQ(edits[4].occurred, 4);
}

TEST(SampleEditsTest, ABanOutweighsEverything) {
    const std::vector<LogitBias> bias = {{3, -100.0F}, {3, 50.0F}, {8, 20.0F}};
    const std::vector<std::int32_t> banned = {8};
    SamplingRow row;
    row.bias = bias;
    row.banned = banned;
    std::vector<LogitEdit> edits;
    EXPECT_EQ(flatten(row, edits).edit_count, 2);
    for (const LogitEdit& edit : edits)
        EXPECT_TRUE(std::isinf(edit.bias) && edit.bias < 0.0F) << edit.token;
}

}  // namespace
}  // namespace kernels::cuda
