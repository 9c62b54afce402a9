// Attention of a few query heads of one row over the pages of their KV head, in f32.
//
// Pages are read in stretches of at most 64 tokens: scores, running maximum, weights, then the
// weighted sum of V, rescaled when the maximum moved (Dao et al. 2022, "FlashAttention", the
// on-line softmax). Stretches begin at fixed token numbers, so a row's result depends on its own
// K and V and on the page size, not on what else is attended in the step.
//
// Shapes    q [heads, D]; K, V [page][tokens][D] of one KV head, f16 or f32; out [heads, D]
// Moves     K and V once per call for up to four query heads
// Source    checked by tests/kernel/attention_test.cpp
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_simd.cpp"
#include <cmath>
#include <limits>

#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

constexpr std::size_t kStretch = 64;  // tokens; a page of more is read in parts
static_assert(kStretch % kLanes == 0);

struct KvF16 {
    using Value = hwy::float16_t;
    static HWY_INLINE VF load(const Value* from) {
        return hn::PromoteTo(DF(), hn::LoadU(DF16(), from));
    }
    static HWY_INLINE VF load_part_of(const Value* from, std::size_t count) {
        HWY_ALIGN Value part[kLanes] = {};
        for (std::size_t i = 0; i < count; ++i)
            part[i] = from[i];
        return load(part);
    }
};

struct KvF32 {
    using Value = float;
    static HWY_INLINE VF load(const Value* from) { return hn::LoadU(DF(), from); }
    static HWY_INLINE VF load_part_of(const Value* from, std::size_t count) {
        return load_part(from, count);
    }
};

struct Running {
    float score[kAttentionHeads][kStretch];  // then the weights
    float largest[kAttentionHeads];
    float total[kAttentionHeads];
    float rescale[kAttentionHeads];
};

/// score[h][t] = q_h . k_t
template <class Kv, std::size_t heads>
HWY_INLINE void scores(const float* q, std::size_t head_dim, const typename Kv::Value* k,
                       std::size_t tokens, Running& run) {
    const std::size_t whole = head_dim / kLanes * kLanes;
    for (std::size_t t = 0; t < tokens; ++t, k += head_dim) {
        VF sum[heads];
        KERNELS_UNROLL
        for (std::size_t h = 0; h < heads; ++h)
            sum[h] = hn::Zero(DF());
        for (std::size_t i = 0; i < whole; i += kLanes) {
            const VF key = Kv::load(k + i);
            KERNELS_UNROLL
            for (std::size_t h = 0; h < heads; ++h)
                sum[h] = hn::MulAdd(hn::LoadU(DF(), q + h * head_dim + i), key, sum[h]);
        }
        if (whole < head_dim) {
            const VF key = Kv::load_part_of(k + whole, head_dim - whole);
            KERNELS_UNROLL
            for (std::size_t h = 0; h < heads; ++h)
                sum[h] =
                    hn::MulAdd(load_part(q + h * head_dim + whole, head_dim - whole), key, sum[h]);
        }
        KERNELS_UNROLL
        for (std::size_t h = 0; h < heads; ++h)
            run.score[h][t] = sum_of(sum[h]);
    }
}

/// Turns scores into weights and moves the running maximum and total on.
HWY_INLINE void soften(std::size_t h, std::size_t tokens, Running& run) {
    float* score = run.score[h];
    const float lowest = -std::numeric_limits<float>::infinity();
    for (std::size_t t = tokens; t < kStretch && t % kLanes != 0; ++t)
        score[t] = lowest;  // weight 0
    VF most = hn::Set(DF(), run.largest[h]);
    for (std::size_t t = 0; t < tokens; t += kLanes)
        most = hn::Max(most, hn::LoadU(DF(), score + t));
    const float largest = hn::GetLane(hn::MaxOfLanes(DF(), most));
    VF sum = hn::Zero(DF());
    for (std::size_t t = 0; t < tokens; t += kLanes) {
        const VF weight = exp_of(hn::Sub(hn::LoadU(DF(), score + t), hn::Set(DF(), largest)));
        hn::StoreU(weight, DF(), score + t);
        sum = hn::Add(sum, weight);
    }
    run.rescale[h] = std::exp(run.largest[h] - largest);
    run.total[h] = run.total[h] * run.rescale[h] + sum_of(sum);
    run.largest[h] = largest;
}

/// out_h = out_h * rescale_h + sum over t of weight[h][t] * v_t
template <class Kv, std::size_t heads>
HWY_INLINE void weigh(const typename Kv::Value* v, std::size_t head_dim, std::size_t tokens,
                      const Running& run, float* out) {
    for (std::size_t i = 0; i < head_dim; i += kLanes) {
        const std::size_t left = head_dim - i;
        const bool whole = left >= kLanes;
        VF sum[heads];
        KERNELS_UNROLL
        for (std::size_t h = 0; h < heads; ++h) {
            float* at = out + h * head_dim + i;
            sum[h] = hn::Mul(whole ? hn::LoadU(DF(), at) : load_part(at, left),
                             hn::Set(DF(), run.rescale[h]));
        }
        for (std::size_t t = 0; t < tokens; ++t) {
            const typename Kv::Value* from = v + t * head_dim + i;
            const VF value = whole ? Kv::load(from) : Kv::load_part_of(from, left);
            KERNELS_UNROLL
            for (std::size_t h = 0; h < heads; ++h)
                sum[h] = hn::MulAdd(hn::Set(DF(), run.score[h][t]), value, sum[h]);
        }
        KERNELS_UNROLL
        for (std::size_t h = 0; h < heads; ++h) {
            float* at = out + h * head_dim + i;
            if (whole) {
                hn::StoreU(sum[h], DF(), at);
            } else {
                store_part(sum[h], at, left);
            }
        }
    }
}

template <class Kv, std::size_t heads>
HWY_INLINE void attend_heads(const AttentionHeads& job, std::size_t first) {
    const auto head_dim = static_cast<std::size_t>(job.head_dim);
    const float* q = job.q + first * head_dim;
    float* out = job.out + first * head_dim;
    Running run;
    KERNELS_UNROLL
    for (std::size_t h = 0; h < heads; ++h) {
        run.largest[h] = -std::numeric_limits<float>::infinity();
        run.total[h] = 0.0F;
    }
    for (std::size_t i = 0; i < heads * head_dim; ++i)
        out[i] = 0.0F;

    const auto block_tokens = static_cast<std::size_t>(job.block_tokens);
    const auto tokens = static_cast<std::size_t>(job.tokens);
    for (std::size_t begin = 0; begin < tokens; begin += block_tokens) {
        const std::int64_t page = job.block_table[begin / block_tokens];
        const void* k_page = job.k + page * job.page_bytes;
        const void* v_page = job.v + page * job.page_bytes;
        const auto* k = static_cast<const typename Kv::Value*>(k_page);
        const auto* v = static_cast<const typename Kv::Value*>(v_page);
        const std::size_t in_page = tokens - begin < block_tokens ? tokens - begin : block_tokens;
        for (std::size_t t = 0; t < in_page; t += kStretch) {
            const std::size_t count = in_page - t < kStretch ? in_page - t : kStretch;
            scores<Kv, heads>(q, head_dim, k + t * head_dim, count, run);
            KERNELS_UNROLL
            for (std::size_t h = 0; h < heads; ++h)
                soften(h, count, run);
            weigh<Kv, heads>(v + t * head_dim, head_dim, count, run, out);
        }
    }
    KERNELS_UNROLL
    for (std::size_t h = 0; h < heads; ++h) {
        const float factor = 1.0F / run.total[h];
        for (std::size_t i = 0; i < head_dim; ++i)
            out[h * head_dim + i] *= factor;
    }
}

template <class Kv>
HWY_INLINE void attend_any(const AttentionHeads& job) {
    const auto heads = static_cast<std::size_t>(job.heads);
    std::size_t h = 0;
    for (; h + 4 <= heads; h += 4)
        attend_heads<Kv, 4>(job, h);
    for (; h + 2 <= heads; h += 2)
        attend_heads<Kv, 2>(job, h);
    for (; h < heads; ++h)
        attend_heads<Kv, 1>(job, h);
}

void attend(const AttentionHeads& job) {
    if (job.kv_is_f16) {
        attend_any<KvF16>(job);
    } else {
        attend_any<KvF32>(job);
    }
}

void store_f16(const float* values, std::int64_t count, std::uint16_t* out) {
    const auto n = static_cast<std::size_t>(count);
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const auto half = hn::DemoteTo(DF16(), hn::LoadU(DF(), values + i));
        hn::StoreU(hn::BitCast(DU16(), half), DU16(), out + i);
    }
    if (i < n) {
        HWY_ALIGN std::uint16_t part[kLanes];
        const auto half = hn::DemoteTo(DF16(), load_part(values + i, n - i));
        hn::Store(hn::BitCast(DU16(), half), DU16(), part);
        for (std::size_t j = 0; i + j < n; ++j)
            out[i + j] = part[j];
    }
}

void gate(const float* in, const float* gates, std::int64_t count, float* out) {
    const auto n = static_cast<std::size_t>(count);
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        hn::StoreU(hn::Mul(hn::LoadU(DF(), in + i), sigmoid_of(hn::LoadU(DF(), gates + i))), DF(),
                   out + i);
    if (i < n)
        store_part(hn::Mul(load_part(in + i, n - i), sigmoid_of(load_part(gates + i, n - i))),
                   out + i, n - i);
}

AttentionKernels attention_table() {
    return {attend, store_f16, gate};
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(attention_table);

AttentionKernels attention_kernels() {
    return HWY_DYNAMIC_DISPATCH(attention_table)();
}

}  // namespace kernels::cpu
#endif
