// Which of our matmul kernels serve, per weight type: armed at start, or why not.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "kernels/cuda/kernel_set.h"

namespace kernels::cuda {

class MatmulRegistry {
public:
    /// Opts every kernel into `shared_bytes_max` of shared memory; `disabled` are names as in
    /// armed.h.
    MatmulRegistry(KernelSet& kernels, int shared_bytes_max, std::span<const std::string> disabled);

    bool is_armed(DType dtype) const;
    /// The model has a matrix of this type.
    void want(DType dtype);
    /// With the counters of now.
    std::vector<KernelEntry> entries(const KernelSet& kernels) const;

private:
    std::vector<KernelEntry> entries_;  // in the order of kMatmulTypes
};

}  // namespace kernels::cuda
