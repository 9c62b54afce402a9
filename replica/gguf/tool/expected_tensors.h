// The tensors a file must have, by its own metadata: what `verify` compares it with.
#pragma once

#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/tool/qwen35_shape.h"

namespace replica {

/// For qwen35, llama, qwen2 and qwen3 without experts and with the same sizes in every layer.
/// kUnsupported when this file is of another kind; other errors name a missing or impossible key.
GgufResult<std::vector<ExpectedTensor>> expected_tensors(const GgufFile& file);

}  // namespace replica
