// Device code inside the program: one cubin per .cu file, put there by cmake/QuadrigaCuda.cmake.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace kernels::cuda {

struct Cubin {
    std::string_view name;             // the .cu file's stem
    std::span<const std::byte> image;  // an ELF file
};

std::span<const Cubin> cubins();

}  // namespace kernels::cuda
