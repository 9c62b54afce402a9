// The device code that a backend runs: the cubins inside the program, or PTX of the same sources
// for an older architecture, which the driver translates when it loads it.
//
//     cubins     every kernel, sm_90a
//     a folder   NAME.ptx for each .cu file that is there, sm_70 (tests/volta/ptx makes it);
//     kernels of
//                the others are of the wrong architecture
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/cuda/cubins.h"

namespace kernels::cuda {

struct DeviceCode {
    std::vector<Cubin> images;      // PTX ends with a zero byte
    std::deque<std::string> texts;  // what PTX images point to, names included
    bool is_complete = true;        // holds every kernel of the list
};

DeviceCode own_code();
/// The error is one sentence: no such folder, no PTX in it, PTX for something else.
tl::expected<DeviceCode, std::string> read_ptx(const std::string& folder);

}  // namespace kernels::cuda
