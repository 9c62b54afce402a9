// Attention of some queries of one sequence over the pages of their KV head, in f32.
//
// Pages are read in stretches of at most 64 tokens: scores, running maximum, weights, then the
// weighted sum of V, rescaled when the maximum moved (Dao et al. 2022, "FlashAttention", the
// on-line softmax). Stretches begin at fixed token numbers and a query's additions have an order
// given by its own token count, so its result depends on its own K and V and on the page size, not
// on which queries share the call.
//
// Shapes    q [queries, D]; K, V [page][tokens][D] of one KV head, f16 or f32; out [queries, D]
// Moves     K and V once per call
// Plan      lanes along D; the sums of kLanes tokens are added across together. Queries of a prompt
//           read K and V from a stretch widened to f32 once; one or two widen as they read.
// Source    checked by tests/kernel/attention_test.cpp
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_simd.cpp"
#include <cmath>
#include <cstring>
#include <limits>

#include <hwy/foreach_target.h>  // first: includes this file again for every instruction set
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

constexpr auto kStretch = static_cast<std::size_t>(kAttentionStretch);
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
    static HWY_INLINE float value(Value v) { return hn::GetLane(load_part_of(&v, 1)); }
};

struct KvF32 {
    using Value = float;
    static HWY_INLINE VF load(const Value* from) { return hn::LoadU(DF(), from); }
    static HWY_INLINE float value(Value v) { return v; }
    static HWY_INLINE VF load_part_of(const Value* from, std::size_t count) {
        return load_part(from, count);
    }
};

/// Lane t of the result is the sum over the lanes of v[t]: pairs at distance 2 and 1 within four
/// lanes, then the fours.
HWY_INLINE VF sums_across(const VF (&v)[kLanes]) {
    const DF d;
    const hn::Repartition<double, DF> d64;
    VF four[kLanes / 4];  // of four tokens: in each part of four lanes that part's sums
    KERNELS_UNROLL
    for (std::size_t i = 0; i < kLanes / 4; ++i) {
        const VF* at = v + 4 * i;
        const VF a =
            hn::Add(hn::InterleaveLower(d, at[0], at[1]), hn::InterleaveUpper(d, at[0], at[1]));
        const VF b =
            hn::Add(hn::InterleaveLower(d, at[2], at[3]), hn::InterleaveUpper(d, at[2], at[3]));
        const auto a64 = hn::BitCast(d64, a);
        const auto b64 = hn::BitCast(d64, b);
        four[i] = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                          hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
    }
#if HWY_MAX_BYTES == 64
    const VF low = hn::Add(hn::ConcatLowerLower(d, four[1], four[0]),
                           hn::ConcatUpperUpper(d, four[1], four[0]));
    const VF high = hn::Add(hn::ConcatLowerLower(d, four[3], four[2]),
                            hn::ConcatUpperUpper(d, four[3], four[2]));
    return hn::Add(VF{_mm512_shuffle_f32x4(low.raw, high.raw, 0x88)},
                   VF{_mm512_shuffle_f32x4(low.raw, high.raw, 0xdd)});
#elif HWY_MAX_BYTES == 32
    return hn::Add(hn::ConcatLowerLower(d, four[1], four[0]),
                   hn::ConcatUpperUpper(d, four[1], four[0]));
#else
    return four[0];
#endif
}

/// Products of q and one token's key, a sum per lane.
template <class Kv>
HWY_INLINE VF multiply_key(const float* q, const typename Kv::Value* k, std::size_t head_dim) {
    const std::size_t whole = head_dim / kLanes * kLanes;
    VF sum = hn::Zero(DF());
    for (std::size_t i = 0; i < whole; i += kLanes)
        sum = hn::MulAdd(hn::LoadU(DF(), q + i), Kv::load(k + i), sum);
    if (whole < head_dim)
        sum = hn::MulAdd(load_part(q + whole, head_dim - whole),
                         Kv::load_part_of(k + whole, head_dim - whole), sum);
    return sum;
}

/// score[t] = q . k_t; what stands behind the last token, up to a whole vector, is -inf: weight 0.
template <class Kv>
HWY_INLINE void scores(const float* q, std::size_t head_dim, const typename Kv::Value* k,
                       std::size_t tokens, float* score) {
    const std::size_t whole = head_dim / kLanes * kLanes;
    std::size_t t = 0;
    for (; t + kLanes <= tokens; t += kLanes, k += kLanes * head_dim) {
        VF sum[kLanes];
        KERNELS_UNROLL
        for (std::size_t j = 0; j < kLanes; ++j)
            sum[j] = hn::Zero(DF());
        for (std::size_t i = 0; i < whole; i += kLanes) {
            const VF query = hn::LoadU(DF(), q + i);
            KERNELS_UNROLL
            for (std::size_t j = 0; j < kLanes; ++j)
                sum[j] = hn::MulAdd(query, Kv::load(k + j * head_dim + i), sum[j]);
        }
        if (whole < head_dim) {
            const VF query = load_part(q + whole, head_dim - whole);
            for (std::size_t j = 0; j < kLanes; ++j)
                sum[j] = hn::MulAdd(
                    query, Kv::load_part_of(k + j * head_dim + whole, head_dim - whole), sum[j]);
        }
        hn::StoreU(sums_across(sum), DF(), score + t);
    }
    if (t == tokens) return;
    VF sum[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j)
        sum[j] = t + j < tokens ? multiply_key<Kv>(q, k + j * head_dim, head_dim) : hn::Zero(DF());
    hn::StoreU(sums_across(sum), DF(), score + t);
    for (std::size_t i = tokens; i < t + kLanes; ++i)
        score[i] = -std::numeric_limits<float>::infinity();
}

/// Where a query stands after some stretches.
struct Running {
    float largest = -std::numeric_limits<float>::infinity();
    float total = 0.0F;
};

/// Turns scores into weights and moves the maximum and total on; returns the factor for what was
/// summed up before.
HWY_INLINE float soften(float* score, std::size_t tokens, Running& run) {
    VF most = hn::Set(DF(), run.largest);
    for (std::size_t t = 0; t < tokens; t += kLanes)
        most = hn::Max(most, hn::LoadU(DF(), score + t));
    const float largest = hn::GetLane(hn::MaxOfLanes(DF(), most));
    VF sum = hn::Zero(DF());
    for (std::size_t t = 0; t < tokens; t += kLanes) {
        const VF weight = exp_of(hn::Sub(hn::LoadU(DF(), score + t), hn::Set(DF(), largest)));
        hn::StoreU(weight, DF(), score + t);
        sum = hn::Add(sum, weight);
    }
    const float rescale = std::exp(run.largest - largest);
    run.total = run.total * rescale + sum_of(sum);
    run.largest = largest;
    return rescale;
}

/// out = out * rescale + sum over t of weight[t] * v_t for `vectors` vectors of out. Tokens of even
/// and odd number have sums of their own, which hides the latency of additions.
template <class Kv, std::size_t vectors>
HWY_INLINE void weigh_vectors(const typename Kv::Value* v, std::size_t head_dim, std::size_t tokens,
                              const float* weight, float rescale, float* out) {
    VF even[vectors];
    VF odd[vectors];
    KERNELS_UNROLL
    for (std::size_t i = 0; i < vectors; ++i) {
        even[i] = hn::Mul(hn::LoadU(DF(), out + i * kLanes), hn::Set(DF(), rescale));
        odd[i] = hn::Zero(DF());
    }
    std::size_t t = 0;
    for (; t + 2 <= tokens; t += 2, v += 2 * head_dim) {
        const VF first = hn::Set(DF(), weight[t]);
        const VF second = hn::Set(DF(), weight[t + 1]);
        KERNELS_UNROLL
        for (std::size_t i = 0; i < vectors; ++i) {
            even[i] = hn::MulAdd(first, Kv::load(v + i * kLanes), even[i]);
            odd[i] = hn::MulAdd(second, Kv::load(v + head_dim + i * kLanes), odd[i]);
        }
    }
    if (t < tokens) {
        const VF first = hn::Set(DF(), weight[t]);
        KERNELS_UNROLL
        for (std::size_t i = 0; i < vectors; ++i)
            even[i] = hn::MulAdd(first, Kv::load(v + i * kLanes), even[i]);
    }
    KERNELS_UNROLL
    for (std::size_t i = 0; i < vectors; ++i)
        hn::StoreU(hn::Add(even[i], odd[i]), DF(), out + i * kLanes);
}

/// The same for the last head_dim % kLanes values.
template <class Kv>
HWY_INLINE void weigh_rest(const typename Kv::Value* v, std::size_t head_dim, std::size_t tokens,
                           const float* weight, float rescale, float* out) {
    for (std::size_t i = head_dim / kLanes * kLanes; i < head_dim; ++i) {
        float sum[2] = {out[i] * rescale, 0.0F};
        for (std::size_t t = 0; t < tokens; ++t)
            sum[t % 2] += weight[t] * Kv::value(v[t * head_dim + i]);
        out[i] = sum[0] + sum[1];
    }
}

template <class Kv>
HWY_INLINE void weigh(const typename Kv::Value* v, std::size_t head_dim, std::size_t tokens,
                      const float* weight, float rescale, float* out) {
    std::size_t i = 0;
    for (; i + 4 * kLanes <= head_dim; i += 4 * kLanes)
        weigh_vectors<Kv, 4>(v + i, head_dim, tokens, weight, rescale, out + i);
    for (; i + kLanes <= head_dim; i += kLanes)
        weigh_vectors<Kv, 1>(v + i, head_dim, tokens, weight, rescale, out + i);
    if (i < head_dim) weigh_rest<Kv>(v, head_dim, tokens, weight, rescale, out);
}

/// Takes every query that sees any of them through the tokens begin .. begin + count - 1.
template <class Kv>
HWY_INLINE void attend_stretch(const AttentionQueries& job, std::size_t begin, std::size_t count,
                               const typename Kv::Value* k, const typename Kv::Value* v,
                               Running* running) {
    const auto head_dim = static_cast<std::size_t>(job.head_dim);
    HWY_ALIGN float score[kStretch];
    for (std::size_t i = 0; i < static_cast<std::size_t>(job.queries); ++i) {
        const auto tokens = static_cast<std::size_t>(job.tokens[i]);
        if (tokens <= begin) continue;
        const std::size_t seen = tokens - begin < count ? tokens - begin : count;
        scores<Kv>(job.q + i * head_dim, head_dim, k, seen, score);
        const float rescale = soften(score, seen, running[i]);
        weigh<Kv>(v, head_dim, seen, score, rescale, job.out + i * head_dim);
    }
}

void widen(const hwy::float16_t* from, std::size_t count, float* to) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
        hn::StoreU(KvF16::load(from + i), DF(), to + i);
    if (i < count) store_part(KvF16::load_part_of(from + i, count - i), to + i, count - i);
}

void scale(float* values, std::size_t count, float factor) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
        hn::StoreU(hn::Mul(hn::LoadU(DF(), values + i), hn::Set(DF(), factor)), DF(), values + i);
    for (; i < count; ++i)
        values[i] *= factor;
}

/// From this many queries on, widening a stretch first costs less than widening at every read.
constexpr int kQueriesToWiden = 3;

template <class Kv>
HWY_INLINE void attend_pages(const AttentionQueries& job) {
    constexpr bool is_f16 = sizeof(typename Kv::Value) == 2;
    const auto head_dim = static_cast<std::size_t>(job.head_dim);
    const auto queries = static_cast<std::size_t>(job.queries);
    Running running[kAttentionQueries];
    std::memset(job.out, 0, queries * head_dim * sizeof(float));

    const auto block_tokens = static_cast<std::size_t>(job.block_tokens);
    const auto tokens = static_cast<std::size_t>(job.tokens[queries - 1]);  // the most
    for (std::size_t begin = 0; begin < tokens; begin += block_tokens) {
        const std::int64_t page = job.block_table[begin / block_tokens];
        const void* k_page = job.k + page * job.page_bytes;
        const void* v_page = job.v + page * job.page_bytes;
        const auto* k = static_cast<const typename Kv::Value*>(k_page);
        const auto* v = static_cast<const typename Kv::Value*>(v_page);
        const std::size_t in_page = tokens - begin < block_tokens ? tokens - begin : block_tokens;
        for (std::size_t t = 0; t < in_page; t += kStretch) {
            const std::size_t count = in_page - t < kStretch ? in_page - t : kStretch;
            const std::size_t at = t * head_dim;
            if constexpr (is_f16) {
                if (job.queries >= kQueriesToWiden) {
                    float* wide_v = job.stretch + kStretch * head_dim;
                    widen(k + at, count * head_dim, job.stretch);
                    widen(v + at, count * head_dim, wide_v);
                    attend_stretch<KvF32>(job, begin + t, count, job.stretch, wide_v, running);
                    continue;
                }
            }
            attend_stretch<Kv>(job, begin + t, count, k + at, v + at, running);
        }
    }
    for (std::size_t i = 0; i < queries; ++i)
        scale(job.out + i * head_dim, head_dim, 1.0F / running[i].total);
}

void attend(const AttentionQueries& job) {
    if (job.kv_is_f16) {
        attend_pages<KvF16>(job);
    } else {
        attend_pages<KvF32>(job);
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
