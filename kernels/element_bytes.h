// Bytes of an element of an allocated tensor, the same on every backend.
#pragma once

#include <cassert>
#include <cstdint>

#include "kernels/tensor.h"

namespace kernels {

inline std::int64_t element_bytes(DType dtype) {
    switch (dtype) {
        case DType::kF32:
        case DType::kI32:
            return 4;
        case DType::kF16:
        case DType::kBF16:
            return 2;
        default:
            assert(false && "tensors of blocks are packed, not allocated");
            return 0;
    }
}

}  // namespace kernels
