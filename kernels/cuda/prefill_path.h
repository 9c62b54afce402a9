// Products of many tokens by cuBLASLt: whether the path serves, and what it needs to.
//
//     start: open the library ─▶ prepare: scratch, a scale per segment, algorithms ─▶ steps:
//     prefill.cpp
//
// Whatever fails on the way leaves a sentence in the registry, and matmul_mma serves every step.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/armed.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/scratch.h"

namespace kernels::cuda {

class PrefillPath {
public:
    PrefillPath(KernelSet& kernels, const CudaBackendOptions& options) { open(kernels, options); }

    bool is_open() const { return products_ != nullptr; }
    /// Takes the plan's share and fixes algorithms; waits for the device.
    void reserve(const ScratchPlan& plan, std::span<Matrix> matrices, Arena& arena,
                 const Driver& driver, OpContext& op);
    PrefillScratch& scratch() { return scratch_; }
    const PrefillScratch& scratch() const { return scratch_; }
    /// With the counters of now.
    KernelEntry entry() const;

private:
    void open(KernelSet& kernels, const CudaBackendOptions& options);
    void fail(KernelState state, std::string reason);
    void take(const ScratchPlan& plan, Arena& arena, const OpContext& op);
    static void share_scale(Matrix& matrix);
    void scale_weights(std::span<Matrix> matrices, Arena& arena, const Driver& driver,
                       const OpContext& op);

    std::unique_ptr<LtProducts> products_;
    KernelEntry entry_{
        .name = "matmul_cublaslt", .variant = "prefill", .reason = {}, .fallback = "matmul_mma"};
    PrefillScratch scratch_;
};

}  // namespace kernels::cuda
