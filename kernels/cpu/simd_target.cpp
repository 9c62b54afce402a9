#include <cassert>

#include <hwy/highway.h>

#include "kernels/cpu/simd_kernels.h"

namespace kernels::cpu {
namespace {

/// Built and runnable here; a lower value is the better instruction set.
std::vector<std::int64_t> targets() {
    return hwy::SupportedAndGeneratedTargets();
}

}  // namespace

std::string simd_target() {
    return hwy::TargetName(targets().front());
}

std::vector<std::string> simd_targets() {
    std::vector<std::string> names;
    for (const std::int64_t target : targets())
        names.emplace_back(hwy::TargetName(target));
    return names;
}

void set_simd_target_for_test(const std::string& name) {
    hwy::SetSupportedTargetsForTest(0);
    if (!name.empty()) {
        std::int64_t chosen = 0;
        for (const std::int64_t target : targets())
            if (name == hwy::TargetName(target)) chosen = target;
        assert(chosen != 0 && "a name from simd_targets()");
        hwy::SetSupportedTargetsForTest(chosen);
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace kernels::cpu
