// The packed order of weights for sm_70, where a lane owns a row.
//
// A record holds 32 rows x 256 inputs, records of a row tile follow each other along K, tiles
// follow each other. Its planes are those of packed.h, cut into stretches of 128 inputs, so that a
// warp that takes a stretch reads whole lines:
//
//     [ codes: 8 slabs of 32 inputs ][ high bits ][ scales ][ d, dmin as binary16 ]
//
// A slab of nibbles is 16 bytes of each lane, as in the file's blocks: byte j holds input j in the
// low nibble and input 16 + j in the high one; of whole bytes it is twice 16. So a word gives four
// inputs in a row at a time: an operand of dp4a, and, as binary16, what mma.m8n8k4 wants of a
// lane's row. Fifth bits are a word per lane and slab: bit 8 j + w is of input 4 w + j, so that a
// shift brings four of them above the four low nibbles of a word; fifth and sixth bits are two
// words of the same kind.
//
// What a format is made of comes from PackedFormat (packed.h); rows and inputs that do not exist
// are zeros with zero scales. Nothing is interleaved.
#pragma once

#include "kernels/cuda/packed.h"

namespace kernels::cuda {

inline constexpr int kLaneRows = 32;
inline constexpr int kLaneSlabInputs = 32;
inline constexpr int kStretchInputs = 128;
inline constexpr int kStretchSlabs = kStretchInputs / kLaneSlabInputs;
inline constexpr int kRecordStretches = kRecordInputs / kStretchInputs;

template <class F>
struct LaneLayout {
    static constexpr int kRows = kLaneRows;
    static constexpr int kSlabBytes = kLaneRows * kLaneSlabInputs * F::Low::kBits / 8;
    static constexpr int kHigh = kRecordInputs / kLaneSlabInputs * kSlabBytes;
    static constexpr int kScales = kHigh + kLaneRows * kRecordInputs * F::High::kBits / 8;
    static constexpr int kD = kScales + kLaneRows * F::kScaleBytes;
    static constexpr int kBytes = kD + kLaneRows * 2 * F::kDCount;
    static constexpr int kStretchScaleBytes = F::kScaleBytes / kRecordStretches;  // of a row
    static constexpr int kHighStretchBytes = kLaneRows * kStretchInputs * F::High::kBits / 8;
    static_assert(kBytes % 16 == 0, "records are read by 16 bytes");

    static constexpr BitPlace low_place(Cell cell) {
        const int in_slab = cell.input % kLaneSlabInputs;
        const int slab = cell.input / kLaneSlabInputs * kSlabBytes;
        const int in_lane = 16 * cell.row + in_slab % 16;
        if constexpr (F::Low::kBits == 8)
            return {slab + in_slab / 16 * 16 * kLaneRows + in_lane, 0};
        else
            return {slab + in_lane, in_slab / 16 * 4};
    }
    static constexpr Cell low_cell(BitPlace place) {
        const int first = place.byte / kSlabBytes * kLaneSlabInputs;
        const int in_slab = place.byte % kSlabBytes;
        const int upper = F::Low::kBits == 8 ? in_slab / (16 * kLaneRows) : place.shift / 4;
        return {in_slab % (16 * kLaneRows) / 16, first + 16 * upper + in_slab % 16};
    }

    /// A lane's 16 bytes of this plane are `kSlabs` slabs.
    static constexpr int kHighSlabs = F::High::kBits == 2 ? 2 : 4;
    static constexpr BitPlace high_place(Cell cell) {
        const int slab = cell.input / kLaneSlabInputs;
        const int word = cell.input % kLaneSlabInputs / 4;  // of four inputs
        const int first = slab / kHighSlabs * 16 * kLaneRows + 16 * cell.row;
        if constexpr (F::High::kBits == 2)
            return {first + 8 * (slab % 2) + 4 * (word / 4) + cell.input % 4, 2 * (word % 4)};
        else
            return {first + 4 * (slab % 4) + cell.input % 4, word};
    }
    static constexpr Cell high_cell(BitPlace place) {
        const int row = place.byte % (16 * kLaneRows) / 16;
        const int in_lane = place.byte % 16;
        const int first = place.byte / (16 * kLaneRows) * kHighSlabs;
        const int slab = first + in_lane / (16 / kHighSlabs);
        const int word = F::High::kBits == 2 ? in_lane % 8 / 4 * 4 + place.shift / 2 : place.shift;
        return {row, slab * kLaneSlabInputs + 4 * word + in_lane % 4};
    }

    /// Scales and minima of a stretch follow each other: both are in each half of the plane.
    static constexpr int scale_byte(int row, int i) {
        constexpr int kKinds = F::kDCount == 2 ? 2 : 1;
        constexpr int kPerStretch = kStretchScaleBytes / kKinds;
        const int of_kind = i % (F::kScaleBytes / kKinds);
        const int place = of_kind % kPerStretch + i / (F::kScaleBytes / kKinds) * kPerStretch;
        return kScales + of_kind / kPerStretch * kLaneRows * kStretchScaleBytes +
               row * kStretchScaleBytes + place;
    }
    static constexpr RowPart scale_at(int place) {
        constexpr int kKinds = F::kDCount == 2 ? 2 : 1;
        constexpr int kPerStretch = kStretchScaleBytes / kKinds;
        const int stretch = place / (kLaneRows * kStretchScaleBytes);
        const int in_row = place % kStretchScaleBytes;
        return {place % (kLaneRows * kStretchScaleBytes) / kStretchScaleBytes,
                stretch * kPerStretch + in_row % kPerStretch +
                    in_row / kPerStretch * (F::kScaleBytes / kKinds)};
    }

    static constexpr int d_byte(int row, int i) { return kD + 2 * (row * F::kDCount + i); }
    static constexpr RowPart d_at(int half) { return {half / F::kDCount, half % F::kDCount}; }
};
static_assert(LaneLayout<PackedFormat<DType::kIQ4_XS>>::kBytes == 4416);
static_assert(LaneLayout<PackedFormat<DType::kQ4_K>>::kBytes == 4736);
static_assert(LaneLayout<PackedFormat<DType::kQ5_K>>::kBytes == 5760);
static_assert(LaneLayout<PackedFormat<DType::kQ6_K>>::kBytes == 6720);
static_assert(LaneLayout<PackedFormat<DType::kQ8_0>>::kBytes == 8704);
static_assert(LaneLayout<PackedFormat<DType::kQ4_0>>::kBytes == 4608);

/// Which of the two orders packed weights have.
enum class WeightOrder : std::int32_t {
    kTiles,  // packed.h, sm_90
    kLanes   // sm_70
};

}  // namespace kernels::cuda
