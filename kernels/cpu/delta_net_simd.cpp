// One row of one value head of the gated delta net, in f32: convolution and SiLU of the head's
// channels, L2 norms, the delta rule on its state, RMSNorm, output gate.
//
//   S [value c][key i], key fastest:   p_c = e^g S_c.k    d_c = b (v_c - p_c)
//                                      S_c <- e^g S_c + d_c k    o_c = S_c.q / sqrt(S)
//
// Shapes    taps [conv_kernel] rows of u; state [S, S]; y [S]
// Moves     the state once, read and written: 128 KB a head at S = 128, from the second cache
// Plan      four value rows at a time share q and k; sums across lanes once per value row. The
//           convolution of q and k is done anew by each value head of a key head: a tenth of the
//           work, and no head waits for another
// Source    Yang et al. 2024, "Gated Delta Networks"; checked by tests/kernel/delta_net_test.cpp
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta_net_simd.cpp"
#include <cmath>

#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

/// Tap `j` of kLanes channels; a channel's taps lie together.
HWY_INLINE VF load_taps(const float* conv_w, int conv_kernel, int j) {
    const VI lanes = hn::Mul(hn::Iota(DI(), 0), hn::Set(DI(), conv_kernel));
    return hn::GatherIndex(DF(), conv_w + j, lanes);
}

/// out[i] = silu(sum of taps) for `count` channels from `first` on.
HWY_INLINE void convolve(const DeltaHeadRow& row, std::int64_t first, std::size_t count,
                         float* out) {
    const float* w = row.conv_w + first * row.conv_kernel;
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        VF sum = hn::Zero(DF());
        for (int j = 0; j < row.conv_kernel; ++j) {
            const float* tap = row.taps[j];
            const VF u = tap == nullptr ? hn::Zero(DF()) : hn::LoadU(DF(), tap + first + i);
            sum = hn::MulAdd(
                load_taps(w + i * static_cast<std::size_t>(row.conv_kernel), row.conv_kernel, j), u,
                sum);
        }
        hn::StoreU(silu_of(sum), DF(), out + i);
    }
    for (; i < count; ++i) {
        float sum = 0.0F;
        for (int j = 0; j < row.conv_kernel; ++j)
            if (row.taps[j] != nullptr)
                sum +=
                    w[i * static_cast<std::size_t>(row.conv_kernel) + static_cast<std::size_t>(j)] *
                    row.taps[j][first + static_cast<std::int64_t>(i)];
        out[i] = sum / (1.0F + std::exp(-sum));
    }
}

HWY_INLINE float sum_squares(const float* x, std::size_t count) {
    VF sum = hn::Zero(DF());
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const VF v = hn::LoadU(DF(), x + i);
        sum = hn::MulAdd(v, v, sum);
    }
    float rest = 0.0F;
    for (; i < count; ++i)
        rest += x[i] * x[i];
    return sum_of(sum) + rest;
}

HWY_INLINE void scale(float* x, std::size_t count, float factor) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
        hn::StoreU(hn::Mul(hn::LoadU(DF(), x + i), hn::Set(DF(), factor)), DF(), x + i);
    for (; i < count; ++i)
        x[i] *= factor;
}

constexpr float kL2Epsilon = 1e-6F;

/// The delta rule on `rows` value rows of the state; o receives S q.
template <std::size_t rows>
HWY_INLINE void update_state(float* state, std::size_t size, const float* q, const float* k,
                             const float* v, float decay, float beta, float* o) {
    const std::size_t whole = size / kLanes * kLanes;
    VF sum[rows];
    KERNELS_UNROLL
    for (std::size_t r = 0; r < rows; ++r)
        sum[r] = hn::Zero(DF());
    for (std::size_t i = 0; i < whole; i += kLanes) {
        const VF key = hn::LoadU(DF(), k + i);
        KERNELS_UNROLL
        for (std::size_t r = 0; r < rows; ++r)
            sum[r] = hn::MulAdd(hn::LoadU(DF(), state + r * size + i), key, sum[r]);
    }
    float delta[rows];
    KERNELS_UNROLL
    for (std::size_t r = 0; r < rows; ++r) {
        float recalled = sum_of(sum[r]);
        for (std::size_t i = whole; i < size; ++i)
            recalled += state[r * size + i] * k[i];
        delta[r] = beta * (v[r] - decay * recalled);
        sum[r] = hn::Zero(DF());
    }
    const VF keep = hn::Set(DF(), decay);
    for (std::size_t i = 0; i < whole; i += kLanes) {
        const VF key = hn::LoadU(DF(), k + i);
        const VF query = hn::LoadU(DF(), q + i);
        KERNELS_UNROLL
        for (std::size_t r = 0; r < rows; ++r) {
            const VF old = hn::LoadU(DF(), state + r * size + i);
            const VF now = hn::MulAdd(key, hn::Set(DF(), delta[r]), hn::Mul(old, keep));
            hn::StoreU(now, DF(), state + r * size + i);
            sum[r] = hn::MulAdd(now, query, sum[r]);
        }
    }
    KERNELS_UNROLL
    for (std::size_t r = 0; r < rows; ++r) {
        float out = sum_of(sum[r]);
        for (std::size_t i = whole; i < size; ++i) {
            float& cell = state[r * size + i];
            cell = cell * decay + k[i] * delta[r];
            out += cell * q[i];
        }
        o[r] = out;
    }
}

void head_row(const DeltaHeadRow& row) {
    const auto size = static_cast<std::size_t>(row.state_size);
    float* q = row.work;
    float* k = row.work + size;
    float* v = row.work + 2 * size;
    float* o = row.work + 3 * size;
    convolve(row, row.q_channel, size, q);
    convolve(row, row.k_channel, size, k);
    convolve(row, row.v_channel, size, v);
    scale(q, size,
          1.0F /
              (std::sqrt(sum_squares(q, size) + kL2Epsilon) * std::sqrt(static_cast<float>(size))));
    scale(k, size, 1.0F / std::sqrt(sum_squares(k, size) + kL2Epsilon));

    std::size_t c = 0;
    for (; c + 4 <= size; c += 4)
        update_state<4>(row.state + c * size, size, q, k, v + c, row.decay, row.beta, o + c);
    for (; c < size; ++c)
        update_state<1>(row.state + c * size, size, q, k, v + c, row.decay, row.beta, o + c);

    const float mean = sum_squares(o, size) / static_cast<float>(size);
    const float factor = 1.0F / std::sqrt(mean + row.norm_eps);
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
        const VF normed = hn::Mul(hn::Mul(hn::LoadU(DF(), o + i), hn::Set(DF(), factor)),
                                  hn::LoadU(DF(), row.norm_weight + i));
        hn::StoreU(hn::Mul(normed, silu_of(hn::LoadU(DF(), row.z + i))), DF(), row.y + i);
    }
    for (; i < size; ++i)
        row.y[i] = o[i] * factor * row.norm_weight[i] * (row.z[i] / (1.0F + std::exp(-row.z[i])));
}

DeltaKernels delta_table() {
    return {head_row};
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(delta_table);

DeltaKernels delta_kernels() {
    return HWY_DYNAMIC_DISPATCH(delta_table)();
}

}  // namespace kernels::cpu
#endif
