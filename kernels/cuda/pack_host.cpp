#include "kernels/cuda/pack_host.h"

#include <cassert>
#include <cstddef>

#include "kernels/quant/format.h"

namespace kernels::cuda {
namespace {

/// A tile holds rows of one source, or as many of each of two.
std::int64_t tiles_of(const PackSource& source, WeightOrder order) {
    return tile_count(
        source.partner != nullptr ? 2 * std::int64_t{source.row_count} : source.row_count, order);
}

/// Calls `use` with the type's format and its layout in the order.
template <class Use>
bool with_layout(DType dtype, WeightOrder order, const Use& use) {
    return with_packed_format(dtype, [&](auto format) {
        using F = decltype(format);
        if (order == WeightOrder::kLanes)
            use(format, LaneLayout<F>{});
        else
            use(format, RecordLayout<F>{});
    });
}

}  // namespace

bool is_packable(DType dtype, std::int64_t k) {
    const bool has_order = with_packed_format(dtype, [](auto) {});
    return has_order && k > 0 && k % format_of(dtype).block_values == 0;
}

std::int64_t record_bytes(DType dtype, WeightOrder order) {
    std::int64_t bytes = 0;
    with_layout(dtype, order, [&](auto, auto layout) { bytes = decltype(layout)::kBytes; });
    return bytes;
}

std::int64_t record_count(std::int64_t k) {
    return (k + kRecordInputs - 1) / kRecordInputs;
}

std::int64_t tile_rows(WeightOrder order) {
    return order == WeightOrder::kLanes ? kLaneRows : kTileRows;
}

std::int64_t tile_count(std::int64_t rows, WeightOrder order) {
    return (rows + tile_rows(order) - 1) / tile_rows(order);
}

std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t k, WeightOrder order) {
    return tile_count(rows, order) * record_count(k) * record_bytes(dtype, order);
}

std::vector<std::uint8_t> pack_on_host(DType dtype, const PackSource& source, WeightOrder order) {
    std::vector<std::uint8_t> packed;
    const bool known = with_layout(dtype, order, [&](auto format, auto layout) {
        using F = decltype(format);
        using Layout = decltype(layout);
        const std::int64_t records = record_count(source.k);
        for (std::int64_t tile = 0; tile < tiles_of(source, order); ++tile)
            for (int record = 0; record < records; ++record)
                for (int byte = 0; byte < Layout::kBytes; ++byte)
                    packed.push_back(packed_byte<F, Layout>(source, tile, record, byte));
    });
    assert(known && "only types with a packed order");
    return packed;
}

std::vector<std::uint8_t> unpack_on_host(DType dtype, const PackSource& shape,
                                         const std::vector<std::uint8_t>& packed,
                                         WeightOrder order) {
    std::vector<std::uint8_t> rows;
    const bool known = with_layout(dtype, order, [&](auto format, auto layout) {
        using F = decltype(format);
        using Layout = decltype(layout);
        constexpr int kRows = Layout::kRows;
        const std::int64_t records = record_count(shape.k);
        const bool is_pair = shape.partner != nullptr;
        const std::int64_t row_count = (is_pair ? 2 : 1) * std::int64_t{shape.row_count};
        for (std::int64_t index = 0; index < row_count; ++index) {
            std::int64_t tile = index / kRows;
            auto row = static_cast<int>(index % kRows);
            if (is_pair) {
                const std::int64_t own = index % shape.row_count;
                tile = own / (kRows / 2);
                row =
                    static_cast<int>(own % (kRows / 2)) + (index < shape.row_count ? 0 : kRows / 2);
            }
            for (std::int64_t byte = 0; byte < shape.row_bytes; ++byte) {
                const std::int64_t record = tile * records + byte / F::kFileBytes;
                const PackedRow<F, Layout> packed_row{
                    packed.data() + static_cast<std::ptrdiff_t>(record * Layout::kBytes), row};
                rows.push_back(packed_row.file_byte(static_cast<int>(byte % F::kFileBytes)));
            }
        }
    });
    assert(known && "only types with a packed order");
    return rows;
}

}  // namespace kernels::cuda
