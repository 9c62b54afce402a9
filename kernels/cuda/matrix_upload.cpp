#include "kernels/cuda/matrix_upload.h"

#include <algorithm>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/quant/format.h"

namespace kernels::cuda {

Matrix MatrixUpload::run(std::span<const SegmentPlan> plans) {
    Matrix matrix;
    matrix.k = plans.front().sources.front().k;
    reserve_slice(plans);
    for (const SegmentPlan& plan : plans) {
        const DType dtype = plan.sources.front().dtype;
        const std::int64_t file_row_bytes = row_bytes(dtype, matrix.k);
        const std::int64_t outputs = plan.outputs();
        matrix.segments[static_cast<std::size_t>(matrix.segment_count++)] = {
            .blocks = plan.is_packed ? upload_packed(plan, file_row_bytes)
                                     : upload_plain(plan, file_row_bytes),
            .row_bytes = file_row_bytes,
            .first = static_cast<std::int32_t>(matrix.n),
            .outputs = static_cast<std::int32_t>(outputs),
            .dtype = static_cast<std::int32_t>(dtype),
            .is_packed = plan.is_packed,
            .is_interleaved = plan.is_interleaved,
            .has_lanes = plan.is_packed && plan.order == WeightOrder::kLanes};
        matrix.n += outputs;
    }
    return matrix;
}

void MatrixUpload::reserve_slice(std::span<const SegmentPlan> plans) {
    std::int64_t bytes = 0;
    for (const SegmentPlan& plan : plans)
        if (plan.is_packed)
            bytes =
                std::max(kSliceBytes, tile_rows(plan.order) * row_bytes(plan.sources.front().dtype,
                                                                        plan.sources.front().k));
    if (slice_bytes_ >= bytes) return;
    // The old slice may still be read.
    check_cuda(driver_, driver_.stream_synchronize(stream_), "upload of weights");
    slice_bytes_ = bytes;
    slice_ = make_device_buffer(driver_, static_cast<std::size_t>(bytes));
}

void MatrixUpload::copy(DeviceAddress to, const MatrixSource& source, std::int64_t first_row,
                        std::int64_t rows, std::int64_t row_bytes) {
    std::span<const std::byte> rest(
        static_cast<const std::byte*>(source.blocks) + first_row * row_bytes,
        static_cast<std::size_t>(rows * row_bytes));
    while (!rest.empty()) {
        const auto part = rest.first(std::min(rest.size(), Staging::kPartBytes));
        staging_.send(to, part);
        if (on_bytes_) on_bytes_(part.size());
        to += part.size();
        rest = rest.subspan(part.size());
    }
}

const std::uint8_t* MatrixUpload::upload_plain(const SegmentPlan& plan, std::int64_t row_bytes) {
    const MatrixSource& source = plan.sources.front();  // plain segments have one
    const DeviceAddress address = arena_.take(static_cast<std::size_t>(source.n * row_bytes));
    copy(address, source, 0, source.n, row_bytes);
    return reinterpret_cast<const std::uint8_t*>(address);
}

const std::uint8_t* MatrixUpload::upload_packed(const SegmentPlan& plan, std::int64_t row_bytes) {
    const DType dtype = plan.sources.front().dtype;
    const std::int64_t k = plan.sources.front().k;
    const std::int64_t bytes = packed_bytes(dtype, plan.outputs(), k, plan.order);
    const DeviceAddress packed = arena_.take(static_cast<std::size_t>(bytes));
    if (plan.is_interleaved) {
        pack_slices(plan.sources[0], &plan.sources[1], plan.order, row_bytes, packed);
    } else {
        DeviceAddress to = packed;  // all but the last source end with a whole tile
        for (const MatrixSource& source : plan.sources) {
            pack_slices(source, nullptr, plan.order, row_bytes, to);
            to += static_cast<DeviceAddress>(packed_bytes(dtype, source.n, k, plan.order));
        }
    }
    return reinterpret_cast<const std::uint8_t*>(packed);
}

void MatrixUpload::pack_slices(const MatrixSource& source, const MatrixSource* partner,
                               WeightOrder order, std::int64_t row_bytes, DeviceAddress packed) {
    const std::int64_t rows_per_tile = tile_rows(order) / (partner != nullptr ? 2 : 1);
    const std::int64_t tile_bytes = tile_rows(order) * row_bytes;  // in the file
    const std::int64_t slice_tiles = slice_bytes_ / tile_bytes;
    const DeviceAddress partner_slice = slice_.get() + static_cast<DeviceAddress>(slice_bytes_ / 2);
    const std::int64_t records = record_count(source.k);
    for (std::int64_t row = 0; row < source.n; row += slice_tiles * rows_per_tile) {
        const std::int64_t rows = std::min(slice_tiles * rows_per_tile, source.n - row);
        copy(slice_.get(), source, row, rows, row_bytes);
        if (partner != nullptr) copy(partner_slice, *partner, row, rows, row_bytes);
        PackParams p{};
        p.rows = reinterpret_cast<const std::uint8_t*>(slice_.get());
        if (partner != nullptr) p.partner = reinterpret_cast<const std::uint8_t*>(partner_slice);
        p.row_bytes = row_bytes;
        p.row_count = static_cast<std::int32_t>(rows);
        p.k = static_cast<std::int32_t>(source.k);
        p.tiles = (rows + rows_per_tile - 1) / rows_per_tile;
        p.k_records = static_cast<std::int32_t>(records);
        p.packed = reinterpret_cast<std::uint8_t*>(packed);
        launch_pack(kernels_, stream_, source.dtype, order, p);
        packed += static_cast<DeviceAddress>(p.tiles * records * record_bytes(source.dtype, order));
    }
}

}  // namespace kernels::cuda
