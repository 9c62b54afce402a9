// Device code inside the program, put there by cmake/QuadrigaCuda.cmake: one cubin per .cu file;
// and PTX for sm_70 where the build was asked for it.
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
/// Texts that end with a zero byte; none = the build has none.
std::span<const Cubin> sm_70_ptx();

}  // namespace kernels::cuda
