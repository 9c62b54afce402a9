// Rows of one value head of the gated delta net, in f32: convolution and SiLU of the head's
// channels, L2 norms, the delta rule on its state, RMSNorm, output gate.
//
//   S [value c][key i], key fastest:   p_c = e^g S_c.k    d_c = b (v_c - p_c)
//                                      S_c <- e^g S_c + d_c k    o_c = S_c.q / sqrt(S)
//
// Shapes    row[t].taps [conv_kernel] rows of u; state [S, S]; row[t].y [S]
// Moves     the state once per call, read and written: 128 KB a head at S = 128
// Replay    an accepted row of a verify step is S_c <- e^g S_c + d_c k alone, by the same
//           instructions, so that the state has the same bits
// Plan      eight value rows at a time (4 KB of state, in the first cache) walk through all rows of
//           the call before the next eight; the arithmetic of a row does not notice. Rows that may
//           be taken back walk over a copy of the eight. The
//           convolution of q and k is done anew by each value head of a key head: a tenth of the
//           work, and no head waits for another
// Source    Yang et al. 2024, "Gated Delta Networks"; checked by tests/kernel/delta_net_test.cpp
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta_net_simd.cpp"
#include <cmath>
#include <cstring>

#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

/// The taps of kLanes channels, one vector per tap; in memory a channel's taps lie together.
HWY_INLINE void load_taps(const float* conv_w, int conv_kernel, VF (&taps)[kConvKernelMax]) {
    if (conv_kernel == 4) {  // every published model
        hn::LoadInterleaved4(DF(), conv_w, taps[0], taps[1], taps[2], taps[3]);
        return;
    }
    const VI lanes = hn::Mul(hn::Iota(DI(), 0), hn::Set(DI(), conv_kernel));
    for (int j = 0; j < conv_kernel; ++j)
        taps[j] = hn::GatherIndex(DF(), conv_w + j, lanes);
}

HWY_INLINE float convolve_one(const float* w, const DeltaRow& row, int conv_kernel,
                              std::int64_t channel) {
    float sum = 0.0F;
    for (int j = 0; j < conv_kernel; ++j)
        if (row.taps[j] != nullptr) sum += w[j] * row.taps[j][channel];
    return sum / (1.0F + std::exp(-sum));
}

/// silu(sum of taps) of the S channels from `first` on, for every row; row t's go to
/// out + t * 4 * S.
HWY_INLINE void convolve(const DeltaHead& head, std::int64_t first, float* out) {
    const auto size = static_cast<std::size_t>(head.state_size);
    const auto rows = static_cast<std::size_t>(head.rows);
    const auto conv_kernel = static_cast<std::size_t>(head.conv_kernel);
    const float* w = head.conv_w + first * head.conv_kernel;
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
        VF taps[kConvKernelMax];
        load_taps(w + i * conv_kernel, head.conv_kernel, taps);
        for (std::size_t t = 0; t < rows; ++t) {
            VF sum = hn::Zero(DF());
            for (std::size_t j = 0; j < conv_kernel; ++j) {
                const float* tap = head.row[t].taps[j];
                const VF u = tap == nullptr ? hn::Zero(DF()) : hn::LoadU(DF(), tap + first + i);
                sum = hn::MulAdd(taps[j], u, sum);
            }
            hn::StoreU(silu_of(sum), DF(), out + t * 4 * size + i);
        }
    }
    for (; i < size; ++i)
        for (std::size_t t = 0; t < rows; ++t)
            out[t * 4 * size + i] = convolve_one(w + i * conv_kernel, head.row[t], head.conv_kernel,
                                                 first + static_cast<std::int64_t>(i));
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

/// One vector, and one value, of S <- decay S + delta key^T: the only places that say so.
HWY_INLINE VF advanced(VF old, VF keep, VF delta, VF key) {
    return hn::MulAdd(key, delta, hn::Mul(old, keep));
}
HWY_INLINE float advanced(float old, float keep, float delta, float key) {
    return old * keep + key * delta;
}

/// A known update on `rows` value rows of the state.
template <std::size_t rows>
HWY_INLINE void replay(float* state, std::size_t size, const float* key, const float* delta,
                       float decay) {
    const std::size_t whole = size / kLanes * kLanes;
    const VF keep = hn::Set(DF(), decay);
    for (std::size_t i = 0; i < whole; i += kLanes) {
        const VF k = hn::LoadU(DF(), key + i);
        KERNELS_UNROLL
        for (std::size_t r = 0; r < rows; ++r) {
            float* at = state + r * size + i;
            hn::StoreU(advanced(hn::LoadU(DF(), at), keep, hn::Set(DF(), delta[r]), k), DF(), at);
        }
    }
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = whole; i < size; ++i)
            state[r * size + i] = advanced(state[r * size + i], decay, delta[r], key[i]);
}

/// The delta rule on `rows` value rows of the state; o receives S q, `delta` the deltas.
template <std::size_t rows>
HWY_INLINE void update_state(float* state, std::size_t size, const float* q, const float* k,
                             const float* v, float decay, float beta, float* o,
                             float (&delta)[rows]) {
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
            const VF now = advanced(old, keep, hn::Set(DF(), delta[r]), key);
            hn::StoreU(now, DF(), state + r * size + i);
            sum[r] = hn::MulAdd(now, query, sum[r]);
        }
    }
    KERNELS_UNROLL
    for (std::size_t r = 0; r < rows; ++r) {
        float out = sum_of(sum[r]);
        for (std::size_t i = whole; i < size; ++i) {
            float& cell = state[r * size + i];
            cell = advanced(cell, decay, delta[r], k[i]);
            out += cell * q[i];
        }
        o[r] = out;
    }
}

/// Normed and gated output of one row: y = RMSNorm(o) * silu(z).
HWY_INLINE void finish_row(const DeltaHead& head, const DeltaRow& row, const float* o) {
    const auto size = static_cast<std::size_t>(head.state_size);
    const float mean = sum_squares(o, size) / static_cast<float>(size);
    const float factor = 1.0F / std::sqrt(mean + head.norm_eps);
    std::size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
        const VF normed = hn::Mul(hn::Mul(hn::LoadU(DF(), o + i), hn::Set(DF(), factor)),
                                  hn::LoadU(DF(), head.norm_weight + i));
        hn::StoreU(hn::Mul(normed, silu_of(hn::LoadU(DF(), row.z + i))), DF(), row.y + i);
    }
    for (; i < size; ++i)
        row.y[i] = o[i] * factor * head.norm_weight[i] * (row.z[i] / (1.0F + std::exp(-row.z[i])));
}

/// q, k, v and o of row t in the work memory.
struct RowWork {
    float *q, *k, *v, *o;
    RowWork(const DeltaHead& head, std::size_t t) {
        const auto size = static_cast<std::size_t>(head.state_size);
        q = head.work + 4 * size * t;
        k = q + size;
        v = k + size;
        o = v + size;
    }
};

/// Takes `value_rows` rows of the state, from value `c` on, through all updates and rows of the
/// call.
template <std::size_t value_rows>
HWY_INLINE void walk_rows(const DeltaHead& head, std::size_t c) {
    const auto size = static_cast<std::size_t>(head.state_size);
    const auto rows = static_cast<std::size_t>(head.rows);
    float* state = head.state + c * size;
    for (int u = 0; u < head.updates; ++u) {
        const DeltaUpdate& update = head.update[u];
        replay<value_rows>(state, size, update.key, update.delta + c, update.decay);
    }
    if (!head.commits && rows > 0) {
        float* copy = head.work + 4 * size * rows;
        std::memcpy(copy, state, value_rows * size * sizeof(float));
        state = copy;
    }
    for (std::size_t t = 0; t < rows; ++t) {
        const RowWork work(head, t);
        const DeltaRow& row = head.row[t];
        float delta[value_rows];
        update_state<value_rows>(state, size, work.q, work.k, work.v + c, row.decay, row.beta,
                                 work.o + c, delta);
        if (row.delta_out != nullptr) std::memcpy(row.delta_out + c, delta, sizeof delta);
    }
}

void delta_head(const DeltaHead& head) {
    const auto size = static_cast<std::size_t>(head.state_size);
    const auto rows = static_cast<std::size_t>(head.rows);
    const float query_scale = std::sqrt(static_cast<float>(size));
    const RowWork first(head, 0);
    convolve(head, head.q_channel, first.q);
    convolve(head, head.k_channel, first.k);
    convolve(head, head.v_channel, first.v);
    for (std::size_t t = 0; t < rows; ++t) {
        const RowWork work(head, t);
        scale(work.q, size,
              1.0F / (std::sqrt(sum_squares(work.q, size) + kL2Epsilon) * query_scale));
        scale(work.k, size, 1.0F / std::sqrt(sum_squares(work.k, size) + kL2Epsilon));
        if (float* out = head.row[t].key_out; out != nullptr)
            std::memcpy(out, work.k, size * sizeof(float));
    }
    std::size_t c = 0;
    for (; c + kDeltaStateRows <= size; c += kDeltaStateRows)
        walk_rows<kDeltaStateRows>(head, c);
    for (; c < size; ++c)
        walk_rows<1>(head, c);
    for (std::size_t t = 0; t < rows; ++t)
        finish_row(head, head.row[t], RowWork(head, t).o);
}

DeltaKernels delta_table() {
    return {delta_head};
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
