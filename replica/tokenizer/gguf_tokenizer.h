// Reads the `tokenizer.ggml.*` keys of a GGUF file.
#pragma once

#include "replica/gguf/metadata.h"
#include "replica/tokenizer/tokenizer_data.h"

namespace replica {

/// Copies the strings, so the file may be closed afterwards. Absent keys stay absent; a key of the
/// wrong type is an error.
tl::expected<TokenizerData, TokenizerError> load_tokenizer_data(const GgufMetadata& metadata);

}  // namespace replica
