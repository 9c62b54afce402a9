// `quadriga-gguf synth`: a file that weighs and runs like a published model, with random weights.
//
// For speed and memory measurements where the real model is not at hand. Activations stay finite,
// logits have a spread of a few units, the recurrent state forgets at usual rates; the text that
// comes out is noise. The MTP block is included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/tool/progress.h"
#include "replica/gguf/tool/qwen35_shape.h"
#include "replica/gguf/tool/random_blocks.h"
#include "replica/gguf/tool/recipe.h"
#include "replica/gguf/writer.h"

namespace replica {

struct SynthJob {
    std::filesystem::path output;
    std::string name;  // for general.name: "Synthetic 0.8b"
    Qwen35Shape shape;
    const Recipe* recipe = nullptr;
    std::uint64_t seed = 0;
    int threads = 0;  // 0 = all cores
    Progress::Style progress = Progress::Style::kSilent;
};

/// One tensor to make.
struct SynthTensor {
    GgufTensorSpec spec;
    Distribution distribution;
};

/// The whole file but its bytes: what a dry run prints and the tests count. Types are those of the
/// recipe with an importance matrix given.
std::vector<SynthTensor> plan_synth(const Qwen35Shape& shape, const Recipe& recipe);

/// Sum over the plan, each tensor rounded up to the alignment.
std::uint64_t synth_data_bytes(std::span<const SynthTensor> plan);

/// Hyperparameters and a tokenizer of `shape.vocabulary` tokens without merges.
GgufKeyValues synth_metadata(const SynthJob& job);

/// Writes the file; returns its size. The bytes depend on shape, recipe and seed alone.
GgufResult<std::uint64_t> synth(const SynthJob& job);

}  // namespace replica
