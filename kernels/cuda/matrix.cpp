#include "kernels/cuda/matrix.h"

#include <limits>
#include <string>

#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/quant/format.h"

namespace kernels::cuda {
namespace {

/// Kernels count outputs and inputs in 32 bits.
constexpr std::int64_t kSideMax = std::numeric_limits<std::int32_t>::max() / 2;

std::string type_text(DType dtype) {
    const auto id = static_cast<std::uint32_t>(dtype);
    const Format* format = find_format(id);
    return "type " + (format != nullptr ? std::string(format->name) : std::to_string(id));
}

std::string shape_text(const MatrixSource& source) {
    return "shape " + std::to_string(source.n) + " x " + std::to_string(source.k);
}

std::optional<Refusal> check(const MatrixSource& source, std::int64_t k) {
    const std::string subject = std::string(source.name) + ": linear";
    if (linear_type_index(source.dtype) < 0)
        return Refusal{subject, type_text(source.dtype), "is not supported",
                       "re-quantise it to IQ4_XS"};
    if (source.n <= 0 || source.k <= 0)
        return Refusal{subject, shape_text(source), "has an empty side", "check the file"};
    if (source.n > kSideMax || source.k > kSideMax)
        return Refusal{subject, shape_text(source), "has a side above " + std::to_string(kSideMax),
                       "split it"};
    if (source.k != k)
        return Refusal{
            subject, shape_text(source),
            "differs in its inputs from the first segment, which has " + std::to_string(k),
            "pack it as a matrix of its own"};
    const Format& format = format_of(source.dtype);
    if (source.k % format.block_values != 0)
        return Refusal{subject, shape_text(source),
                       "is not a whole number of " + std::string(format.name) + " blocks of " +
                           std::to_string(format.block_values) + " inputs",
                       "re-quantise it to a type with smaller blocks, or to F16"};
    if (source.blocks == nullptr)
        return Refusal{subject, "address 0", "holds no weights", "check the file"};
    return std::nullopt;
}

}  // namespace

std::int64_t SegmentPlan::outputs() const {
    std::int64_t sum = 0;
    for (const MatrixSource& source : sources)
        sum += source.n;
    return sum;
}

std::vector<SegmentPlan> segment_plan(std::span<const MatrixSource> sources,
                                      const std::function<bool(const MatrixSource&)>& can_pack,
                                      WeightOrder order) {
    if (order == WeightOrder::kTiles && sources.size() == 2 &&
        sources[0].dtype == sources[1].dtype && sources[0].n == sources[1].n &&
        sources[0].n % (kTileRows / 2) == 0 && can_pack(sources[0]))
        return {{{sources[0], sources[1]}, true, true, order}};
    std::vector<SegmentPlan> plans;
    for (const MatrixSource& source : sources) {
        const bool is_packed = can_pack(source);
        const bool continues = is_packed && !plans.empty() && plans.back().is_packed &&
                               plans.back().sources.front().dtype == source.dtype &&
                               plans.back().outputs() % tile_rows(order) == 0;
        if (continues)
            plans.back().sources.push_back(source);
        else
            plans.push_back({{source}, is_packed, false, order});
    }
    return plans;
}

std::uint64_t device_bytes(std::span<const SegmentPlan> plans) {
    constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;
    std::int64_t bytes = 0;
    for (const SegmentPlan& plan : plans) {
        const DType dtype = plan.sources.front().dtype;
        const std::int64_t k = plan.sources.front().k;
        const std::int64_t own = plan.is_packed ? packed_bytes(dtype, plan.outputs(), k, plan.order)
                                                : plan.outputs() * row_bytes(dtype, k);
        bytes += (own + kPageBytes - 1) / kPageBytes * kPageBytes;
    }
    return static_cast<std::uint64_t>(bytes);
}

std::optional<Refusal> check_sources(std::span<const MatrixSource> sources) {
    if (sources.empty() || sources.size() > kSegmentsMax)
        return Refusal{sources.empty() ? "linear" : std::string(sources[0].name) + ": linear",
                       std::to_string(sources.size()) + " segments", "is not between 1 and 4",
                       "pack it as several matrices"};
    for (const MatrixSource& source : sources)
        if (std::optional<Refusal> refusal = check(source, sources[0].k)) return refusal;
    return std::nullopt;
}

}  // namespace kernels::cuda
