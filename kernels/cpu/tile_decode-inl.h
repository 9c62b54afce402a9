// From file blocks to a panel: the codes of kLanes rows side by side, lane = row.
//
//   panel codes   [k / 4][row] dwords: four consecutive codes (u8) of one row in one lane
//   panel scales  [group][row] f32, minima likewise; a group is 32 values, or 16 in some K formats
//
// With a row per lane nothing is added across lanes, scales are decoded for all rows at once, and
// an output is one chain of additions whose order is that of k. The codes are made unsigned; what
// is subtracted from them (`kOffsetLog2`) meets the sum of the activations instead.
//
// Each format below decodes one block of every row. Formulas: kernels/quant/blocks.h.

#if defined(KERNELS_CPU_TILE_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_TILE_DECODE_INL_H_
#undef KERNELS_CPU_TILE_DECODE_INL_H_
#else
#define KERNELS_CPU_TILE_DECODE_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/quant/blocks.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

/// The same block of kLanes rows that lie `stride` bytes apart.
struct BlockRows {
    const std::uint8_t* block;
    std::ptrdiff_t stride;
    VI lane_offset;  // lane * stride
};

/// Where one block's decoded values go.
struct PanelPart {
    std::uint32_t* codes;
    float* scales;
    float* mins;
};

struct Quad {  // four dword columns of the rows: lane r holds dword j of row r
    VU v[4];
};

/// Sixteen bytes of rows i, i + 4, i + 8, ... in consecutive 128-bit parts; `from` is row i's.
HWY_INLINE VU load_every_fourth(const std::uint8_t* from, std::ptrdiff_t stride) {
#if HWY_MAX_BYTES == 64
    const hn::Full128<std::uint8_t> d16;
    const hn::Full256<std::uint8_t> d32;
    const auto low = hn::Combine(d32, hn::LoadU(d16, from + 4 * stride), hn::LoadU(d16, from));
    const auto high =
        hn::Combine(d32, hn::LoadU(d16, from + 12 * stride), hn::LoadU(d16, from + 8 * stride));
    return hn::BitCast(DU(), hn::Combine(DU8(), high, low));
#elif HWY_MAX_BYTES == 32
    const hn::Full128<std::uint8_t> d16;
    return hn::BitCast(DU(),
                       hn::Combine(DU8(), hn::LoadU(d16, from + 4 * stride), hn::LoadU(d16, from)));
#else
    (void)stride;
    return hn::BitCast(DU(), hn::LoadU(DU8(), from));
#endif
}

/// Bytes offset..offset+15 of every row, transposed.
HWY_INLINE Quad load_quad(const BlockRows& rows, std::size_t offset) {
    const DU d;
    const hn::Repartition<std::uint64_t, DU> d64;
    const std::uint8_t* from = rows.block + offset;
    const VU r0 = load_every_fourth(from, rows.stride);
    const VU r1 = load_every_fourth(from + rows.stride, rows.stride);
    const VU r2 = load_every_fourth(from + 2 * rows.stride, rows.stride);
    const VU r3 = load_every_fourth(from + 3 * rows.stride, rows.stride);
    const auto a = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));  // rows 0 1, dwords 0 | 1
    const auto b = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto c = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto e = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    return {{hn::BitCast(d, hn::InterleaveLower(d64, a, c)),
             hn::BitCast(d, hn::InterleaveUpper(d64, a, c)),
             hn::BitCast(d, hn::InterleaveLower(d64, b, e)),
             hn::BitCast(d, hn::InterleaveUpper(d64, b, e))}};
}

/// The dword at `offset` of every row.
HWY_INLINE VU load_dword(const BlockRows& rows, std::size_t offset) {
    const void* from = rows.block + offset;  // blocks are not aligned; gathers do not mind
    return hn::GatherOffset(DU(), static_cast<const std::uint32_t*>(from), rows.lane_offset);
}

/// The binary16 in the low half of every lane.
HWY_INLINE VF low_half_to_float(VU v) {
    const hn::Rebind<std::uint16_t, DU> d16;
    const VU low = hn::And(v, hn::Set(DU(), 0xffffU));
    return hn::PromoteTo(DF(), hn::BitCast(DF16(), hn::TruncateTo(d16, low)));
}

HWY_INLINE VF high_half_to_float(VU v) {
    return low_half_to_float(hn::ShiftRight<16>(v));
}

HWY_INLINE VF to_float(VU v) {
    return hn::ConvertTo(DF(), hn::BitCast(DI(), v));
}

HWY_INLINE VU low_nibbles(VU v) {
    return hn::And(v, hn::Set(DU(), 0x0f0f0f0fU));
}

HWY_INLINE VU high_nibbles(VU v) {
    return low_nibbles(hn::ShiftRight<4>(v));
}

/// Bits 2s..2s+1 of every byte.
HWY_INLINE VU bit_pairs(VU v, int shift) {
    return hn::And(hn::ShiftRightSame(v, shift), hn::Set(DU(), 0x03030303U));
}

/// Byte `index` of every lane.
HWY_INLINE VU byte_of(VU v, int index) {
    return hn::And(hn::ShiftRightSame(v, 8 * index), hn::Set(DU(), 0xffU));
}

/// Codes of the non-linear levels, plus 128.
HWY_INLINE VU iq4_levels(VU nibbles) {
    alignas(16) static constexpr std::uint8_t kTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                            129, 141, 153, 166, 181, 197, 217, 241};
    return hn::BitCast(
        DU(), hn::TableLookupBytes(hn::LoadDup128(DU8(), kTable), hn::BitCast(DU8(), nibbles)));
}

HWY_INLINE void put(const PanelPart& part, std::size_t dword, VU codes) {
    hn::Store(codes, DU(), part.codes + dword * kLanes);
}
HWY_INLINE void put_scale(const PanelPart& part, std::size_t group, VF scale) {
    hn::Store(scale, DF(), part.scales + group * kLanes);
}
HWY_INLINE void put_min(const PanelPart& part, std::size_t group, VF min) {
    hn::Store(min, DF(), part.mins + group * kLanes);
}

/// What the product loop needs to know of a format.
template <int group, int bits, int offset_log2, bool has_min>
struct CodeShape {
    static constexpr int kGroup = group;             // values per scale
    static constexpr int kBits = bits;               // of a code
    static constexpr int kOffsetLog2 = offset_log2;  // subtracted from a code; -1 = nothing
    static constexpr bool kHasMin = has_min;
};
using Shape8 = CodeShape<32, 8, 7, false>;

// ---------------------------------------------------------------------------------------------
// 32 values per block

struct DecodeQ8_0 {
    using Shape = Shape8;
    using Block = BlockQ8_0;
    static constexpr std::size_t kValues = 32;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        put_scale(part, 0, low_half_to_float(load_dword(rows, 0)));
        KERNELS_UNROLL
        for (std::size_t half = 0; half < 2; ++half) {
            const Quad quad = load_quad(rows, offsetof(Block, qs) + 16 * half);
            KERNELS_UNROLL
            for (std::size_t j = 0; j < 4; ++j)  // two's complement + 128 = the top bit flipped
                put(part, 4 * half + j, hn::Xor(quad.v[j], hn::Set(DU(), 0x80808080U)));
        }
    }
};

struct DecodeQ4_0 {
    using Shape = CodeShape<32, 4, 3, false>;
    using Block = BlockQ4_0;
    static constexpr std::size_t kValues = 32;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        put_scale(part, 0, low_half_to_float(load_dword(rows, 0)));
        const Quad quad = load_quad(rows, offsetof(Block, qs));
        KERNELS_UNROLL
        for (std::size_t j = 0; j < 4; ++j) {
            put(part, j, low_nibbles(quad.v[j]));
            put(part, j + 4, high_nibbles(quad.v[j]));
        }
    }
};

struct DecodeQ4_1 {
    using Shape = CodeShape<32, 4, -1, true>;
    using Block = BlockQ4_1;
    static constexpr std::size_t kValues = 32;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        const VU head = load_dword(rows, 0);
        put_scale(part, 0, low_half_to_float(head));
        put_min(part, 0, high_half_to_float(head));
        const Quad quad = load_quad(rows, offsetof(Block, qs));
        KERNELS_UNROLL
        for (std::size_t j = 0; j < 4; ++j) {
            put(part, j, low_nibbles(quad.v[j]));
            put(part, j + 4, high_nibbles(quad.v[j]));
        }
    }
};

/// Bits 4j..4j+3 of `high`, each as 16 in a byte of its own.
HWY_INLINE VU spread_fifth_bits(VU high, int j) {
    const VU four = hn::And(hn::ShiftRightSame(high, 4 * j), hn::Set(DU(), 15U));
    // The factor puts bit i at position 8i, among others that the mask drops.
    const VU spread = hn::Mul(four, hn::Set(DU(), 0x00204081U));
    return hn::ShiftLeft<4>(hn::And(spread, hn::Set(DU(), 0x01010101U)));
}

template <class BlockType, int offset_log2, bool has_min>
struct DecodeQ5 {
    using Shape = CodeShape<32, 5, offset_log2, has_min>;
    using Block = BlockType;
    static constexpr std::size_t kValues = 32;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        const VU head = load_dword(rows, 0);
        put_scale(part, 0, low_half_to_float(head));
        if constexpr (has_min) put_min(part, 0, high_half_to_float(head));
        const VU high = load_dword(rows, offsetof(Block, qh));
        const Quad quad = load_quad(rows, offsetof(Block, qs));
        KERNELS_UNROLL
        for (int j = 0; j < 4; ++j) {
            const auto i = static_cast<std::size_t>(j);
            put(part, i, hn::Or(low_nibbles(quad.v[i]), spread_fifth_bits(high, j)));
            put(part, i + 4, hn::Or(high_nibbles(quad.v[i]), spread_fifth_bits(high, j + 4)));
        }
    }
};
using DecodeQ5_0 = DecodeQ5<BlockQ5_0, 4, false>;
using DecodeQ5_1 = DecodeQ5<BlockQ5_1, -1, true>;

struct DecodeIQ4_NL {
    using Shape = Shape8;
    using Block = BlockIQ4_NL;
    static constexpr std::size_t kValues = 32;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        put_scale(part, 0, low_half_to_float(load_dword(rows, 0)));
        const Quad quad = load_quad(rows, offsetof(Block, qs));
        KERNELS_UNROLL
        for (std::size_t j = 0; j < 4; ++j) {
            put(part, j, iq4_levels(low_nibbles(quad.v[j])));
            put(part, j + 4, iq4_levels(high_nibbles(quad.v[j])));
        }
    }
};

// ---------------------------------------------------------------------------------------------
// 256 values per block

struct DecodeIQ4_XS {
    using Shape = Shape8;
    using Block = BlockIQ4_XS;
    static constexpr std::size_t kValues = 256;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        const Quad head = load_quad(rows, 0);  // d and scales_h, scales_l, and eight bytes of codes
        const VF d = low_half_to_float(head.v[0]);
        const VU scales_h = hn::ShiftRight<16>(head.v[0]);
        for (int b = 0; b < 8; ++b) {
            const VU low = hn::And(hn::ShiftRightSame(head.v[1], 4 * b), hn::Set(DU(), 15U));
            const VU high = hn::And(hn::ShiftRightSame(scales_h, 2 * b), hn::Set(DU(), 3U));
            const VF scale =
                hn::Sub(to_float(hn::Or(low, hn::ShiftLeft<4>(high))), hn::Set(DF(), 32.0F));
            const auto group = static_cast<std::size_t>(b);
            put_scale(part, group, hn::Mul(d, scale));
            const Quad quad = load_quad(rows, offsetof(Block, qs) + 16 * group);
            KERNELS_UNROLL
            for (std::size_t j = 0; j < 4; ++j) {
                put(part, 8 * group + j, iq4_levels(low_nibbles(quad.v[j])));
                put(part, 8 * group + j + 4, iq4_levels(high_nibbles(quad.v[j])));
            }
        }
    }
};

/// d, dmin and the twelve bytes of packed scales of Q4_K and Q5_K.
HWY_INLINE void put_scales_k4(const BlockRows& rows, const PanelPart& part) {
    const Quad head = load_quad(rows, 0);
    const VU six = hn::Set(DU(), 0x3f3f3f3fU);
    const VF d = low_half_to_float(head.v[0]);
    const VF minus_dmin = hn::Neg(high_half_to_float(head.v[0]));
    const VU a = head.v[1];
    const VU b = head.v[2];
    const VU c = head.v[3];
    const VU scales[2] = {hn::And(a, six),
                          hn::Or(low_nibbles(c), hn::ShiftLeft<4>(bit_pairs(a, 6)))};
    const VU mins[2] = {hn::And(b, six),
                        hn::Or(high_nibbles(c), hn::ShiftLeft<4>(bit_pairs(b, 6)))};
    KERNELS_UNROLL
    for (std::size_t half = 0; half < 2; ++half)
        KERNELS_UNROLL
    for (int j = 0; j < 4; ++j) {
        const std::size_t group = 4 * half + static_cast<std::size_t>(j);
        put_scale(part, group, hn::Mul(d, to_float(byte_of(scales[half], j))));
        put_min(part, group, hn::Mul(minus_dmin, to_float(byte_of(mins[half], j))));
    }
}

struct DecodeQ4_K {
    using Shape = CodeShape<32, 4, -1, true>;
    using Block = BlockQ4_K;
    static constexpr std::size_t kValues = 256;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        put_scales_k4(rows, part);
        for (std::size_t piece = 0; piece < 8; ++piece) {  // two pieces of 16 bytes per group pair
            const Quad quad = load_quad(rows, offsetof(Block, qs) + 16 * piece);
            const std::size_t at = 16 * (piece / 2) + 4 * (piece % 2);
            KERNELS_UNROLL
            for (std::size_t j = 0; j < 4; ++j) {
                put(part, at + j, low_nibbles(quad.v[j]));
                put(part, at + 8 + j, high_nibbles(quad.v[j]));
            }
        }
    }
};

struct DecodeQ5_K {
    using Shape = CodeShape<32, 5, -1, true>;
    using Block = BlockQ5_K;
    static constexpr std::size_t kValues = 256;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        put_scales_k4(rows, part);
        const VU one = hn::Set(DU(), 0x01010101U);
        for (std::size_t side = 0; side < 2; ++side) {  // values 0..15 and 16..31 of every group
            const Quad high = load_quad(rows, offsetof(Block, qh) + 16 * side);
            for (std::size_t pair = 0; pair < 4; ++pair) {
                const Quad quad = load_quad(rows, offsetof(Block, qs) + 32 * pair + 16 * side);
                const int bit = static_cast<int>(2 * pair);
                KERNELS_UNROLL
                for (std::size_t j = 0; j < 4; ++j) {
                    const VU even = hn::And(hn::ShiftRightSame(high.v[j], bit), one);
                    const VU odd = hn::And(hn::ShiftRightSame(high.v[j], bit + 1), one);
                    const std::size_t at = 16 * pair + 4 * side + j;
                    put(part, at, hn::Or(low_nibbles(quad.v[j]), hn::ShiftLeft<4>(even)));
                    put(part, at + 8, hn::Or(high_nibbles(quad.v[j]), hn::ShiftLeft<4>(odd)));
                }
            }
        }
    }
};

struct DecodeQ6_K {
    using Shape = CodeShape<16, 6, 5, false>;
    using Block = BlockQ6_K;
    static constexpr std::size_t kValues = 256;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        const VF d = high_half_to_float(load_dword(rows, offsetof(Block, d) - 2));
        const Quad scales = load_quad(rows, offsetof(Block, scales));
        KERNELS_UNROLL
        for (std::size_t s = 0; s < 16; ++s) {
            // To the top and back: the sign comes along.
            const VI top = hn::BitCast(
                DI(), hn::ShiftLeftSame(scales.v[s / 4], 24 - 8 * static_cast<int>(s % 4)));
            put_scale(part, s, hn::Mul(d, hn::ConvertTo(DF(), hn::ShiftRight<24>(top))));
        }
        for (std::size_t piece = 0; piece < 4; ++piece) {  // half of the block, side of the group
            const std::size_t half = piece / 2;
            const std::size_t side = piece % 2;
            const Quad low = load_quad(rows, 64 * half + 16 * side);
            const Quad low2 = load_quad(rows, 64 * half + 32 + 16 * side);
            const Quad high = load_quad(rows, offsetof(Block, qh) + 32 * half + 16 * side);
            KERNELS_UNROLL
            for (std::size_t j = 0; j < 4; ++j) {
                const std::size_t at = 32 * half + 4 * side + j;
                const VU h = high.v[j];
                put(part, at, hn::Or(low_nibbles(low.v[j]), hn::ShiftLeft<4>(bit_pairs(h, 0))));
                put(part, at + 8,
                    hn::Or(low_nibbles(low2.v[j]), hn::ShiftLeft<4>(bit_pairs(h, 2))));
                put(part, at + 16,
                    hn::Or(high_nibbles(low.v[j]), hn::ShiftLeft<4>(bit_pairs(h, 4))));
                put(part, at + 24,
                    hn::Or(high_nibbles(low2.v[j]), hn::ShiftLeft<4>(bit_pairs(h, 6))));
            }
        }
    }
};

struct DecodeQ2_K {
    using Shape = CodeShape<16, 2, -1, true>;
    using Block = BlockQ2_K;
    static constexpr std::size_t kValues = 256;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        const VU head = load_dword(rows, offsetof(Block, d));
        const VF d = low_half_to_float(head);
        const VF minus_dmin = hn::Neg(high_half_to_float(head));
        const Quad scales = load_quad(rows, offsetof(Block, scales));
        KERNELS_UNROLL
        for (std::size_t s = 0; s < 16; ++s) {
            const int j = static_cast<int>(s % 4);
            put_scale(part, s, hn::Mul(d, to_float(byte_of(low_nibbles(scales.v[s / 4]), j))));
            put_min(part, s,
                    hn::Mul(minus_dmin, to_float(byte_of(high_nibbles(scales.v[s / 4]), j))));
        }
        for (std::size_t piece = 0; piece < 4; ++piece) {
            const std::size_t half = piece / 2;
            const std::size_t side = piece % 2;
            const Quad quad = load_quad(rows, offsetof(Block, qs) + 32 * half + 16 * side);
            for (std::size_t g = 0; g < 4; ++g)
                KERNELS_UNROLL
            for (std::size_t j = 0; j < 4; ++j)
                put(part, 32 * half + 8 * g + 4 * side + j,
                    bit_pairs(quad.v[j], static_cast<int>(2 * g)));
        }
    }
};

struct DecodeQ3_K {
    using Shape = CodeShape<16, 3, 2, false>;
    using Block = BlockQ3_K;
    static constexpr std::size_t kValues = 256;
    static HWY_INLINE void decode(const BlockRows& rows, const PanelPart& part) {
        const VF d = high_half_to_float(load_dword(rows, offsetof(Block, d) - 2));
        const VU a = load_dword(rows, offsetof(Block, scales));
        const VU b = load_dword(rows, offsetof(Block, scales) + 4);
        const VU c = load_dword(rows, offsetof(Block, scales) + 8);
        KERNELS_UNROLL
        for (std::size_t quarter = 0; quarter < 4; ++quarter) {  // four scales each
            const VU packed = quarter % 2 == 0 ? a : b;
            const VU low = quarter < 2 ? low_nibbles(packed) : high_nibbles(packed);
            const VU high = bit_pairs(c, static_cast<int>(2 * quarter));
            const VU six = hn::Or(low, hn::ShiftLeft<4>(high));
            KERNELS_UNROLL
            for (int j = 0; j < 4; ++j)
                put_scale(part, 4 * quarter + static_cast<std::size_t>(j),
                          hn::Mul(d, hn::Sub(to_float(byte_of(six, j)), hn::Set(DF(), 32.0F))));
        }
        const VU one = hn::Set(DU(), 0x01010101U);
        for (std::size_t piece = 0; piece < 4; ++piece) {
            const std::size_t half = piece / 2;
            const std::size_t side = piece % 2;
            const Quad quad = load_quad(rows, offsetof(Block, qs) + 32 * half + 16 * side);
            const Quad mask = load_quad(rows, offsetof(Block, hmask) + 16 * side);
            for (std::size_t g = 0; g < 4; ++g)
                KERNELS_UNROLL
            for (std::size_t j = 0; j < 4; ++j) {
                const int bit = static_cast<int>(4 * half + g);
                const VU third = hn::And(hn::ShiftRightSame(mask.v[j], bit), one);
                put(part, 32 * half + 8 * g + 4 * side + j,
                    hn::Or(bit_pairs(quad.v[j], static_cast<int>(2 * g)), hn::ShiftLeft<2>(third)));
            }
        }
    }
};

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_TILE_DECODE_INL_H_
