#include "kernels/cuda/serving_sm_70.h"

#include <algorithm>

#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {
namespace {

std::vector<KernelId> linear_kernels(const ServingQuery& query) {
    if (!is_packable(query.dtype, query.k)) {
        const int type = linear_type_index(query.dtype);
        if (type < 0) return {};
        return {KernelId::kNormRows, linear_kernel(type, query.rows > 1)};
    }
    const auto plan = lane_plan({.step_rows = query.rows,
                                 .rows = std::min<std::int64_t>(query.rows, kLaneColumnsMax),
                                 .tiles = tile_count(query.n, WeightOrder::kLanes),
                                 .k = query.k});
    const int type = matmul_type_index(query.dtype);
    if (plan->way == LaneWay::kDp4a)
        return {KernelId::kQuantiseLanes, matmul_dp4a_kernel(type, plan->width)};
    std::vector<KernelId> kernels = {KernelId::kHalveLanes, matmul_hmma_kernel(type)};
    if (plan->splits > 1) kernels.push_back(KernelId::kFinishLanes);
    return kernels;
}

}  // namespace

Serving serving_on_sm_70(const ServingQuery& query) {
    switch (query.op) {
        case ServedOp::kEmbed:
            return {{KernelId::kEmbedRows}};
        case ServedOp::kNorm:
            return {{KernelId::kNormRows}};
        case ServedOp::kLinear:
            return {linear_kernels(query)};
        case ServedOp::kDeltaNet:
            return {{delta_net_kernel(query.state_size), KernelId::kStepInputsStore}};
        case ServedOp::kAttention:
            return {{KernelId::kAttentionAppend, attention_kernel(query.head_dim)}};
        case ServedOp::kSample:
        case ServedOp::kSlots:
            return {{}, true};
    }
    return {};
}

}  // namespace kernels::cuda
