// Which device code runs on which card: pure, tested without one.
//
//     compute capability 9.0     cubins of sm_90a, in every build
//     others from 7.0 up         PTX for sm_70, which the driver translates, where the build holds
//     it
//
// sm_70 is Volta, what that PTX is written for; later cards run it too, without what they can do
// more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace kernels::cuda {

enum class CodeKind : std::uint8_t { kSm90, kSm70 };

struct Capability {
    int major = 0;
    int minor = 0;
};

/// The error is the end of a sentence about the card.
tl::expected<CodeKind, std::string> code_for(const Capability& card, bool has_sm_70);

/// Compute capabilities that a build's code is written for, as "9.0".
std::vector<std::string> architectures(bool has_sm_70);

}  // namespace kernels::cuda
