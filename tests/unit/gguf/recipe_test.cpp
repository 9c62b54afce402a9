// Proves that each tensor gets the type of the stock mixes, by the published table of types and by
// the published sizes of whole models.
#include "replica/gguf/tool/recipe.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "replica/gguf/tool/qwen35_shape.h"
#include "replica/gguf/tool/synth.h"

namespace replica {
namespace {

using kernels::DType;

struct Choice {
    std::string recipe;
    bool has_importance = false;
    std::vector<TypeOverride> overrides;
};

/// Types of a public shape's tensors by name.
std::map<std::string, DType> types_of(const std::string& shape_name, const Choice& choice) {
    const Qwen35Shape& shape = find_public_shape(shape_name)->shape;
    std::vector<RecipeTensor> tensors;
    for (const ExpectedTensor& tensor : qwen35_tensors(shape))
        tensors.push_back({tensor.name, tensor.ne});
    const RecipeModel model = {.block_count = shape.layers + shape.mtp_blocks,
                               .heads_per_kv_head = shape.heads / shape.kv_heads,
                               .has_importance = choice.has_importance};
    const std::vector<DType> types =
        choose_types(*find_recipe(choice.recipe), model, tensors, choice.overrides);
    std::map<std::string, DType> result;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        result[tensors[i].name] = types[i];
    return result;
}

TEST(RecipeTest, Iq4XsGivesMoreToOutputAndValues) {
    auto types = types_of("27b", {.recipe = "iq4_xs", .has_importance = true});
    EXPECT_EQ(types["output.weight"], DType::kQ6_K);
    EXPECT_EQ(types["token_embd.weight"], DType::kIQ4_XS);
    EXPECT_EQ(types["blk.0.attn_qkv.weight"], DType::kQ5_K);
    EXPECT_EQ(types["blk.3.attn_v.weight"], DType::kQ5_K);
    EXPECT_EQ(types["blk.64.attn_v.weight"], DType::kQ5_K) << "the MTP block";
    EXPECT_EQ(types["blk.3.attn_q.weight"], DType::kIQ4_XS);
    EXPECT_EQ(types["blk.0.ffn_down.weight"], DType::kIQ4_XS);
    EXPECT_EQ(types["blk.0.ssm_alpha.weight"], DType::kIQ4_XS);
    EXPECT_EQ(types["blk.64.nextn.eh_proj.weight"], DType::kIQ4_XS);
}

TEST(RecipeTest, WithoutImportanceTheFirstEighthOfFfnDownIsQ5K) {
    auto types = types_of("27b", {.recipe = "iq4_xs"});
    for (int block = 0; block < 65; ++block) {
        EXPECT_EQ(types["blk." + std::to_string(block) + ".ffn_down.weight"],
                  block < 8 ? DType::kQ5_K : DType::kIQ4_XS)
            << block;
    }
}

TEST(RecipeTest, FewQueryHeadsPerKvHeadLeaveValuesAtTheBaseType) {
    const std::vector<RecipeTensor> tensors = {{"blk.0.attn_v.weight", {256, 512}}};
    const RecipeModel model = {.block_count = 1, .heads_per_kv_head = 2};
    EXPECT_EQ(choose_types(*find_recipe("iq4_xs"), model, tensors, {})[0], DType::kIQ4_XS);
}

TEST(RecipeTest, ATiedEmbeddingIsTheOutput) {
    auto types = types_of("0.8b", {.recipe = "iq4_xs"});
    EXPECT_EQ(types["token_embd.weight"], DType::kQ6_K);
}

TEST(RecipeTest, Q4KMGivesMoreBitsToSomeLayers) {
    auto types = types_of("0.8b", {.recipe = "q4_k_m"});  // 25 blocks
    for (int block = 0; block < 25; ++block) {
        const bool more = block < 3 || block >= 21 || (block - 3) % 3 == 2;
        const std::string prefix = "blk." + std::to_string(block) + ".";
        EXPECT_EQ(types[prefix + "ffn_down.weight"], more ? DType::kQ6_K : DType::kQ4_K) << block;
        // attn_v and attn_qkv share one counter, one per block here.
        const bool is_attention = block % 4 == 3 || block == 24;
        EXPECT_EQ(types[prefix + (is_attention ? "attn_v.weight" : "attn_qkv.weight")],
                  more ? DType::kQ6_K : DType::kQ4_K)
            << block;
        EXPECT_EQ(types[prefix + "ffn_up.weight"], DType::kQ4_K);
    }
}

TEST(RecipeTest, BlocksAreCountedInTheirOrderAndNotInThatOfTheFile) {
    std::vector<RecipeTensor> tensors;
    for (int block = 15; block >= 0; --block)
        tensors.push_back({"blk." + std::to_string(block) + ".ffn_down.weight", {256, 256}});
    const std::vector<DType> types =
        choose_types(*find_recipe("iq4_xs"), {.block_count = 16}, tensors, {});
    EXPECT_EQ(types[15], DType::kQ5_K) << "block 0";
    EXPECT_EQ(types[14], DType::kQ5_K) << "block 1";
    EXPECT_EQ(types[13], DType::kIQ4_XS) << "block 2, before block 10";
}

TEST(RecipeTest, VectorsNormsAndConvolutionsStayF32) {
    for (const Recipe& recipe : all_recipes()) {
        auto types = types_of("4b", {.recipe = std::string(recipe.name)});
        for (const char* name :
             {"output_norm.weight", "blk.0.ssm_conv1d.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias",
              "blk.0.ssm_norm.weight", "blk.3.attn_q_norm.weight", "blk.32.nextn.hnorm.weight"})
            EXPECT_EQ(types[name], DType::kF32) << recipe.name << ' ' << name;
    }
}

TEST(RecipeTest, RowsThatAreNoWholeBlocksFallBack) {
    EXPECT_EQ(fitting_type(DType::kIQ4_XS, 576, false), DType::kIQ4_NL);
    EXPECT_EQ(fitting_type(DType::kQ4_K, 576, false), DType::kQ5_0);
    EXPECT_EQ(fitting_type(DType::kQ5_K, 576, false), DType::kQ5_1);
    EXPECT_EQ(fitting_type(DType::kQ6_K, 576, false), DType::kQ8_0);
    EXPECT_EQ(fitting_type(DType::kQ3_K, 576, false), DType::kQ4_0);
    EXPECT_EQ(fitting_type(DType::kQ4_K, 576, true), DType::kQ8_0) << "an output matrix";
    EXPECT_EQ(fitting_type(DType::kIQ4_XS, 100, false), DType::kF16);
    EXPECT_EQ(fitting_type(DType::kQ8_0, 100, false), DType::kF16);
    EXPECT_EQ(fitting_type(DType::kBF16, 100, false), DType::kBF16);
    EXPECT_EQ(fitting_type(DType::kIQ4_XS, 512, false), DType::kIQ4_XS);
}

TEST(RecipeTest, OverridesWinInOrder) {
    auto types = types_of("4b", {.recipe = "iq4_xs",
                                 .overrides = {{std::regex("blk\\.3\\.attn_q"), DType::kQ8_0},
                                               {std::regex("attn_q|norm"), DType::kQ6_K}}});
    EXPECT_EQ(types["blk.3.attn_q.weight"], DType::kQ8_0);
    EXPECT_EQ(types["blk.7.attn_q.weight"], DType::kQ6_K);
    EXPECT_EQ(types["blk.0.attn_qkv.weight"], DType::kQ6_K);
    EXPECT_EQ(types["blk.0.attn_norm.weight"], DType::kF32) << "norms stay";
}

TEST(RecipeTest, FindsRecipesByNameInAnyCase) {
    EXPECT_EQ(find_recipe("IQ4_XS")->file_type, 30U);
    EXPECT_EQ(find_recipe("q4_k_m")->file_type, 15U);
    EXPECT_EQ(find_recipe("q9"), nullptr);
}

struct PublishedSize {
    const char* shape;
    const char* recipe;
    std::uint64_t without_mtp, with_mtp;
    std::size_t tensors_without, tensors_with;
};

constexpr PublishedSize kPublishedSizes[] = {
    {"0.8b", "iq4_xs", 493126912, 504093952, 320, 335},
    {"0.8b", "q4_k_m", 518335744, 530941184, 320, 335},
    {"2b", "iq4_xs", 1185000704, 1217516800, 320, 335},
    {"2b", "q4_k_m", 1263435008, 1301202176, 320, 335},
    {"4b", "iq4_xs", 2503317504, 2567841792, 426, 441},
    {"4b", "q4_k_m", 2697836544, 2772477952, 426, 441},
    {"9b", "iq4_xs", 5185472512, 5315448832, 427, 442},
    {"9b", "q4_k_m", 5618141184, 5769121792, 427, 442},
    {"27b", "iq4_xs", 15071512576, 15298043904, 851, 866},
    {"27b", "q4_k_m", 16536406016, 16799719424, 851, 866},
};

TEST(RecipeTest, WholeModelsHaveThePublishedSizes) {
    for (const PublishedSize& expected : kPublishedSizes) {
        Qwen35Shape shape = find_public_shape(expected.shape)->shape;
        const Recipe& recipe = *find_recipe(expected.recipe);
        EXPECT_EQ(synth_data_bytes(plan_synth(shape, recipe)), expected.with_mtp)
            << expected.shape << ' ' << expected.recipe;
        EXPECT_EQ(plan_synth(shape, recipe).size(), expected.tensors_with);
        shape.mtp_blocks = 0;
        EXPECT_EQ(synth_data_bytes(plan_synth(shape, recipe)), expected.without_mtp)
            << expected.shape << ' ' << expected.recipe;
        EXPECT_EQ(plan_synth(shape, recipe).size(), expected.tensors_without);
    }
}

}  // namespace
}  // namespace replica
