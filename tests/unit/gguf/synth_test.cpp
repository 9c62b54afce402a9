// Proves that synthetic models load, have sane numbers, and depend on the seed alone; and that
// verify and inspect say the truth about them. Runs on a shape small enough for a unit test.
#include "replica/gguf/tool/synth.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/quant/decode.h"
#include "kernels/quant/format.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/tool/inspect.h"
#include "replica/gguf/tool/random_blocks.h"
#include "replica/gguf/tool/verify.h"
#include "tests/unit/gguf/raw_gguf.h"

namespace replica {
namespace {

using kernels::DType;
using testing::HasSubstr;
using namespace test;

Qwen35Shape tiny_shape() {
    Qwen35Shape shape;
    shape.layers = 4;
    shape.mtp_blocks = 1;
    shape.width = 256;
    shape.ffn_width = 512;
    shape.heads = 4;
    shape.kv_heads = 1;
    shape.key_heads = 2;
    shape.value_heads = 4;
    shape.vocabulary = 512;
    shape.has_output = true;
    return shape;
}

SynthJob tiny_job(const std::filesystem::path& output, const char* recipe = "iq4_xs") {
    return {.output = output,
            .name = "Tiny",
            .shape = tiny_shape(),
            .recipe = find_recipe(recipe),
            .seed = 1,
            .threads = 1};
}

TEST(SynthTest, TheBytesDependOnTheSeedAndNotOnThreads) {
    const TempFolder folder;
    for (const char* recipe : {"iq4_xs", "q4_k_m", "q8_0", "bf16"}) {
        SynthJob job = tiny_job(folder / "one.gguf", recipe);
        ASSERT_TRUE(synth(job));
        job.output = folder / "four.gguf";
        job.threads = 4;
        ASSERT_TRUE(synth(job));
        job.output = folder / "other.gguf";
        job.seed = 2;
        ASSERT_TRUE(synth(job));
        const Bytes one = read_file(folder / "one.gguf");
        EXPECT_EQ(one, read_file(folder / "four.gguf")) << recipe;
        EXPECT_NE(one, read_file(folder / "other.gguf")) << recipe;
    }
}

TEST(SynthTest, FilesLoadAndPassVerification) {
    const TempFolder folder;
    for (const char* recipe :
         {"iq4_xs", "q4_k_m", "q8_0", "bf16", "f16", "iq4_nl", "q4_0", "f32"}) {
        ASSERT_TRUE(synth(tiny_job(folder / "m.gguf", recipe)));
        const auto report = verify({.input = folder / "m.gguf", .threads = 2});
        ASSERT_TRUE(report) << report.error().text();
        EXPECT_TRUE(report->faults.empty()) << recipe << ": " << report->faults[0].text();
        EXPECT_TRUE(report->warnings.empty()) << report->warnings[0];
        EXPECT_TRUE(report->shapes_checked);
    }
}

TEST(SynthTest, TheTokenizerHasOneDistinctTextPerIdAndTheSpecialTokens) {
    const TempFolder folder;
    ASSERT_TRUE(synth(tiny_job(folder / "m.gguf")));
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    const auto tokens = file->metadata().get_strings("tokenizer.ggml.tokens").value();
    const auto types = file->metadata().get_i32s("tokenizer.ggml.token_type").value();
    ASSERT_EQ(tokens.size(), 512U);
    EXPECT_EQ(types.size(), 512U);
    EXPECT_EQ(std::set<std::string_view>(tokens.begin(), tokens.end()).size(), tokens.size());
    EXPECT_EQ(tokens[0], "!");
    EXPECT_EQ(tokens[255], "\xc5\x83") << "U+0143, byte 0xad";
    const std::uint32_t eos = file->metadata().get_u32("tokenizer.ggml.eos_token_id").value();
    EXPECT_EQ(tokens[eos], "<|im_end|>");
    EXPECT_EQ(types[eos], 3);
}

TEST(SynthTest, ThePublicVocabularyHasItsSpecialTokensInPlace) {
    SynthJob job = tiny_job("unused");
    job.shape.vocabulary = 248320;
    const GgufKeyValues values = synth_metadata(job);
    RawGguf raw;
    raw.entries = {Bytes(values.bytes().begin(), values.bytes().end())};
    raw.entry_count = values.count();
    const Parsed parsed(raw.bytes());
    ASSERT_TRUE(parsed.header) << parsed.header.error().text();
    const GgufMetadata metadata("m.gguf", parsed.header->entries);
    const auto tokens = metadata.get_strings("tokenizer.ggml.tokens").value();
    EXPECT_EQ(tokens.size(), 248320U);
    EXPECT_EQ(tokens[248046], "<|im_end|>");
    EXPECT_EQ(tokens[248058], "<tool_call>");
    EXPECT_EQ(tokens[248069], "</think>");
    EXPECT_EQ(tokens[248319], "[PAD248319]");
    EXPECT_EQ(std::set<std::string_view>(tokens.begin(), tokens.end()).size(), tokens.size());
}

TEST(SynthTest, RandomBlocksHaveTheWishedMeanAndDeviation) {
    for (const kernels::Format& format : kernels::all_formats()) {
        const auto dtype = static_cast<DType>(format.type_id);
        if (!format.supported || !can_fill_random(dtype)) continue;
        constexpr std::int64_t kValues = 256 * 512;
        const std::int64_t blocks = kValues / format.block_values;
        Bytes bytes(static_cast<std::size_t>(kernels::row_bytes(dtype, kValues)));
        fill_random_blocks(dtype, {.deviation = 0.02F}, 7, 0, blocks, bytes.data());
        std::vector<float> values(kValues);
        kernels::decode_row(dtype, bytes.data(), values.data(), kValues);
        double sum = 0.0;
        double squares = 0.0;
        for (const float value : values) {
            sum += static_cast<double>(value);
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
        // Q4_0 and Q6_K have one more level below zero than above: up to a tenth of a deviation.
        EXPECT_NEAR(sum / kValues, 0.0, 0.0025) << format.name;
        EXPECT_NEAR(std::sqrt(squares / kValues), 0.02, 0.001) << format.name;
    }
}

TEST(SynthTest, BlocksAreTheSameInOneRunOrMany) {
    Bytes whole(136 * 8);
    Bytes pieces(136 * 8);
    fill_random_blocks(DType::kIQ4_XS, {}, 3, 0, 8, whole.data());
    fill_random_blocks(DType::kIQ4_XS, {}, 3, 5, 8, pieces.data() + 136 * 5);
    fill_random_blocks(DType::kIQ4_XS, {}, 3, 0, 5, pieces.data());
    EXPECT_EQ(whole, pieces);
}

// ---------------------------------------------------------------------------------------------
// verify and inspect

/// Overwrites bytes of a tensor's data in the file.
void damage(const std::filesystem::path& path, const char* tensor, std::uint64_t offset,
            const Bytes& bytes) {
    std::uint64_t at = 0;
    {
        const auto file = GgufFile::open(path);
        ASSERT_TRUE(file);
        at = file->find_tensor(tensor)->file_offset + offset;
    }
    Bytes all = read_file(path);
    std::copy(bytes.begin(), bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
    write_file(path, all);
}

TEST(VerifyTest, FindsInfiniteAndNanScalesAndValues) {
    const TempFolder folder;
    const Bytes kInfinity = {std::byte{0x00}, std::byte{0x7c}};
    const Bytes kNanF32 = {std::byte{0x01}, std::byte{0x00}, std::byte{0x80}, std::byte{0x7f}};
    ASSERT_TRUE(synth(tiny_job(folder / "m.gguf")));
    damage(folder / "m.gguf", "blk.2.ffn_up.weight", 136 * 3, kInfinity);
    damage(folder / "m.gguf", "blk.0.attn_qkv.weight", 2, kInfinity);    // dmin of Q5_K
    damage(folder / "m.gguf", "output.weight", 210 * 2 - 2, kInfinity);  // d of Q6_K
    damage(folder / "m.gguf", "blk.1.ssm_a", 4, kNanF32);
    const auto report = verify({.input = folder / "m.gguf", .threads = 2});
    ASSERT_TRUE(report);
    std::vector<std::string> faults;
    for (const GgufError& fault : report->faults)
        faults.push_back(fault.text());
    EXPECT_THAT(faults, testing::UnorderedElementsAre(
                            HasSubstr("blk.2.ffn_up.weight: block 3 has an infinite or NaN"),
                            HasSubstr("blk.0.attn_qkv.weight: block 0 has an infinite or NaN"),
                            HasSubstr("output.weight: block 1 has an infinite or NaN"),
                            HasSubstr("blk.1.ssm_a: block 1 has an infinite or NaN")));
}

TEST(VerifyTest, EveryFormatsScalesAreSeen) {
    for (const kernels::Format& format : kernels::all_formats()) {
        const auto dtype = static_cast<DType>(format.type_id);
        if (!format.supported || dtype == DType::kI32) continue;
        const auto block_bytes = static_cast<std::size_t>(format.block_bytes);
        Bytes blocks(2 * block_bytes, std::byte{0});
        EXPECT_EQ(first_non_finite_block(dtype, blocks.data(), 2), -1) << format.name;
        std::fill(blocks.begin() + format.block_bytes, blocks.end(), std::byte{0xff});
        EXPECT_EQ(first_non_finite_block(dtype, blocks.data(), 2), 1) << format.name;
    }
}

TEST(VerifyTest, ComparesShapesWithTheMetadata) {
    const TempFolder folder;
    SynthJob job = tiny_job(folder / "m.gguf");
    GgufKeyValues values = synth_metadata(job);
    std::vector<GgufTensorSpec> specs;
    for (const SynthTensor& tensor : plan_synth(job.shape, *job.recipe))
        specs.push_back({tensor.spec.name, DType::kF32, tensor.spec.ne});
    specs[0].ne[1] -= 1;                     // token_embd of another vocabulary
    specs.back().name = "blk.4.unheard_of";  // was nextn.shared_head_norm, which is optional
    std::erase_if(specs, [](const GgufTensorSpec& s) { return s.name == "blk.1.ssm_a"; });
    auto writer = GgufWriter::create(folder / "m.gguf", values, specs);
    ASSERT_TRUE(writer);
    for (std::size_t i = 0; i < specs.size(); ++i)
        ASSERT_TRUE(writer->write(i, 0, Bytes(specs[i].bytes())));
    ASSERT_TRUE(writer->finish());
    const auto report = verify({.input = folder / "m.gguf", .threads = 1});
    ASSERT_TRUE(report);
    ASSERT_EQ(report->faults.size(), 2U);
    EXPECT_THAT(report->faults[0].text(), HasSubstr("has shape [256, 511]"));
    EXPECT_THAT(report->faults[1].text(), HasSubstr("blk.1.ssm_a: is absent"));
    ASSERT_EQ(report->warnings.size(), 1U);
    EXPECT_THAT(report->warnings[0], HasSubstr("blk.4.unheard_of"));
}

TEST(VerifyTest, ABrokenContainerIsAnError) {
    const TempFolder folder;
    write_file(folder / "m.gguf", Bytes(100));
    EXPECT_FALSE(verify({.input = folder / "m.gguf"}));
}

TEST(InspectTest, JsonHasMetadataTensorsAndTotals) {
    const TempFolder folder;
    ASSERT_TRUE(synth(tiny_job(folder / "m.gguf")));
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    const auto json = nlohmann::json::parse(inspect_json(*file, {.elements_max = 2}));
    EXPECT_EQ(json["metadata"]["qwen35.block_count"]["value"], 5);
    EXPECT_EQ(json["metadata"]["qwen35.attention.layer_norm_rms_epsilon"]["value"], 1e-6);
    EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["count"], 512);
    EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["value"].size(), 2U);
    EXPECT_EQ(json["tensors"].size(), file->tensors().size());
    EXPECT_EQ(json["tensors"][0]["name"], "token_embd.weight");
    EXPECT_EQ(json["tensors"][0]["shape"], (nlohmann::json{256, 512}));
    EXPECT_EQ(json["tensor_bytes"], file->tensor_bytes());
}

TEST(InspectTest, TextNamesEveryTensor) {
    const TempFolder folder;
    ASSERT_TRUE(synth(tiny_job(folder / "m.gguf")));
    const auto file = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(file);
    const std::string text = inspect_text(*file, {});
    for (const GgufTensor& tensor : file->tensors())
        EXPECT_THAT(text, HasSubstr(tensor.name));
    EXPECT_THAT(text, HasSubstr("bits per value"));
}

}  // namespace
}  // namespace replica
