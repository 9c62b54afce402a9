// matmul_peak_TYPE: the largest weight a packed segment can hold, from its scales.
//
// Math      max over groups of |scale| * largest code + |minimum|
// Shapes    records [count] of 16 x 256; peak [1], bits of a positive f32, zero before
// Moves     scales, 7 to 14 % of the packed bytes; at load, once
// Plan      a warp per record, in turn; positive floats are ordered as integers are, and infinities
//           and NaN lie above all others, so one maximum finds them too
#include "kernels/cuda/matmul_format.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {
namespace {

template <DType kType>
__device__ void find_peak(const PeakParams& p, float largest_code) {
    using Format = MatmulFormat<kType>;
    constexpr int kGroups = kRecordInputs / kStepInputs / Format::kGroupSteps;
    constexpr std::int64_t kBytes = RecordLayout<typename Format::Packed>::kBytes;
    const int warps = static_cast<int>(gridDim.x * blockDim.x) / kWarpLanes;
    const int first = static_cast<int>(blockIdx.x * blockDim.x) / kWarpLanes + warp_index();
    unsigned peak = 0;
    for (std::int64_t i = first; i < p.count; i += warps) {
        Format format{};
        format.side.load({p.records + i * kBytes, 1}, lane_index());
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
            const ScalePair scale = format.scale(group);
            float low = fabsf(scale.low) * largest_code;
            float high = fabsf(scale.high) * largest_code;
            if constexpr (Format::kHasMinimum) {
                low += fabsf(format.minimum(group).low);
                high += fabsf(format.minimum(group).high);
            }
            peak = max(peak, max(__float_as_uint(low), __float_as_uint(high)));
        }
    }
    peak = __reduce_max_sync(~0U, peak);
    if (lane_index() == 0 && peak > 0) atomicMax(p.peak, peak);
}

}  // namespace

#define QUADRIGA_PEAK(name, type, largest_code)                    \
    extern "C" __global__ void __launch_bounds__(256)              \
        matmul_peak_##name(const __grid_constant__ PeakParams p) { \
        find_peak<DType::type>(p, largest_code);                   \
    }
QUADRIGA_PEAK(iq4_xs, kIQ4_XS, 127.0F)
QUADRIGA_PEAK(q6_k, kQ6_K, 32.0F)
QUADRIGA_PEAK(q5_k, kQ5_K, 31.0F)
QUADRIGA_PEAK(q8_0, kQ8_0, 128.0F)
QUADRIGA_PEAK(q4_k, kQ4_K, 15.0F)
QUADRIGA_PEAK(q4_0, kQ4_0, 8.0F)
QUADRIGA_PEAK(iq4_nl, kIQ4_NL, 127.0F)
#undef QUADRIGA_PEAK

}  // namespace kernels::cuda
