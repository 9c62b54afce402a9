// `quadriga-gguf quantize`: a model file in, the same model with other tensor types out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/tool/progress.h"
#include "replica/gguf/tool/recipe.h"

namespace replica {

struct QuantizeJob {
    std::filesystem::path input, output;
    const Recipe* recipe = nullptr;
    std::vector<TypeOverride> overrides;
    int threads = 0;  // 0 = all cores
    Progress::Style progress = Progress::Style::kSilent;
};

struct QuantizeReport {
    std::uint64_t input_bytes = 0;   // of the tensors
    std::uint64_t output_bytes = 0;  // of the file
    double bits_per_weight = 0.0;
    /// Quantised once already and now to another type; quality suffers.
    std::vector<std::string> requantised;
};

/// Keeps metadata (but for file type and alignment) and the order of tensors; joins split models.
/// The output does not depend on the number of threads.
GgufResult<QuantizeReport> quantize(const QuantizeJob& job);

}  // namespace replica
