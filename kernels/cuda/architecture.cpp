#include "kernels/cuda/architecture.h"

namespace kernels::cuda {

tl::expected<CodeKind, std::string> code_for(const Capability& card, bool has_sm_70) {
    if (card.major == 9 && card.minor == 0) return CodeKind::kSm90;
    if (card.major >= 7 && has_sm_70) return CodeKind::kSm70;
    return tl::unexpected("is sm_" + std::to_string(card.major) + std::to_string(card.minor) +
                          ", the kernels of this build are for sm_90a" +
                          (has_sm_70        ? " and, by PTX, for sm_70 and later"
                           : card.major < 7 ? ""
                                            : "; one configured with QUADRIGA_CUDA_SM70=ON runs "
                                              "on sm_70 and later"));
}

std::vector<std::string> architectures(bool has_sm_70) {
    if (has_sm_70) return {"9.0", "7.0"};
    return {"9.0"};
}

}  // namespace kernels::cuda
