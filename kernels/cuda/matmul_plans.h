// Plans of products, remembered: a step asks for three hundred, and every step of one size for the
// same ones. Pure host code.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>

#include "kernels/cuda/matmul_plan.h"

namespace kernels::cuda {

class MatmulPlans {
public:
    /// matmul_plan of a query that has one.
    const MatmulPlan& of(const MatmulQuery& query);
    /// matmul_mix_plan.
    const std::optional<MatmulMixPlan>& mix(const MatmulQuery& first, const MatmulQuery& second);

    static constexpr std::size_t kPlansMax = 4096;  // of each kind; then all are forgotten

private:
    struct Pair {
        MatmulQuery first, second;
        bool operator==(const Pair&) const = default;
    };
    struct Hash {
        std::size_t operator()(const MatmulQuery& query) const;
        std::size_t operator()(const Pair& pair) const;
    };
    std::unordered_map<MatmulQuery, MatmulPlan, Hash> plans_;
    std::unordered_map<Pair, std::optional<MatmulMixPlan>, Hash> mixes_;
};

}  // namespace kernels::cuda
