#include "kernels/cuda/matmul_plans.h"

#include <cassert>

namespace kernels::cuda {

std::size_t MatmulPlans::Hash::operator()(const MatmulQuery& query) const {
    std::uint64_t hash = static_cast<std::uint64_t>(query.dtype);
    for (const std::int64_t part : {query.step_rows, query.rows, query.tiles, query.k})
        hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x100000001B3ULL;  // FNV-1a's prime
    return hash;
}
std::size_t MatmulPlans::Hash::operator()(const Pair& pair) const {
    return (*this)(pair.first) * 31 + (*this)(pair.second);
}

const MatmulPlan& MatmulPlans::of(const MatmulQuery& query) {
    if (const auto found = plans_.find(query); found != plans_.end()) return found->second;
    const auto plan = matmul_plan(query);
    assert(plan.has_value() && "pack asks the plan before it packs");
    if (plans_.size() == kPlansMax) plans_.clear();
    return plans_.emplace(query, *plan).first->second;
}

const std::optional<MatmulMixPlan>& MatmulPlans::mix(const MatmulQuery& first,
                                                     const MatmulQuery& second) {
    const Pair pair{first, second};
    if (const auto found = mixes_.find(pair); found != mixes_.end()) return found->second;
    if (mixes_.size() == kPlansMax) mixes_.clear();
    return mixes_.emplace(pair, matmul_mix_plan(first, second)).first->second;
}

}  // namespace kernels::cuda
