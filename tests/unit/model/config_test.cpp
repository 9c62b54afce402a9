// Hyperparameters and tensors of hostile or odd files: each rule broken once, in a copy of a golden
// model.
#include "replica/model/config.h"

#include <filesystem>
#include <functional>
#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/writer.h"
#include "replica/model/runner.h"

namespace replica {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kGolden = fs::path(QUADRIGA_SOURCE_DIR) / "tests/golden";

/// A change to a model: keys to set (or to leave out), tensors to drop, rename or add.
struct Change {
    std::map<std::string, std::function<void(GgufKeyValues&)>> keys;
    std::vector<std::string> without_keys;
    std::vector<std::string> without_tensors;
    std::map<std::string, std::string> renamed;
    std::map<std::string, std::vector<std::int64_t>> reshaped;
    std::vector<GgufTensorSpec> added;  // zeros
};

class ModelFileTest : public testing::Test {
protected:
    void TearDown() override { fs::remove(path_); }

    GgufFile changed(const std::string& model, const Change& change) {
        const auto original = GgufFile::open(kGolden / (model + ".gguf"));
        GgufKeyValues key_values;
        for (const GgufEntry& entry : original->metadata().entries()) {
            const std::string key(entry.key);
            if (change.keys.contains(key) || key == "general.alignment") continue;
            if (std::ranges::count(change.without_keys, key) == 0) key_values.set_copy(entry);
        }
        for (const auto& [key, set] : change.keys)
            set(key_values);
        std::vector<GgufTensorSpec> specs;
        std::vector<const GgufTensor*> sources;
        for (const GgufTensor& tensor : original->tensors()) {
            if (std::ranges::count(change.without_tensors, tensor.name) != 0) continue;
            GgufTensorSpec spec{tensor.name, tensor.dtype, {}};
            spec.ne.assign(tensor.ne.begin(), tensor.ne.begin() + tensor.rank);
            if (change.renamed.contains(tensor.name)) spec.name = change.renamed.at(tensor.name);
            if (change.reshaped.contains(tensor.name)) spec.ne = change.reshaped.at(tensor.name);
            specs.push_back(spec);
            sources.push_back(&tensor);
        }
        for (const GgufTensorSpec& spec : change.added) {
            specs.push_back(spec);
            sources.push_back(nullptr);
        }
        path_ = fs::temp_directory_path() / ("model-" + std::to_string(::getpid()) + ".gguf");
        auto writer = GgufWriter::create(path_, key_values, specs);
        for (std::size_t i = 0; i < specs.size(); ++i) {
            std::vector<std::byte> data(specs[i].bytes());
            if (sources[i] != nullptr) {
                std::copy_n(sources[i]->data,
                            std::min<std::uint64_t>(data.size(), sources[i]->bytes), data.begin());
            }
            EXPECT_TRUE(writer->write(i, 0, data).has_value());
        }
        EXPECT_TRUE(writer->finish().has_value());
        return *GgufFile::open(path_);
    }

    static std::string config_error(const GgufFile& file) {
        const auto config = read_model_config(file);
        return config ? "" : config.error().text();
    }

    /// The error of loading the file onto a backend; empty when it loads. `warnings` gets the
    /// warnings.
    static std::string load_error(const GgufFile& file,
                                  std::vector<std::string>* warnings = nullptr) {
        const auto backend = kernels::make_cpu_backend({.threads = 1});
        const auto runner =
            ModelRunner::load(file, *backend, {.context = 64, .sequences_max = 1}, {});
        if (runner && warnings != nullptr) *warnings = (*runner)->warnings();
        return runner ? "" : runner.error().text();
    }

private:
    fs::path path_;
};

Change with_u32(const std::string& key, std::uint32_t value) {
    Change change;
    change.keys[key] = [key, value](GgufKeyValues& values) { values.set_u32(key, value); };
    return change;
}
Change with_string(const std::string& key, const std::string& value) {
    Change change;
    change.keys[key] = [key, value](GgufKeyValues& values) { values.set_string(key, value); };
    return change;
}

TEST_F(ModelFileTest, ReadsTheHybridLayerSchedule) {
    const auto config = read_model_config(changed("qwen35-odd", {}));
    ASSERT_TRUE(config.has_value()) << config.error().text();
    ASSERT_EQ(config->layers.size(), 4U);
    EXPECT_EQ(config->layers[2].kind, LayerKind::kDeltaNet);
    EXPECT_EQ(config->layers[3].kind, LayerKind::kAttention);
    EXPECT_EQ(config->mtp_layers.size(), 1U);
    EXPECT_EQ(config->delta_net->conv_dim(), 320);
    EXPECT_EQ(config->kv_layer_count(), 2);
    EXPECT_EQ(config->vocabulary, 320);
}

TEST_F(ModelFileTest, AnExplicitListOfRecurrentLayersWinsOverTheInterval) {
    Change change;
    const std::string key = "qwen35.attention.recurrent_layers";
    change.keys[key] = [key](GgufKeyValues& values) {
        values.set_i32s(key, std::vector<std::int32_t>{0, 1, 1, 1, 0});
    };
    const auto config = read_model_config(changed("qwen35-odd", change));
    ASSERT_TRUE(config.has_value()) << config.error().text();
    EXPECT_EQ(config->layers[0].kind, LayerKind::kAttention);
    EXPECT_EQ(config->layers[3].kind, LayerKind::kDeltaNet);
}

TEST_F(ModelFileTest, EveryBrokenHyperparameterIsNamed) {
    struct Case {
        std::string model;
        Change change;
        std::string words;
    };
    const std::vector<Case> cases = {
        {"llama-tiny", with_string("general.architecture", "mamba"), "which we do not run"},
        {"llama-tiny", with_u32("llama.block_count", 0), "block_count"},
        {"llama-tiny", with_u32("llama.block_count", 5000), "block_count"},
        {"llama-tiny", with_u32("llama.embedding_length", 0), "embedding_length"},
        {"llama-tiny", with_u32("llama.context_length", 0), "context_length"},
        {"llama-tiny", with_u32("llama.attention.head_count", 0), "head_count"},
        {"llama-tiny", with_u32("llama.attention.head_count_kv", 3), "must divide head_count 4"},
        {"llama-tiny", with_u32("llama.rope.dimension_count", 8), "must equal the head size"},
        {"llama-tiny", with_string("llama.rope.scaling.type", "longrope"), "'longrope'"},
        {"llama-tiny", with_u32("llama.expert_count", 8), "mixtures of experts"},
        {"llama-tiny", with_string("llama.feed_forward_length", "big"), "feed_forward_length"},
        {"qwen35-odd", with_u32("qwen35.nextn_predict_layers", 5), "below block_count"},
        {"qwen35-odd", with_u32("qwen35.full_attention_interval", 0), "full_attention_interval"},
        {"qwen35-odd", with_u32("qwen35.ssm.conv_kernel", 9), "conv_kernel"},
        {"qwen35-odd", with_u32("qwen35.ssm.time_step_rank", 5), "multiple of ssm.group_count 2"},
        {"qwen35-odd", with_u32("qwen35.ssm.inner_size", 190), "inner_size"},
        {"qwen35-odd", with_u32("qwen35.rope.dimension_count", 10), "dimension_sections"},
        {"qwen35-odd", with_u32("qwen35.rope.dimension_count", 7), "even"},
        {"qwen35-odd", with_u32("qwen35.attention.value_length", 16), "value_length"},
    };
    for (const Case& item : cases) {
        EXPECT_THAT(config_error(changed(item.model, item.change)), HasSubstr(item.words));
    }
    Change without;
    without.without_keys = {"llama.attention.layer_norm_rms_epsilon"};
    EXPECT_THAT(config_error(changed("llama-tiny", without)), HasSubstr("layer_norm_rms_epsilon"));
}

TEST_F(ModelFileTest, AMissingTensorIsNamed) {
    Change change;
    change.without_tensors = {"blk.1.ffn_up.weight"};
    EXPECT_THAT(load_error(changed("llama-tiny", change)), HasSubstr("blk.1.ffn_up.weight"));
    change.without_tensors = {"token_embd.weight"};
    EXPECT_THAT(config_error(changed("llama-tiny", change)), HasSubstr("token_embd.weight"));
}

TEST_F(ModelFileTest, AMisshapenTensorIsNamedWithBothShapes) {
    Change change;
    change.reshaped["blk.0.attn_q.weight"] = {32, 128};
    EXPECT_THAT(load_error(changed("llama-tiny", change)),
                testing::AllOf(HasSubstr("blk.0.attn_q.weight has shape [32, 128]"),
                               HasSubstr("demand [64, 64]")));
}

TEST_F(ModelFileTest, UnknownTensorsAreAWarningAndScalesAnError) {
    Change change;
    change.added = {{"blk.0.extra.weight", kernels::DType::kF32, {8}}};
    std::vector<std::string> warnings;
    EXPECT_EQ(load_error(changed("llama-tiny", change), &warnings), "");
    EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("blk.0.extra.weight")));
    change.added = {{"blk.0.attn_q.scale", kernels::DType::kF32, {1}}};
    EXPECT_THAT(load_error(changed("llama-tiny", change)), HasSubstr("blk.0.attn_q.scale"));
}

TEST_F(ModelFileTest, ASideCarIsRecognised) {
    Change change;
    for (int block = 0; block < 4; ++block) {
        change.without_tensors.push_back("blk." + std::to_string(block) + ".attn_norm.weight");
    }
    EXPECT_THAT(load_error(changed("qwen35-odd", change)), HasSubstr("side-car"));
}

TEST_F(ModelFileTest, TheMtpBlockFallsBackToTheTrunksNormAndIsOptional) {
    Change change;
    change.without_tensors = {"blk.4.nextn.shared_head_norm.weight"};
    EXPECT_EQ(load_error(changed("qwen35-odd", change)), "");

    Change without_block = with_u32("qwen35.nextn_predict_layers", 0);
    without_block.keys["qwen35.block_count"] = [](GgufKeyValues& values) {
        values.set_u32("qwen35.block_count", 4);
    };
    std::vector<std::string> warnings;
    EXPECT_EQ(load_error(changed("qwen35-odd", without_block), &warnings), "");
    EXPECT_FALSE(warnings.empty());  // the block's tensors are there and unused
}

}  // namespace
}  // namespace replica
