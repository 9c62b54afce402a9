// Why a model file cannot be served: what is wrong, by which rule, and what to do about it.
#pragma once

#include <string>

#include "kernels/backend.h"

namespace replica {

enum class ModelErrorKind {
    kFile,    // the file is malformed or of a kind we do not run: a retry cannot help
    kMemory,  // it does not fit into the memory there is
    kFlags,   // what was asked for is impossible with this model: a retry cannot help
};

/// The kind of a backend's refusal.
inline ModelErrorKind refusal_kind(const kernels::Refusal& refusal) {
    return refusal.kind == kernels::RefusalKind::kMemory ? ModelErrorKind::kMemory
                                                         : ModelErrorKind::kFile;
}

struct ModelError {
    ModelErrorKind kind = ModelErrorKind::kFile;
    std::string what;  // "blk.3.attn_q.weight has shape [256, 1024]"
    std::string why;   // "head_count 4 and key_length 256 demand [256, 2048]"
    std::string fix;   // "convert the model again"; may be empty
    std::string text() const { return what + ": " + why + (fix.empty() ? "" : " (" + fix + ")"); }
};

}  // namespace replica
