// Which of the products of sm_70 serve, per weight type: armed at start, or why not.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "kernels/cuda/kernel_set.h"

namespace kernels::cuda {

class LaneRegistry {
public:
    /// `disabled` are names as in armed.h: "matmul_dp4a/Q6_K".
    LaneRegistry(KernelSet& kernels, int shared_bytes_max, std::span<const std::string> disabled);

    bool is_armed(DType dtype, LaneWay way) const;
    /// Either way.
    bool is_armed(DType dtype) const;
    /// The model has a matrix of this type. Only the code of sm_70 has work for these kernels.
    void want(DType dtype);
    /// With the counters of now.
    std::vector<KernelEntry> entries(const KernelSet& kernels) const;

private:
    bool is_sm_70_;
    std::vector<KernelEntry> dp4a_, hmma_;  // in the order of kMatmulTypes
};

}  // namespace kernels::cuda
