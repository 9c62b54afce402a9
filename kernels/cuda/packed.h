// The packed order of weights: what a tensor core reads without moving anything.
//
// A record holds 16 rows x 256 inputs; the records of a row tile follow each other along K, and the
// tiles follow each other. Inside a record lie planes:
//
//     [ codes: low 4 bits, or all 8 ][ high bits ][ scales of groups ][ d, dmin as binary16 ]
//
// Lane l = 4 g + t of a warp owns what the A operand of mma.m16n8k16 wants of it: rows g and g + 8,
// inputs 2t, 2t + 1, 2t + 8, 2t + 9 of each 16. Four such steps of nibbles are 16 bytes: a slab of
// 64 inputs is one 16-byte load for each lane. Byte 4 s + f of it holds step s, fragment register f
// = (row / 8) + 2 * (input / 8 within the step): the even input in the low nibble, the odd one
// above, so that one table entry turns a byte into a register. Scales and d stand beside each other
// for rows g and g + 8.
//
// Rows that do not exist and inputs past K are zeros with zero scales. The order is reversible:
// every byte of the file's blocks can be had back. Everything here is constexpr and shared by the
// packer on the device, the one on the host, both unpackers and the tests.
#pragma once

#include <cstdint>

#include "kernels/quant/blocks.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kRecordInputs = 256;
inline constexpr int kSlabInputs = 64;
inline constexpr int kSlabBytes = kTileRows * kSlabInputs / 2;
inline constexpr int kStepInputs = 16;  // of one mma

/// The sixteen levels of IQ4_XS and IQ4_NL as signed bytes, in order.
inline constexpr std::uint32_t kIq4Levels[4] = {0xbfad9881U, 0xf6eaddcfU, 0x26190d01U, 0x71594535U};

/// Bits [shift, shift + bits) of a byte.
struct BitPlace {
    int byte;
    int shift;
};
/// Row and input of a record.
struct Cell {
    int row;
    int input;
};
/// The i-th scale byte, or d, of a row.
struct RowPart {
    int row;
    int i;
};

constexpr int byte_of(std::uint64_t value, int index) {
    return static_cast<int>(value >> (8 * index) & 255U);
}

// ---------------------------------------------------------------------------------------------
// The fragment order

struct FragmentPlace {
    int slab, lane, step, fragment, odd;
};

constexpr FragmentPlace fragment_place(Cell cell) {
    const int in_step = cell.input % kStepInputs;
    return {.slab = cell.input / kSlabInputs,
            .lane = 4 * (cell.row % 8) + in_step % 8 / 2,
            .step = cell.input % kSlabInputs / kStepInputs,
            .fragment = cell.row / 8 + 2 * (in_step / 8),
            .odd = in_step % 2};
}

constexpr Cell cell_at(const FragmentPlace& p) {
    return {.row = p.lane / 4 + 8 * (p.fragment % 2),
            .input = kSlabInputs * p.slab + kStepInputs * p.step + 8 * (p.fragment / 2) +
                     2 * (p.lane % 4) + p.odd};
}

/// Plane of low nibbles: 4 slabs of 512 bytes.
struct NibblePlane {
    static constexpr int kBytes = 4 * kSlabBytes;
    static constexpr int kBits = 4;
    static constexpr BitPlace place(Cell cell) {
        const FragmentPlace p = fragment_place(cell);
        return {kSlabBytes * p.slab + 16 * p.lane + 4 * p.step + p.fragment, 4 * p.odd};
    }
    static constexpr Cell cell(BitPlace place) {
        const int in_lane = place.byte % 16;
        return cell_at({.slab = place.byte / kSlabBytes,
                        .lane = place.byte % kSlabBytes / 16,
                        .step = in_lane / 4,
                        .fragment = in_lane % 4,
                        .odd = place.shift / 4});
    }
};

/// Plane of whole bytes: two steps are 16 bytes of a lane.
struct BytePlane {
    static constexpr int kBytes = kTileRows * kRecordInputs;
    static constexpr int kBits = 8;
    static constexpr BitPlace place(Cell cell) {
        const FragmentPlace p = fragment_place(cell);
        return {512 * (2 * p.slab + p.step / 2) + 16 * p.lane + 8 * (p.step % 2) + 2 * p.fragment +
                    p.odd,
                0};
    }
    static constexpr Cell cell(BitPlace place) {
        const int pair = place.byte / 512;
        const int in_lane = place.byte % 16;
        return cell_at({.slab = pair / 2,
                        .lane = place.byte % 512 / 16,
                        .step = 2 * (pair % 2) + in_lane / 8,
                        .fragment = in_lane % 8 / 2,
                        .odd = in_lane % 2});
    }
};

/// Plane of fifth bits: a word per lane and slab; register 4 s + f has its even input at that bit,
/// the odd one 16 above, as the halves of a register want them.
struct OneBitPlane {
    static constexpr int kBytes = kTileRows * kRecordInputs / 8;
    static constexpr int kBits = 1;
    static constexpr BitPlace place(Cell cell) {
        const FragmentPlace p = fragment_place(cell);
        const int bit = 4 * p.step + p.fragment + 16 * p.odd;
        return {16 * p.lane + 4 * p.slab + bit / 8, bit % 8};
    }
    static constexpr Cell cell(BitPlace place) {
        const int bit = 8 * (place.byte % 4) + place.shift;
        return cell_at({.slab = place.byte % 16 / 4,
                        .lane = place.byte / 16,
                        .step = bit % 16 / 4,
                        .fragment = bit % 4,
                        .odd = bit / 16});
    }
};

/// Plane of fifth and sixth bits: two words per lane and slab, two steps each, in the same manner.
struct TwoBitPlane {
    static constexpr int kBytes = kTileRows * kRecordInputs / 4;
    static constexpr int kBits = 2;
    static constexpr BitPlace place(Cell cell) {
        const FragmentPlace p = fragment_place(cell);
        const int bit = 2 * (4 * (p.step % 2) + p.fragment) + 16 * p.odd;
        return {512 * (p.slab / 2) + 16 * p.lane + 8 * (p.slab % 2) + 4 * (p.step / 2) + bit / 8,
                bit % 8};
    }
    static constexpr Cell cell(BitPlace place) {
        const int bit = 8 * (place.byte % 4) + place.shift;
        const int in_lane = place.byte % 16;
        return cell_at({.slab = 2 * (place.byte / 512) + in_lane / 8,
                        .lane = place.byte % 512 / 16,
                        .step = 2 * (in_lane % 8 / 4) + bit % 16 / 8,
                        .fragment = bit % 8 / 2,
                        .odd = bit / 16});
    }
};

struct NoPlane {
    static constexpr int kBytes = 0;
    static constexpr int kBits = 0;
};

// ---------------------------------------------------------------------------------------------
// Formats: how the file's blocks of 256 inputs of a row fall into planes, and back.
//
// `blocks` are a row's file bytes of one record, kFileBytes of them. The third argument of
// `from_packed` asks for code(input), scale(i) and d(i) of the row.

/// Codes of 32-value blocks with 16 bytes of nibbles.
constexpr int nibble_code(const std::uint8_t* qs, int i) {
    return qs[i % 16] >> (i < 16 ? 0 : 4) & 15;
}
template <class Codes>
constexpr std::uint8_t nibble_byte(const Codes& codes, int first, int byte) {
    return static_cast<std::uint8_t>(codes(first + byte) | codes(first + byte + 16) << 4);
}

template <DType>
struct PackedFormat;

template <>
struct PackedFormat<DType::kIQ4_XS> {
    using Low = NibblePlane;
    using High = NoPlane;
    static constexpr int kFileBytes = 136;
    static constexpr int kScaleBytes = 8;  // of a row: ls - 32, signed, per 32
    static constexpr int kDCount = 1;
    static constexpr int kGroupInputs = 32;

    static constexpr int code(const std::uint8_t* blocks, int input) {
        return nibble_code(blocks + 8 + input / 32 * 16, input % 32);
    }
    static constexpr int scale(const std::uint8_t* blocks, int i) {
        const int low = blocks[4 + i / 2] >> (4 * (i % 2)) & 15;
        const int high = (blocks[2] | blocks[3] << 8) >> (2 * i) & 3;
        return (low | high << 4) - 32;
    }
    static constexpr int d(const std::uint8_t* blocks, int) { return blocks[0] | blocks[1] << 8; }
    template <class Row>
    static constexpr int file_byte(const Row& row, int byte) {
        if (byte < 2) return byte_of(static_cast<unsigned>(row.d(0)), byte);
        if (byte < 4) {
            unsigned high = 0;
            for (int i = 0; i < 8; ++i)
                high |= static_cast<unsigned>((row.signed_scale(i) + 32) >> 4 & 3) << (2 * i);
            return byte_of(high, byte - 2);
        }
        if (byte < 8) {
            const int i = 2 * (byte - 4);
            return ((row.signed_scale(i) + 32) & 15) | ((row.signed_scale(i + 1) + 32) & 15) << 4;
        }
        const int place = byte - 8;
        return nibble_byte([&](int input) { return row.code(input); }, place / 16 * 32, place % 16);
    }
};

template <>
struct PackedFormat<DType::kQ6_K> {
    using Low = NibblePlane;
    using High = TwoBitPlane;
    static constexpr int kFileBytes = 210;
    static constexpr int kScaleBytes = 16;  // signed, per 16
    static constexpr int kDCount = 1;
    static constexpr int kGroupInputs = 16;

    static constexpr int code(const std::uint8_t* blocks, int input) {
        const int half = input / 128;
        const int quarter = input % 128 / 32;
        const int lane = input % 32;
        const int low = blocks[64 * half + 32 * (quarter % 2) + lane] >> (quarter < 2 ? 0 : 4) & 15;
        const int high = blocks[128 + 32 * half + lane] >> (2 * quarter) & 3;
        return low | high << 4;
    }
    static constexpr int scale(const std::uint8_t* blocks, int i) { return blocks[192 + i]; }
    static constexpr int d(const std::uint8_t* blocks, int) {
        return blocks[208] | blocks[209] << 8;
    }
    template <class Row>
    static constexpr int file_byte(const Row& row, int byte) {
        if (byte < 128) {
            const int first = byte / 64 * 128 + byte % 64;  // quarters 0 and 1
            return (row.code(first) & 15) | (row.code(first + 64) & 15) << 4;
        }
        if (byte < 192) {
            const int first = (byte - 128) / 32 * 128 + byte % 32;
            int high = 0;
            for (int quarter = 0; quarter < 4; ++quarter)
                high |= (row.code(first + 32 * quarter) >> 4) << (2 * quarter);
            return high;
        }
        if (byte < 208) return row.scale(byte - 192);
        return byte_of(static_cast<unsigned>(row.d(0)), byte - 208);
    }
};

/// Q4_K and Q5_K: scales 0..7, then minima 0..7, all unsigned and below 64; d and dmin.
struct PackedK4 {
    static constexpr int kScaleBytes = 16;
    static constexpr int kDCount = 2;
    static constexpr int kGroupInputs = 32;

    static constexpr int scale(const std::uint8_t* blocks, int i) {
        const std::uint8_t* packed = blocks + 4;
        const bool is_min = i >= 8;
        const int j = i % 8;
        if (j < 4) return packed[is_min ? j + 4 : j] & 63;
        const int both = packed[j + 4];
        return is_min ? both >> 4 | packed[j] >> 6 << 4 : (both & 15) | packed[j - 4] >> 6 << 4;
    }
    static constexpr int d(const std::uint8_t* blocks, int i) {
        return blocks[2 * i] | blocks[2 * i + 1] << 8;
    }
    /// Bytes 0..15 of the block.
    template <class Row>
    static constexpr int head_byte(const Row& row, int byte) {
        if (byte < 4) return byte_of(static_cast<unsigned>(row.d(byte / 2)), byte % 2);
        const int j = (byte - 4) % 4;
        if (byte < 8) return row.scale(j) | row.scale(j + 4) >> 4 << 6;
        if (byte < 12) return row.scale(j + 8) | row.scale(j + 12) >> 4 << 6;
        return (row.scale(j + 4) & 15) | (row.scale(j + 12) & 15) << 4;
    }
    /// 64 inputs share 32 bytes: the lower 32 inputs in the low nibbles.
    static constexpr int low_code(const std::uint8_t* qs, int input) {
        return qs[input / 64 * 32 + input % 32] >> (input % 64 / 32 * 4) & 15;
    }
    template <class Row>
    static constexpr int low_byte(const Row& row, int byte) {
        const int first = byte / 32 * 64 + byte % 32;
        return (row.code(first) & 15) | (row.code(first + 32) & 15) << 4;
    }
};

template <>
struct PackedFormat<DType::kQ4_K> : PackedK4 {
    using Low = NibblePlane;
    using High = NoPlane;
    static constexpr int kFileBytes = 144;
    static constexpr int code(const std::uint8_t* blocks, int input) {
        return low_code(blocks + 16, input);
    }
    template <class Row>
    static constexpr int file_byte(const Row& row, int byte) {
        return byte < 16 ? head_byte(row, byte) : low_byte(row, byte - 16);
    }
};

template <>
struct PackedFormat<DType::kQ5_K> : PackedK4 {
    using Low = NibblePlane;
    using High = OneBitPlane;
    static constexpr int kFileBytes = 176;
    static constexpr int code(const std::uint8_t* blocks, int input) {
        const int high = blocks[16 + input % 32] >> (input / 32) & 1;
        return low_code(blocks + 48, input) | high << 4;
    }
    template <class Row>
    static constexpr int file_byte(const Row& row, int byte) {
        if (byte < 16) return head_byte(row, byte);
        if (byte >= 48) return low_byte(row, byte - 48);
        int high = 0;
        for (int sub = 0; sub < 8; ++sub)
            high |= (row.code(32 * sub + byte - 16) >> 4) << sub;
        return high;
    }
};

/// Formats of 32 values with a binary16 scale in front: eight of their blocks make a record's row.
template <class Plane, int kBlockBytes>
struct PackedBlocks32 {
    using Low = Plane;
    using High = NoPlane;
    static constexpr int kFileBytes = 8 * kBlockBytes;
    static constexpr int kScaleBytes = 16;  // binary16 d per 32
    static constexpr int kDCount = 0;
    static constexpr int kGroupInputs = 32;

    static constexpr int code(const std::uint8_t* blocks, int input) {
        const std::uint8_t* qs = blocks + input / 32 * kBlockBytes + 2;
        if constexpr (Plane::kBits == 8)
            return qs[input % 32];
        else
            return nibble_code(qs, input % 32);
    }
    static constexpr int scale(const std::uint8_t* blocks, int i) {
        return blocks[i / 2 * kBlockBytes + i % 2];
    }
    static constexpr int d(const std::uint8_t*, int) { return 0; }
    template <class Row>
    static constexpr int file_byte(const Row& row, int byte) {
        const int block = byte / kBlockBytes;
        const int place = byte % kBlockBytes;
        if (place < 2) return row.scale(2 * block + place);
        if constexpr (Plane::kBits == 8)
            return row.code(32 * block + place - 2);
        else
            return nibble_byte([&](int input) { return row.code(input); }, 32 * block, place - 2);
    }
};
template <>
struct PackedFormat<DType::kQ8_0> : PackedBlocks32<BytePlane, 34> {};
template <>
struct PackedFormat<DType::kQ4_0> : PackedBlocks32<NibblePlane, 18> {};
template <>
struct PackedFormat<DType::kIQ4_NL> : PackedBlocks32<NibblePlane, 18> {};

/// Calls `use` with the format of `dtype`; false when the type has no packed order.
template <class Use>
constexpr bool with_packed_format(DType dtype, Use&& use) {
    switch (dtype) {
        case DType::kIQ4_XS:
            use(PackedFormat<DType::kIQ4_XS>{});
            return true;
        case DType::kQ6_K:
            use(PackedFormat<DType::kQ6_K>{});
            return true;
        case DType::kQ4_K:
            use(PackedFormat<DType::kQ4_K>{});
            return true;
        case DType::kQ5_K:
            use(PackedFormat<DType::kQ5_K>{});
            return true;
        case DType::kQ8_0:
            use(PackedFormat<DType::kQ8_0>{});
            return true;
        case DType::kQ4_0:
            use(PackedFormat<DType::kQ4_0>{});
            return true;
        case DType::kIQ4_NL:
            use(PackedFormat<DType::kIQ4_NL>{});
            return true;
        default:
            return false;
    }
}

// ---------------------------------------------------------------------------------------------
// Where the planes of a record lie

template <class F>
struct RecordLayout {
    static constexpr int kHigh = F::Low::kBytes;
    static constexpr int kScales = kHigh + F::High::kBytes;
    static constexpr int kD = kScales + kTileRows * F::kScaleBytes;
    static constexpr int kBytes = kD + kTileRows * 2 * F::kDCount;
    static_assert(kBytes % 16 == 0, "records are read by 16 bytes");
    static constexpr int kRows = kTileRows;

    static constexpr BitPlace low_place(Cell cell) { return F::Low::place(cell); }
    static constexpr Cell low_cell(BitPlace place) { return F::Low::cell(place); }
    static constexpr BitPlace high_place(Cell cell) { return F::High::place(cell); }
    static constexpr Cell high_cell(BitPlace place) { return F::High::cell(place); }
    static constexpr int scale_byte(int row, int i) {
        return kScales + (row % 8 * 2 + row / 8) * F::kScaleBytes + i;
    }
    /// Whose scale the byte at kScales + `place` is.
    static constexpr RowPart scale_at(int place) {
        const int owner = place / F::kScaleBytes;
        return {owner / 2 + 8 * (owner % 2), place % F::kScaleBytes};
    }
    static constexpr int d_byte(int row, int i) {
        return kD + 2 * (row % 8 * 2 * F::kDCount + 2 * i + row / 8);
    }
    /// Whose d the binary16 number `half` behind kD is.
    static constexpr RowPart d_at(int half) {
        return {half / (2 * F::kDCount) + 8 * (half % 2), half % (2 * F::kDCount) / 2};
    }
};
static_assert(RecordLayout<PackedFormat<DType::kIQ4_XS>>::kBytes == 2208);
static_assert(RecordLayout<PackedFormat<DType::kQ4_K>>::kBytes == 2368);
static_assert(RecordLayout<PackedFormat<DType::kQ5_K>>::kBytes == 2880);
static_assert(RecordLayout<PackedFormat<DType::kQ6_K>>::kBytes == 3360);
static_assert(RecordLayout<PackedFormat<DType::kQ8_0>>::kBytes == 4352);
static_assert(RecordLayout<PackedFormat<DType::kQ4_0>>::kBytes == 2304);

/// One row of a record: what `file_byte` and embeddings read.
template <class F, class Layout = RecordLayout<F>>
struct PackedRow {
    const std::uint8_t* record;
    int row;

    constexpr int code(int input) const {
        const BitPlace low = Layout::low_place({row, input});
        int value = record[low.byte] >> low.shift & ((1 << F::Low::kBits) - 1);
        if constexpr (F::High::kBits > 0) {
            const BitPlace high = Layout::high_place({row, input});
            value |= (record[Layout::kHigh + high.byte] >> high.shift & ((1 << F::High::kBits) - 1))
                     << F::Low::kBits;
        }
        return value;
    }
    constexpr int scale(int i) const { return record[Layout::scale_byte(row, i)]; }
    constexpr int signed_scale(int i) const { return static_cast<std::int8_t>(scale(i)); }
    constexpr int d(int i) const {
        const int byte = Layout::d_byte(row, i);
        return record[byte] | record[byte + 1] << 8;
    }
    constexpr std::uint8_t file_byte(int byte) const {
        return static_cast<std::uint8_t>(F::file_byte(*this, byte));
    }
};

// ---------------------------------------------------------------------------------------------
// From the file's blocks

/// Rows in the file's order that become row tiles.
struct PackSource {
    const std::uint8_t* rows;  // [row_count] rows of row_bytes
    const std::uint8_t*
        partner;  // interleaved: a tile is 8 rows of `rows`, then 8 of these; or null
    std::int64_t row_bytes;
    std::int32_t row_count;  // of `rows`, and of `partner`
    std::int32_t k;

    /// File bytes of row `row` of tile `tile`, of `tile_rows`, at record `record`; null when there
    /// is no such row.
    template <class F, int tile_rows>
    constexpr const std::uint8_t* blocks(std::int64_t tile, int row, int record) const {
        const std::uint8_t* base = rows;
        std::int64_t index = tile * tile_rows + row;
        if (partner != nullptr) {
            base = row < tile_rows / 2 ? rows : partner;
            index = tile * (tile_rows / 2) + row % (tile_rows / 2);
        }
        if (index >= row_count) return nullptr;
        return base + index * row_bytes + std::int64_t{record} * F::kFileBytes;
    }
};

/// Byte `byte` of the record of 256 inputs `record` of row tile `tile`.
template <class F, class Layout = RecordLayout<F>>
constexpr std::uint8_t packed_byte(const PackSource& source, std::int64_t tile, int record,
                                   int byte) {
    const int inputs = source.k - record * kRecordInputs;  // that exist
    const auto blocks_of = [&](int row) {
        return source.blocks<F, Layout::kRows>(tile, row, record);
    };
    const auto code = [&](Cell cell) {
        const std::uint8_t* blocks = blocks_of(cell.row);
        return blocks != nullptr && cell.input < inputs ? F::code(blocks, cell.input) : 0;
    };
    int value = 0;
    if (byte < Layout::kHigh) {
        for (int shift = 0; shift < 8; shift += F::Low::kBits)
            value |= (code(Layout::low_cell({byte, shift})) & ((1 << F::Low::kBits) - 1)) << shift;
    } else if (byte < Layout::kScales) {
        if constexpr (F::High::kBits > 0)
            for (int shift = 0; shift < 8; shift += F::High::kBits)
                value |= (code(Layout::high_cell({byte - Layout::kHigh, shift})) >> F::Low::kBits)
                         << shift;
    } else if (byte < Layout::kD) {
        const RowPart part = Layout::scale_at(byte - Layout::kScales);
        const std::uint8_t* blocks = blocks_of(part.row);
        // Only formats of 32 values end before a record does; they have two bytes per 32 inputs.
        const bool exists = F::kDCount > 0 || part.i / 2 * 32 < inputs;
        value = blocks != nullptr && exists ? F::scale(blocks, part.i) & 255 : 0;
    } else {
        if constexpr (F::kDCount > 0) {
            const RowPart part = Layout::d_at((byte - Layout::kD) / 2);
            const std::uint8_t* blocks = blocks_of(part.row);
            if (blocks != nullptr) value = F::d(blocks, part.i) >> (8 * (byte % 2)) & 255;
        }
    }
    return static_cast<std::uint8_t>(value);
}

}  // namespace kernels::cuda
