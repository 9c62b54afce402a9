// Proves that quantise keeps everything but the types, that its result does not depend on threads,
// and that the committed demo model is what it makes. The command line's exit codes are here, too.
#include "replica/gguf/tool/quantize.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "kernels/quant/decode.h"
#include "kernels/quant/encode.h"
#include "kernels/quant/format.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/tool/synth.h"
#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using kernels::DType;
using testing::HasSubstr;
using namespace test;

/// A BF16 model of one delta-net and one attention layer.
void write_model(const std::filesystem::path& path) {
    Qwen35Shape shape;
    shape.layers = 2;
    shape.attention_interval = 2;
    shape.width = 256;
    shape.ffn_width = 288;  // no multiple of 256: ffn_down falls back
    shape.heads = 4;
    shape.kv_heads = 1;
    shape.head_size = 64;
    shape.key_heads = 1;
    shape.value_heads = 2;
    shape.state_size = 64;
    shape.vocabulary = 320;
    shape.has_output = true;
    ASSERT_TRUE(synth({.output = path,
                       .name = "Small",
                       .shape = shape,
                       .recipe = find_recipe("bf16"),
                       .seed = 5,
                       .threads = 2}));
}

TEST(QuantizeTest, KeepsMetadataShapesAndOrderAndChangesTypes) {
    const TempFolder folder;
    write_model(folder / "in.gguf");
    const auto report = quantize({.input = folder / "in.gguf",
                                  .output = folder / "out.gguf",
                                  .recipe = find_recipe("iq4_xs"),
                                  .threads = 2});
    ASSERT_TRUE(report) << report.error().text();
    EXPECT_TRUE(report->requantised.empty());
    const auto in = GgufFile::open(folder / "in.gguf");
    const auto out = GgufFile::open(folder / "out.gguf");
    ASSERT_TRUE(in && out);
    EXPECT_EQ(out->metadata().get_u32("general.file_type"), 30U);
    EXPECT_EQ(out->metadata().entries().size(), in->metadata().entries().size());
    for (const GgufEntry& entry : in->metadata().entries()) {
        const GgufEntry* copy = out->metadata().find(entry.key);
        ASSERT_NE(copy, nullptr) << entry.key;
        if (entry.key == "general.file_type") continue;
        EXPECT_TRUE(std::ranges::equal(copy->bytes, entry.bytes)) << entry.key;
    }
    ASSERT_EQ(out->tensors().size(), in->tensors().size());
    for (std::size_t i = 0; i < in->tensors().size(); ++i) {
        EXPECT_EQ(out->tensors()[i].name, in->tensors()[i].name);
        EXPECT_EQ(out->tensors()[i].ne, in->tensors()[i].ne);
    }
    EXPECT_EQ(out->find_tensor("output.weight")->dtype, DType::kQ6_K);
    EXPECT_EQ(out->find_tensor("blk.0.attn_qkv.weight")->dtype, DType::kQ5_K);
    EXPECT_EQ(out->find_tensor("blk.0.ffn_up.weight")->dtype, DType::kIQ4_XS);
    EXPECT_EQ(out->find_tensor("blk.0.ffn_down.weight")->dtype, DType::kIQ4_NL);
    EXPECT_EQ(out->find_tensor("blk.0.ssm_a")->dtype, DType::kF32);
}

TEST(QuantizeTest, TheBytesDoNotDependOnThreads) {
    const TempFolder folder;
    write_model(folder / "in.gguf");
    QuantizeJob job = {.input = folder / "in.gguf",
                       .output = folder / "one.gguf",
                       .recipe = find_recipe("q4_k_m"),
                       .threads = 1};
    ASSERT_TRUE(quantize(job));
    job.output = folder / "three.gguf";
    job.threads = 3;
    ASSERT_TRUE(quantize(job));
    EXPECT_EQ(read_file(folder / "one.gguf"), read_file(folder / "three.gguf"));
}

TEST(QuantizeTest, EveryRecipeGivesAFileThatLoadsAndIsCloseToItsSource) {
    const TempFolder folder;
    write_model(folder / "in.gguf");
    const auto in = GgufFile::open(folder / "in.gguf");
    ASSERT_TRUE(in);
    const GgufTensor* from = in->find_tensor("blk.1.ffn_up.weight");
    std::vector<float> expected(256);
    kernels::decode_row(from->dtype, from->data, expected.data(), 256);
    for (const Recipe& recipe : all_recipes()) {
        ASSERT_TRUE(quantize({.input = folder / "in.gguf",
                              .output = folder / "out.gguf",
                              .recipe = &recipe,
                              .threads = 2}))
            << recipe.name;
        const auto out = GgufFile::open(folder / "out.gguf");
        ASSERT_TRUE(out) << recipe.name;
        const GgufTensor* to = out->find_tensor("blk.1.ffn_up.weight");
        EXPECT_EQ(to->dtype, recipe.base) << recipe.name;
        std::vector<float> values(256);
        kernels::decode_row(to->dtype, to->data, values.data(), 256);
        for (std::size_t i = 0; i < 256; ++i)  // deviation 1/16; four bits miss by up to 0.02
            ASSERT_NEAR(values[i], expected[i], 0.03F) << recipe.name << ' ' << i;
    }
}

TEST(QuantizeTest, RequantisingIsReported) {
    const TempFolder folder;
    write_model(folder / "in.gguf");
    QuantizeJob job = {.input = folder / "in.gguf",
                       .output = folder / "q8.gguf",
                       .recipe = find_recipe("q8_0"),
                       .threads = 2};
    ASSERT_TRUE(quantize(job));
    job.input = folder / "q8.gguf";
    job.output = folder / "q4.gguf";
    job.recipe = find_recipe("q4_0");
    const auto report = quantize(job);
    ASSERT_TRUE(report);
    EXPECT_THAT(report->requantised, testing::Contains("blk.0.ffn_up.weight"));
}

TEST(QuantizeTest, ABrokenInputLeavesNoOutput) {
    const TempFolder folder;
    write_file(folder / "in.gguf", Bytes(100));
    EXPECT_FALSE(quantize({.input = folder / "in.gguf",
                           .output = folder / "out.gguf",
                           .recipe = find_recipe("q8_0")}));
    EXPECT_EQ(folder.file_count(), 1U);
}

TEST(QuantizeTest, TheDemoModelIsMadeWithTheStockRecipe) {
    const char* shared = std::getenv("QUADRIGA_SHARED");
    if (shared == nullptr) GTEST_SKIP() << "QUADRIGA_SHARED does not name the folder of models";
    const auto source = GgufFile::open(std::filesystem::path(shared) / "models/foal-bf16.gguf");
    if (!source) GTEST_SKIP() << source.error().text();
    const auto demo = GgufFile::open(QUADRIGA_SOURCE_DIR "/models/foal-iq4_xs.gguf");
    ASSERT_TRUE(demo) << demo.error().text();
    EXPECT_EQ(demo->tensors().size(), source->tensors().size());
    // A few rows of every tensor: all of it takes seconds.
    for (const GgufTensor& to : demo->tensors()) {
        const GgufTensor* from = source->find_tensor(to.name);
        ASSERT_NE(from, nullptr);
        const std::int64_t width = to.ne[0];
        const std::int64_t row_bytes = kernels::row_bytes(to.dtype, width);
        std::vector<float> values(static_cast<std::size_t>(width));
        Bytes blocks(static_cast<std::size_t>(row_bytes));
        for (std::int64_t row = 0; row < std::min<std::int64_t>(to.rows(), 3); ++row) {
            kernels::decode_row(from->dtype,
                                from->data + row * kernels::row_bytes(from->dtype, width),
                                values.data(), width);
            kernels::encode_row(to.dtype, values.data(), blocks.data(), width, nullptr);
            const std::byte* stored = to.data + row * row_bytes;
            EXPECT_EQ(blocks, Bytes(stored, stored + row_bytes)) << to.name << " row " << row;
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The program

int run_program(const std::string& arguments) {
    const std::string command =
        QUADRIGA_BINARY_DIR "/bin/quadriga-gguf " + arguments + " >/dev/null 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GgufProgramTest, ExitCodesTellUsageFromBrokenFiles) {
    const TempFolder folder;
    write_model(folder / "in.gguf");
    write_file(folder / "broken.gguf", Bytes(100));
    const std::string good = (folder / "in.gguf").string();
    const std::string broken = (folder / "broken.gguf").string();
    const std::string out = (folder / "out.gguf").string();
    EXPECT_EQ(run_program("--help"), 0);
    EXPECT_EQ(run_program("inspect " + good), 0);
    EXPECT_EQ(run_program("inspect --json " + good), 0);
    EXPECT_EQ(run_program("verify " + good), 0);
    EXPECT_EQ(run_program("quantize " + good + " " + out + " --type q8_0"), 0);
    EXPECT_EQ(run_program("synth --shape 27b --type iq4_xs --dry-run"), 0);
    EXPECT_EQ(run_program(""), 2);
    EXPECT_EQ(run_program("inspect"), 2);
    EXPECT_EQ(run_program("quantize " + good + " " + out + " --type q9"), 2);
    EXPECT_EQ(run_program("quantize " + good + " " + out + " --type q8_0 --tensor-type attn"), 2);
    EXPECT_EQ(run_program("quantize " + good + " " + out + " --type q8_0 --tensor-type '(=q8_0'"),
              2);
    EXPECT_EQ(run_program("synth --shape 3b --type iq4_xs " + out), 2);
    EXPECT_EQ(run_program("synth --shape 2b --type iq4_xs"), 2) << "no file to write";
    EXPECT_EQ(run_program("inspect " + broken), 4);
    EXPECT_EQ(run_program("verify " + broken), 4);
    EXPECT_EQ(run_program("verify " + (folder / "none.gguf").string()), 4);
    EXPECT_EQ(run_program("quantize " + broken + " " + out + " --type q8_0"), 4);
}

}  // namespace
}  // namespace replica
