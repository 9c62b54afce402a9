#include "tests/perf/kernel_gate_pair.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/quant/format.h"

namespace kernels::gate {
namespace {

constexpr std::int64_t kPoolFloats = std::int64_t{320} << 20;  // a prefill of 8192 rows needs most

std::size_t bytes_of(const TensorView& view) {
    const std::size_t width = view.dtype == DType::kF16 ? 2 : 4;
    return static_cast<std::size_t>(view.shape[0] * view.row_elements()) * width;
}

}  // namespace

bool Rows::guards_are_intact() const {
    const std::int64_t stride = columns_ + guard_;
    for (std::size_t i = 0; i < values_.size(); ++i) {
        const auto place = static_cast<std::int64_t>(i);
        const bool is_guard = place < guard_ || (place - guard_) % stride >= columns_;
        if (is_guard && values_[i] != kPattern) return false;
    }
    return true;
}

TensorView Rows::view() {
    TensorView view{.data = values_.data() + guard_, .dtype = DType::kF32, .rank = 2};
    view.shape = {rows_, columns_, 0, 0};
    view.row_stride = columns_ + guard_;
    return view;
}

TensorView host_view(DType dtype, std::initializer_list<std::int64_t> shape, void* data) {
    TensorView view{.data = data, .dtype = dtype, .rank = static_cast<int>(shape.size())};
    std::size_t i = 0;
    for (const std::int64_t side : shape)
        view.shape[i++] = side;
    view.row_stride = view.row_elements();
    return view;
}

Pair::Pair(std::unique_ptr<CudaBackend> cuda, int threads)
    : cuda_(std::move(cuda)),
      cpu_(make_cpu_backend(
          {.threads = threads, .cores = {}, .accumulator = CpuAccumulator::kDouble})) {
    const auto has = [&](const char* name) {
        return std::ranges::any_of(cuda_->armed_kernels(), [&](const KernelEntry& entry) {
            return entry.name == name && entry.state == KernelState::kArmed;
        });
    };
    has_lanes_ = has("matmul_dp4a");
    if (has_lanes_)
        few_rows_ = has("matmul_hmma") ? cuda::kDp4aFewColumns : std::numeric_limits<int>::max();
    const std::int64_t shape[] = {kPoolFloats};
    pool_ = cuda_->allocate(DType::kF32, shape);
    pool_bytes_ = static_cast<std::size_t>(kPoolFloats) * sizeof(float);
}

Pair::Matrices Pair::pack(std::span<const MatrixSource> sources) {
    Matrices matrices;
    if (const auto refusal = cpu_->pack(sources, matrices.cpu))
        throw std::runtime_error(refusal->text());
    matrices.cuda = pack_cuda(sources);
    return matrices;
}

MatrixView Pair::pack_cuda(std::span<const MatrixSource> sources) {
    MatrixView matrix;
    if (const auto refusal = cuda_->pack(sources, matrix))
        throw std::runtime_error(refusal->text());
    return matrix;
}

void Pair::prepare(const StepLimits& limits) {
    for (Backend* backend : {cpu_.get(), static_cast<Backend*>(cuda_.get())})
        if (const auto refusal = backend->prepare(limits))
            throw std::runtime_error(refusal->text());
}

double Pair::product_limit(DType dtype) const {
    return product_limit(dtype, 1);
}

double Pair::product_limit(DType dtype, int rows) const {
    constexpr double kPlain = 1e-5;
    constexpr double kBinary16 = 1e-3;
    constexpr double kInt8 = 1e-2;
    const std::vector<KernelEntry> entries = cuda_->armed_kernels();
    const auto is_armed = [&](const char* name) {
        return std::ranges::any_of(entries, [&](const KernelEntry& entry) {
            return entry.name == name && entry.state == KernelState::kArmed &&
                   entry.variant == name_of(dtype);
        });
    };
    if (is_armed("matmul_dp4a")) return rows <= few_rows() ? kInt8 : kBinary16;
    return is_armed("matmul_mma") ? kBinary16 : kPlain;
}

std::byte* Pair::take(std::size_t bytes) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t begin = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ > pool_bytes_) throw std::runtime_error("a case is larger than the gate's pool");
    return static_cast<std::byte*>(pool_.data) + begin;
}

TensorView Pair::place(Rows& rows) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(rows.raw()));
    TensorView view = rows.view();
    TensorView whole;
    whole.data = take(bytes.size());
    cuda_->write(whole, bytes, 0);
    view.data = static_cast<float*>(whole.data) + rows.guard();
    return view;
}

TensorView Pair::place(const TensorView& contiguous) {
    TensorView view = contiguous;
    const std::size_t bytes = bytes_of(contiguous);
    view.data = take(bytes);
    cuda_->write(view, {static_cast<const std::byte*>(contiguous.data), bytes}, 0);
    return view;
}

void Pair::fetch(Rows& rows, const TensorView& device) {
    TensorView whole = device;
    whole.data = static_cast<float*>(device.data) - rows.guard();
    cuda_->read(whole, std::as_writable_bytes(std::span(rows.raw())), 0);
}

void Pair::fetch(const TensorView& contiguous_host, const TensorView& device) {
    cuda_->read(device, {static_cast<std::byte*>(contiguous_host.data), bytes_of(contiguous_host)},
                0);
}

}  // namespace kernels::gate
