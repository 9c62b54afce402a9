// The device code that a backend runs: the cubins inside the program, or PTX of the same sources
// for an older architecture, which the driver translates when it loads it.
//
//     cubins     sm_90a
//     PTX        sm_70, inside the program too where the build was asked for it, or from a folder
//     with
//                NAME.ptx for each .cu file (tests/volta/ptx makes both)
//
// Which kernels are in which is kernel_names.h's list.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/cubins.h"

namespace kernels::cuda {

struct DeviceCode {
    std::vector<Cubin> images;      // PTX ends with a zero byte
    std::deque<std::string> texts;  // what PTX images point to, names included
    CodeKind kind = CodeKind::kSm90;
};

DeviceCode own_code(CodeKind kind);
/// The error is one sentence: no such folder, no PTX in it, PTX for something else.
tl::expected<DeviceCode, std::string> read_ptx(const std::string& folder);
/// The first .cu file whose kernels should be there and are not; empty = none.
std::string missing_file(const DeviceCode& code);

}  // namespace kernels::cuda
