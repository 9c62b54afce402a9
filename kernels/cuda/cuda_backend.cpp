#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/delta_net.h"
#include "kernels/cuda/graph_timer.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/matrix_upload.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/cuda/prefill_plan.h"
#include "kernels/cuda/prefill_table.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/cuda/step_timeline.h"
#include "kernels/cuda/step_trace.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/sampling.h"

namespace kernels {
namespace {

using cuda::check_cuda;

constexpr std::int64_t kInputAlign = 64;  // of a scratch row, in floats

std::int64_t element_bytes(DType dtype) {
    switch (dtype) {
        case DType::kF32:
        case DType::kI32:
            return 4;
        case DType::kF16:
        case DType::kBF16:
            return 2;
        default:
            assert(false && "tensors of blocks are packed, not allocated");
            return 0;
    }
}

cuda::DeviceAddress address_of(const void* pointer) {
    return reinterpret_cast<cuda::DeviceAddress>(pointer);
}
cuda::DeviceAddress address_of(const TensorView& view, std::size_t offset_bytes = 0) {
    return reinterpret_cast<cuda::DeviceAddress>(view.data) + offset_bytes;
}

class CudaBackendImpl final : public CudaBackend {
public:
    CudaBackendImpl(const cuda::Driver& driver, const cuda::DeviceFacts& facts,
                    const CudaBackendOptions& options)
        : driver_(driver),
          facts_(facts),
          context_(driver_, facts_.device),
          kernels_(driver_),
          registry_(kernels_, facts.shared_bytes_max, options.disabled_kernels),
          attention_registry_(kernels_, facts.shared_bytes_max, options.disabled_kernels),
          delta_net_(options.disabled_kernels),
          stream_(cuda::make_stream(driver_)),
          arena_(driver_),
          staging_(driver_, stream_.get()),
          matrix_upload_(driver_, kernels_, arena_, staging_, stream_.get()),
          graphs_(driver_, kernels_),
          trace_(driver_) {
        sink_ = reinterpret_cast<unsigned*>(arena_.take(sizeof(unsigned)));
        op_.kernels = &kernels_;
        op_.stream = stream_.get();
        op_.step = &step_;
        op_.delta_net = &delta_net_;
        op_.prefill = &prefill_;
        open_cublaslt(options);
    }
    ~CudaBackendImpl() override;

    DeviceInfo device() const override;
    std::vector<KernelEntry> armed_kernels() const override;
    std::uint64_t packed_bytes(std::span<const MatrixSource> sources) const override;
    std::uint64_t load_bytes() const override { return cuda::MatrixUpload::kSliceBytes; }
    void watch_loading(std::function<void(std::uint64_t bytes)> on_bytes) override {
        matrix_upload_.watch(std::move(on_bytes));
    }
    TensorView allocate(DType dtype, std::span<const std::int64_t> shape) override;
    TensorView upload_f32(std::span<const float> values,
                          std::span<const std::int64_t> shape) override;
    std::optional<Refusal> pack(std::span<const MatrixSource> sources, MatrixView& out) override;
    std::optional<Refusal> prepare(const StepLimits& limits) override;

    void copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to) override;
    void read_item(const TensorView& tensor, std::int64_t index, std::span<std::byte> to) override;
    void write_item(const TensorView& tensor, std::int64_t index,
                    std::span<const std::byte> from) override;

    void begin_step(const StepDescriptor& step) override;
    void embed(const EmbedArgs& args) override;
    void linear(const LinearArgs& args) override;
    void delta_net(const DeltaNetArgs& args) override;
    void attention(const AttentionArgs& args) override;
    void head(const HeadArgs& args) override;
    void mtp_join(const MtpJoinArgs& args) override;
    void sample(const SampleArgs& args) override;
    const StepOutputs& finish_step() override;

    void write(const TensorView& to, std::span<const std::byte> bytes,
               std::size_t offset_bytes) override;
    void read(const TensorView& from, std::span<std::byte> bytes,
              std::size_t offset_bytes) override;
    std::vector<CudaKernelReport> kernels() const override;
    void set_tracing(bool is_tracing) override {
        assert(!in_step_);
        kernels_.set_trace(is_tracing ? &trace_ : nullptr);
        is_tracing_ = is_tracing;
    }
    std::span<const CudaTracedLaunch> last_trace() const override { return traced_; }
    std::vector<double> time_graph(const std::function<void()>& enqueue, int warmups,
                                   int repeats) override;
    void time_next_step(int repeats) override { timeline_repeats_ = repeats; }
    std::vector<CudaLaunchTime> step_times() const override { return step_times_; }
    void read_stream(const TensorView& from, std::int64_t bytes) override;
    void set_prefill_rows_min(std::int64_t rows) override { prefill_.rows_min = rows; }
    std::uint64_t prefill_numerics(const LinearArgs& args, std::int64_t rows) const override;
    std::int64_t prefill_bytes() const override { return prefill_.bytes; }
    std::int64_t dequantise(const MatrixView& view) override {
        return cuda::dequantise_slice(op_, matrix(view));
    }
    void multiply_scratch(std::int64_t n, std::int64_t k, std::int64_t rows) override {
        cuda::multiply_scratch(op_, n, k, rows);
    }

private:
    TensorView make_view(DType dtype, std::span<const std::int64_t> shape, std::size_t& bytes);
    const cuda::Matrix& matrix(const MatrixView& view) const {
        assert(view.id >= 0 && static_cast<std::size_t>(view.id) < matrices_.size());
        return matrices_[static_cast<std::size_t>(view.id)];
    }
    void find_units(cuda::Matrix& matrix);
    std::vector<cuda::SegmentPlan> segments(std::span<const MatrixSource> sources) const;
    void reserve_matmul(std::int64_t inputs_max);
    void reserve_attention();
    void open_cublaslt(const CudaBackendOptions& options);
    void reserve_prefill(std::int64_t rows);
    void scale_weights();
    void norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& y,
              const std::int32_t* row_map = nullptr);
    void fetch_logits(const TensorView& logits);
    void draw();
    void run_launches();
    void synchronize(const char* what) {
        check_cuda(driver_, driver_.stream_synchronize(stream_.get()), what);
    }

    // In order of need: what comes later uses what comes before.
    cuda::Driver driver_;
    cuda::DeviceFacts facts_;
    cuda::Context context_;
    cuda::KernelSet kernels_;
    cuda::MatmulRegistry registry_;
    cuda::AttentionRegistry attention_registry_;
    cuda::DeltaNetRegistry delta_net_;
    cuda::Stream stream_;
    cuda::Arena arena_;
    cuda::Staging staging_;
    cuda::MatrixUpload matrix_upload_;
    cuda::StepGraphs graphs_;
    cuda::LaunchList launches_;  // of the step
    cuda::StepTrace trace_;
    bool is_tracing_ = false;
    std::vector<CudaTracedLaunch> traced_;
    int timeline_repeats_ = 0;  // of the next step; 0 = its launches are not timed
    std::vector<CudaLaunchTime> step_times_;
    std::vector<cuda::Matrix> matrices_;
    unsigned* sink_ = nullptr;
    std::unique_ptr<cuda::LtProducts> products_;
    KernelEntry cublaslt_{
        .name = "matmul_cublaslt", .variant = "prefill", .reason = {}, .fallback = "matmul_mma"};
    cuda::PrefillScratch prefill_;

    bool is_prepared_ = false;
    StepLimits limits_;
    cuda::StepUpload upload_;
    cuda::PinnedBuffer host_logits_;  // [logit_rows, vocabulary]
    SampleScratch sampling_;

    StepDescriptor step_;
    cuda::OpContext op_;
    bool in_step_ = false;
    TensorView fetched_logits_;  // on the device; empty = nobody wants them
    std::int32_t vocabulary_used_ = 0;
    bool draws_ = false;
    std::vector<std::int32_t> sampled_;
    std::vector<std::uint8_t> error_;
    std::vector<RowLogprobs> logprobs_;
    StepOutputs outputs_;
};

CudaBackendImpl::~CudaBackendImpl() {
    // Whatever thread this is: the members below release handles of this context.
    try {
        context_.make_current();
    } catch (const std::exception&) {
        return;  // the device is lost; each release says so
    }
    cuda::log_if_failed(driver_, driver_.stream_synchronize(stream_.get()), "last synchronise");
}

// ---------------------------------------------------------------------------------------------
// Load

DeviceInfo CudaBackendImpl::device() const {
    context_.make_current();
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(driver_, driver_.memory_info(&free, &total), "cuMemGetInfo");
    return {.name = "cuda (" + facts_.name + ", " + std::to_string(facts_.multiprocessors) +
                    " multiprocessors)",
            .memory_bytes_free = free,
            .uuid = facts_.uuid};
}

std::vector<KernelEntry> CudaBackendImpl::armed_kernels() const {
    std::vector<KernelEntry> entries = registry_.entries(kernels_);
    for (KernelEntry& entry : attention_registry_.entries(kernels_))
        entries.push_back(std::move(entry));
    for (KernelEntry& entry : delta_net_.entries(kernels_))
        entries.push_back(std::move(entry));
    entries.push_back(cublaslt_);
    if (products_ != nullptr) entries.back().runs = products_->runs();
    entries.back().fallback_runs = prefill_.skipped;
    return entries;
}

TensorView CudaBackendImpl::make_view(DType dtype, std::span<const std::int64_t> shape,
                                      std::size_t& bytes) {
    assert(!shape.empty() && shape.size() <= 4);
    TensorView view{.dtype = dtype, .rank = static_cast<int>(shape.size())};
    std::int64_t total = element_bytes(dtype);
    for (std::size_t i = 0; i < shape.size(); ++i) {
        assert(shape[i] >= 0);
        view.shape[i] = shape[i];
        if (__builtin_mul_overflow(total, shape[i], &total)) throw std::bad_alloc();
    }
    view.row_stride = view.row_elements();
    bytes = static_cast<std::size_t>(total);
    try {
        view.data = reinterpret_cast<void*>(arena_.take(bytes));
    } catch (const cuda::CudaError& error) {
        if (error.status != cuda::kOutOfMemory) throw;
        throw OutOfDeviceMemory("a tensor of " + std::to_string(bytes >> 20) +
                                " MiB: " + error.what());
    }
    return view;
}

TensorView CudaBackendImpl::allocate(DType dtype, std::span<const std::int64_t> shape) {
    context_.make_current();
    std::size_t bytes = 0;
    const TensorView view = make_view(dtype, shape, bytes);
    if (bytes > 0)
        check_cuda(driver_, driver_.fill_bytes(address_of(view), 0, bytes, stream_.get()),
                   "zeroing of a tensor");
    return view;
}

TensorView CudaBackendImpl::upload_f32(std::span<const float> values,
                                       std::span<const std::int64_t> shape) {
    context_.make_current();
    std::size_t bytes = 0;
    const TensorView view = make_view(DType::kF32, shape, bytes);
    assert(values.size_bytes() == bytes);
    write(view, std::as_bytes(values), 0);
    return view;
}

std::optional<Refusal> CudaBackendImpl::pack(std::span<const MatrixSource> sources,
                                             MatrixView& out) {
    assert(!is_prepared_ && "pack comes before prepare");
    context_.make_current();
    if (std::optional<Refusal> refusal = cuda::check_sources(sources)) return refusal;
    cuda::Matrix matrix;
    try {
        matrix = matrix_upload_.run(segments(sources));
        find_units(matrix);
    } catch (const cuda::CudaError& error) {
        if (error.status != cuda::kOutOfMemory) throw;
        return Refusal{std::string(sources[0].name) + ": linear", error.what(),
                       "leaves no room for its weights", "free device memory or use a larger card",
                       RefusalKind::kMemory};
    }
    for (const MatrixSource& source : sources)
        registry_.want(source.dtype);
    out = {.id = static_cast<std::int32_t>(matrices_.size()), .n = matrix.n, .k = matrix.k};
    matrices_.push_back(matrix);
    return std::nullopt;
}

std::uint64_t CudaBackendImpl::packed_bytes(std::span<const MatrixSource> sources) const {
    return cuda::check_sources(sources) ? 0 : cuda::device_bytes(segments(sources));
}

std::vector<cuda::SegmentPlan> CudaBackendImpl::segments(
    std::span<const MatrixSource> sources) const {
    const auto can_pack = [&](const MatrixSource& source) {
        return registry_.is_armed(source.dtype) &&
               cuda::matmul_plan({.dtype = source.dtype,
                                  .step_rows = cuda::kMatmulColumnsMax,
                                  .rows = cuda::kMatmulColumnsMax,
                                  .tiles = cuda::tile_count(source.n),
                                  .k = source.k,
                                  .multiprocessors = facts_.multiprocessors,
                                  .shared_bytes_max = facts_.shared_bytes_max})
                   .has_value();
    };
    return cuda::segment_plan(sources, can_pack);
}

/// Each packed segment's power of two, from its largest weight.
void CudaBackendImpl::find_units(cuda::Matrix& matrix) {
    for (cuda::SegmentView& segment :
         std::span(matrix.segments).first(static_cast<std::size_t>(matrix.segment_count))) {
        if (!segment.is_packed) continue;
        check_cuda(driver_, driver_.fill_bytes(address_of(sink_), 0, sizeof(*sink_), stream_.get()),
                   "zeroing of a word");
        cuda::launch_peak(
            kernels_, stream_.get(), static_cast<DType>(segment.dtype),
            {.records = segment.blocks,
             .count = cuda::tile_count(segment.outputs) * cuda::record_count(matrix.k),
             .peak = sink_});
        float peak = 0.0F;
        check_cuda(driver_,
                   driver_.copy_to_host(&peak, address_of(sink_), sizeof(peak), stream_.get()),
                   "copy of a word");
        synchronize("largest weight");
        segment.unit = cuda::weight_unit(peak);
    }
}

/// Zeroed once: every launch leaves the arrivals at zero.
void CudaBackendImpl::reserve_matmul(std::int64_t inputs_max) {
    std::int64_t tiles = 1;
    for (const cuda::Matrix& matrix : matrices_)
        for (const cuda::SegmentView& segment : matrix.used())
            tiles = std::max(tiles, cuda::tile_count(segment.outputs));
    const std::int64_t records = cuda::record_count(inputs_max);
    constexpr std::int64_t kColumns = cuda::kMatmulColumnsMax;
    const auto take = [&](std::int64_t bytes) {
        return arena_.take(static_cast<std::size_t>(bytes));
    };
    cuda::MatmulScratch& scratch = op_.matmul;
    scratch.k_records = static_cast<std::int32_t>(records);
    scratch.x = reinterpret_cast<std::uint8_t*>(take(records * cuda::wide_stage_bytes(kColumns)));
    scratch.x_factors = reinterpret_cast<float*>(take(kColumns * 4));
    scratch.partials =
        reinterpret_cast<float*>(take(cuda::matmul_partial_floats(facts_.multiprocessors) * 4));
    const cuda::DeviceAddress arrivals = take(tiles * 4);
    check_cuda(driver_,
               driver_.fill_bytes(arrivals, 0, static_cast<std::size_t>(tiles) * 4, stream_.get()),
               "zeroing of arrivals");
    scratch.arrivals = reinterpret_cast<std::uint32_t*>(arrivals);
    scratch.multiprocessors = facts_.multiprocessors;
    scratch.shared_bytes_max = facts_.shared_bytes_max;
}

void CudaBackendImpl::reserve_attention() {
    cuda::AttentionScratch& scratch = op_.attention;
    scratch.floats = cuda::attention_parts_floats(facts_.multiprocessors);
    scratch.parts =
        reinterpret_cast<float*>(arena_.take(static_cast<std::size_t>(scratch.floats) * 4));
    const std::size_t bytes = static_cast<std::size_t>(cuda::kAttentionArrivals) * 4;
    const cuda::DeviceAddress arrivals = arena_.take(bytes);
    check_cuda(driver_, driver_.fill_bytes(arrivals, 0, bytes, stream_.get()),
               "zeroing of arrivals");
    scratch.arrivals = reinterpret_cast<std::uint32_t*>(arrivals);
    scratch.multiprocessors = facts_.multiprocessors;
    scratch.registry = &attention_registry_;
}

void CudaBackendImpl::open_cublaslt(const CudaBackendOptions& options) {
    const auto fail = [&](KernelState state, std::string reason) {
        cublaslt_.state = state;
        cublaslt_.reason = std::move(reason);
    };
    if (is_named_by_any(cublaslt_, options.disabled_kernels))
        return fail(KernelState::kDisabled, "by the operator");
    const auto library = cuda::load_cublaslt(cuda::system_loader(), options.library_dir);
    if (!library) return fail(KernelState::kNotBuilt, library.error());
    if (!cuda::allow_prefill(kernels_))
        return fail(KernelState::kFailed, "the driver does not grant its shared memory");
    auto products = cuda::LtProducts::make(*library);
    if (!products) return fail(KernelState::kFailed, products.error());
    products_ = std::move(*products);
    std::fprintf(stderr, "level=info event=cublaslt path=%s version=%zu\n", library->path.c_str(),
                 library->version());
}

/// Scratch of products of many tokens. Without room for it other kernels serve.
void CudaBackendImpl::reserve_prefill(std::int64_t rows) {
    if (products_ == nullptr || rows < cuda::kPrefillRows[0]) return;
    const cuda::PrefillNeed need = cuda::prefill_need(matrices_, rows);
    if (need.weights == 0) return;
    prefill_.rows = rows;
    prefill_.weight_bytes = cuda::PrefillLimits{}.weight_bytes;
    constexpr auto kWorkspaceBytes = static_cast<std::int64_t>(cuda::LtProducts::kWorkspaceBytes);
    const auto take = [&](std::int64_t bytes) {
        prefill_.bytes += bytes;
        return arena_.take(static_cast<std::size_t>(bytes));
    };
    try {
        prefill_.x = reinterpret_cast<std::uint16_t*>(op_.scratch);
        prefill_.exponents = reinterpret_cast<std::int32_t*>(take(rows * 4));
        prefill_.weights = reinterpret_cast<std::uint16_t*>(take(need.weights));
        prefill_.sums = reinterpret_cast<float*>(take(need.sums));
        products_->set_workspace(take(kWorkspaceBytes));
        scale_weights();
    } catch (const cuda::CudaError& error) {
        if (error.status != cuda::kOutOfMemory) throw;
        cublaslt_.state = KernelState::kFailed;
        cublaslt_.reason = "the device has no " + std::to_string(need.weights + need.sums) +
                           " bytes for its scratch";
        return;
    }
    prefill_.products = products_.get();
    if (std::string reason = cuda::prepare_prefill(op_, matrices_); !reason.empty()) {
        prefill_.products = nullptr;
        cublaslt_.state = KernelState::kFailed;
        cublaslt_.reason = std::move(reason);
    }
}

/// The power of two that each segment's weights become binary16 with.
void CudaBackendImpl::scale_weights() {
    std::vector<std::uint32_t> words(matrices_.size() * cuda::kSegmentsMax);
    const std::size_t bytes = words.size() * sizeof(std::uint32_t);
    const cuda::DeviceAddress largest = arena_.take(bytes);
    check_cuda(driver_, driver_.fill_bytes(largest, 0, bytes, stream_.get()), "zeroing");
    cuda::launch_largest(op_, matrices_, reinterpret_cast<std::uint32_t*>(largest));
    check_cuda(driver_, driver_.copy_to_host(words.data(), largest, bytes, stream_.get()),
               "download of the largest weights");
    synchronize("largest weights");
    for (std::size_t i = 0; i < matrices_.size(); ++i)
        for (std::size_t s = 0; s < static_cast<std::size_t>(matrices_[i].segment_count); ++s) {
            float value = 0.0F;
            std::memcpy(&value, &words[i * cuda::kSegmentsMax + s], sizeof value);
            cuda::SegmentView& segment = matrices_[i].segments[s];
            segment.half_scale =
                segment.is_packed ? segment.unit : cuda::prefill_weight_scale(value);
        }
}

std::uint64_t CudaBackendImpl::prefill_numerics(const LinearArgs& args, std::int64_t rows) const {
    if (prefill_.rows_min == 0 && rows <= cuda::kGraphRowsMax) return 0;
    const cuda::LinearJob job{.matrix = &matrix(args.w), .rows = rows, .epilogue = args.epilogue};
    if (!cuda::wants_prefill(op_, job) || !cuda::has_prefill(op_, job)) return 0;
    return cuda::prefill_id(op_, matrix(args.w), rows);
}

std::optional<Refusal> CudaBackendImpl::prepare(const StepLimits& limits) {
    assert(!is_prepared_ && "prepare comes once");
    context_.make_current();
    const std::pair<const char*, std::int32_t> counts[] = {{"rows", limits.rows},
                                                           {"seqs", limits.seqs},
                                                           {"logit_rows", limits.logit_rows},
                                                           {"vocabulary", limits.vocabulary},
                                                           {"inputs_max", limits.inputs_max}};
    for (const auto& [name, count] : counts)
        if (count <= 0)
            return Refusal{"step limits", std::string(name) + " = " + std::to_string(count),
                           "is not positive", "give the largest step the model will run"};
    for (const cuda::Matrix& matrix : matrices_)
        if (matrix.k > limits.inputs_max)
            return Refusal{"step limits", "inputs_max = " + std::to_string(limits.inputs_max),
                           "is below the " + std::to_string(matrix.k) + " inputs of a matrix",
                           "give the largest K of any linear"};
    synchronize("upload of weights");
    matrix_upload_.release();
    staging_.end_loading();
    op_.scratch_stride = (limits.inputs_max + kInputAlign - 1) / kInputAlign * kInputAlign;
    const auto logit_rows = static_cast<std::size_t>(limits.logit_rows);
    const auto vocabulary = static_cast<std::size_t>(limits.vocabulary);
    try {
        const std::int64_t values = limits.rows * op_.scratch_stride;
        op_.scratch =
            reinterpret_cast<float*>(arena_.take(static_cast<std::size_t>(values) * sizeof(float)));
        reserve_matmul(limits.inputs_max);
        reserve_attention();
        reserve_prefill(limits.rows);
        upload_ = cuda::StepUpload(driver_, limits);
        host_logits_ = cuda::make_pinned_buffer(driver_, logit_rows * vocabulary * sizeof(float));
    } catch (const cuda::CudaError& error) {
        if (error.status != cuda::kOutOfMemory) throw;
        return Refusal{"step scratch", std::to_string(limits.rows) + " rows",
                       "needs more memory than the device gives", "lower the token budget",
                       RefusalKind::kMemory};
    }
    op_.view = upload_.view();
    sampling_.reserve(limits.vocabulary);
    sampled_.resize(logit_rows);
    error_.resize(logit_rows);
    logprobs_.resize(logit_rows);
    synchronize("prepare");
    limits_ = limits;
    is_prepared_ = true;
    return std::nullopt;
}

// ---------------------------------------------------------------------------------------------
// Between steps

/// Bytes of one index of the first dimension, and where index `index` begins.
std::size_t item_bytes(const TensorView& tensor) {
    return static_cast<std::size_t>(tensor.row_elements() * element_bytes(tensor.dtype));
}
std::size_t item_offset(const TensorView& tensor, std::int64_t index) {
    assert(index >= 0 && index < tensor.shape[0] && "an item of the tensor");
    return static_cast<std::size_t>(index * tensor.row_stride * element_bytes(tensor.dtype));
}

void CudaBackendImpl::copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to) {
    assert(!in_step_);
    if (from == to) return;
    context_.make_current();
    check_cuda(driver_,
               driver_.copy_on_device(address_of(tensor, item_offset(tensor, to)),
                                      address_of(tensor, item_offset(tensor, from)),
                                      item_bytes(tensor), stream_.get()),
               "copy of an item");
}

void CudaBackendImpl::read_item(const TensorView& tensor, std::int64_t index,
                                std::span<std::byte> to) {
    assert(!in_step_ && to.size() == item_bytes(tensor));
    read(tensor, to, item_offset(tensor, index));
}

void CudaBackendImpl::write_item(const TensorView& tensor, std::int64_t index,
                                 std::span<const std::byte> from) {
    assert(!in_step_ && from.size() == item_bytes(tensor));
    write(tensor, from, item_offset(tensor, index));
}

// ---------------------------------------------------------------------------------------------
// Step

void CudaBackendImpl::begin_step(const StepDescriptor& step) {
    assert(is_prepared_ && "prepare comes before the first step");
    assert(!in_step_ && "finish_step ends a step");
    assert(step.rows <= limits_.rows && step.seqs <= limits_.seqs &&
           step.logit_rows <= limits_.logit_rows);
    assert(step.seqs == 0 || (step.row_begin.front() == 0 &&
                              step.row_begin[static_cast<std::size_t>(step.seqs)] == step.rows));
    context_.make_current();
    step_ = step;
    upload_.upload(step_, stream_.get());
    fetched_logits_ = {};
    draws_ = false;
    outputs_ = {};
    in_step_ = true;
    launches_.clear();
    // Steps that no graph takes launch at once: cuBLASLt, which serves only there, does so too.
    const bool is_eager = is_tracing_ || step.rows > cuda::kGraphRowsMax ||
                          (prefill_.rows_min > 0 && step.rows >= prefill_.rows_min);
    kernels_.record(is_eager ? nullptr : &launches_);
    if (is_tracing_) trace_.begin(stream_.get());
}

void CudaBackendImpl::norm(const TensorView& x, const TensorView& weight, float eps,
                           const TensorView& y, const std::int32_t* row_map) {
    cuda::launch_norm(op_, {.rows = step_.rows,
                            .live_rows = op_.view.rows,
                            .row_map = row_map,
                            .x = x.as<float>(),
                            .x_stride = x.row_stride,
                            .weight = weight.as<float>(),
                            .eps = eps,
                            .k = weight.shape[0],
                            .k_padded = weight.shape[0],
                            .y = y.as<float>(),
                            .y_stride = y.row_stride});
}

void CudaBackendImpl::embed(const EmbedArgs& args) {
    assert(in_step_ && args.x.shape[1] == args.table.k);
    cuda::launch_embed(op_, matrix(args.table), args.x);
}

void CudaBackendImpl::linear(const LinearArgs& args) {
    assert(in_step_ && args.x.shape[1] == args.w.k && args.x.rows() >= step_.rows);
    assert(args.y.shape[1] == (args.epilogue == Epilogue::kSwiGlu ? args.w.n / 2 : args.w.n));
    assert(args.epilogue != Epilogue::kSwiGlu || args.w.n % 2 == 0);
    assert(args.norm_weight.empty() || args.norm_weight.shape[0] == args.w.k);
    assert(args.bias.empty() || args.bias.shape[0] == args.w.n);
    cuda::launch_linear(op_, {.matrix = &matrix(args.w),
                              .rows = step_.rows,
                              .live_rows = op_.view.rows,
                              .x = args.x.as<float>(),
                              .x_stride = args.x.row_stride,
                              .norm_weight = args.norm_weight.as<float>(),
                              .norm_eps = args.norm_eps,
                              .bias = args.bias.as<float>(),
                              .epilogue = args.epilogue,
                              .y = args.y.as<float>(),
                              .y_stride = args.y.row_stride});
}

void CudaBackendImpl::delta_net(const DeltaNetArgs& args) {
    assert(in_step_);
    cuda::launch_delta_net(op_, args);
}

void CudaBackendImpl::attention(const AttentionArgs& args) {
    assert(in_step_);
    cuda::launch_attention(op_, args);
}

void CudaBackendImpl::head(const HeadArgs& args) {
    assert(in_step_);
    norm(args.x, args.norm_weight, args.norm_eps, args.hidden);
    if (args.w.empty()) return;
    cuda::launch_linear(op_, {.matrix = &matrix(args.w),
                              .rows = step_.logit_rows,
                              .live_rows = op_.view.logit_rows,
                              .row_map = op_.view.logit_row,
                              .x = args.hidden.as<float>(),
                              .x_stride = args.hidden.row_stride,
                              .y = args.logits.as<float>(),
                              .y_stride = args.logits.row_stride});
    if (step_.wants_logits) fetch_logits(args.logits);
}

void CudaBackendImpl::mtp_join(const MtpJoinArgs& args) {
    assert(in_step_ && args.joined.shape[1] == 2 * args.table.k);
    const TensorView embedding = columns(args.joined, 0, args.table.k);
    cuda::launch_embed(op_, matrix(args.table), embedding);
    norm(embedding, args.embed_norm_weight, args.norm_eps, embedding);
    assert(static_cast<std::int32_t>(step_.hidden_row.size()) >= step_.rows &&
           "an MTP pass says which hidden rows it joins");
    norm(args.hidden, args.hidden_norm_weight, args.norm_eps,
         columns(args.joined, args.table.k, args.table.k), op_.view.hidden_row);
}

/// The host wants them: finish_step downloads.
void CudaBackendImpl::fetch_logits(const TensorView& logits) {
    if (step_.logit_rows == 0) return;
    assert(logits.row_stride == logits.shape[1] && "logits rows follow each other");
    assert(logits.shape[1] <= limits_.vocabulary);
    fetched_logits_ = logits;
}

/// Makes the launches that operations have written down.
void CudaBackendImpl::run_launches() {
    kernels_.record(nullptr);
    if (timeline_repeats_ > 0) {
        step_times_ = cuda::time_launches(driver_, kernels_, launches_, stream_.get(),
                                          std::exchange(timeline_repeats_, 0));
    }
    graphs_.run(launches_, step_.rows, stream_.get());
    launches_.clear();
}

void CudaBackendImpl::sample(const SampleArgs& args) {
    assert(in_step_);
    if (step_.wants_logits || !step_.sampling.empty()) fetch_logits(args.logits);
    if (step_.sampling.empty()) return;
    assert(static_cast<std::int32_t>(step_.sampling.size()) == step_.logit_rows);
    draws_ = true;
    vocabulary_used_ = args.vocabulary_used;
}

/// On the host, by the rules every backend shares; one round trip a step.
void CudaBackendImpl::draw() {
    const auto width = static_cast<std::size_t>(fetched_logits_.shape[1]);
    const auto rows = static_cast<std::size_t>(step_.logit_rows);
    const auto* logits = static_cast<const float*>(host_logits_.get());
    for (std::size_t row = 0; row < rows; ++row) {
        const SampledToken drawn = sample_row({logits + row * width, width}, step_.sampling[row],
                                              vocabulary_used_, sampling_);
        sampled_[row] = drawn.token;
        error_[row] = drawn.error ? 1 : 0;
        if (const std::int32_t top = step_.sampling[row].top_logprobs; top >= 0)
            logprobs_[row] =
                row_logprobs({logits + row * width, width}, vocabulary_used_, drawn, top);
    }
    outputs_.sampled = {sampled_.data(), rows};
    outputs_.error = {error_.data(), rows};
    if (wants_logprobs(step_.sampling)) outputs_.logprobs = {logprobs_.data(), rows};
}

const StepOutputs& CudaBackendImpl::finish_step() {
    assert(in_step_ && "begin_step begins a step");
    run_launches();
    const auto logit_count = static_cast<std::size_t>(step_.logit_rows * fetched_logits_.shape[1]);
    if (!fetched_logits_.empty())
        check_cuda(driver_,
                   driver_.copy_to_host(host_logits_.get(), address_of(fetched_logits_),
                                        logit_count * sizeof(float), stream_.get()),
                   "download of logits");
    synchronize("step");
    if (is_tracing_) {
        traced_.clear();
        for (const cuda::TracedLaunch& launch : trace_.end())
            traced_.push_back({launch.name, launch.us});
    }
    if (step_.wants_logits && !fetched_logits_.empty())
        outputs_.logits = {static_cast<const float*>(host_logits_.get()), logit_count};
    if (draws_) draw();
    in_step_ = false;
    return outputs_;
}

// ---------------------------------------------------------------------------------------------
// Beyond the seam

void CudaBackendImpl::write(const TensorView& to, std::span<const std::byte> bytes,
                            std::size_t offset_bytes) {
    context_.make_current();
    for (cuda::DeviceAddress address = address_of(to, offset_bytes); !bytes.empty();) {
        const auto part = bytes.first(std::min(bytes.size(), cuda::Staging::kPartBytes));
        staging_.send(address, part);
        address += part.size();
        bytes = bytes.subspan(part.size());
    }
}

void CudaBackendImpl::read(const TensorView& from, std::span<std::byte> bytes,
                           std::size_t offset_bytes) {
    context_.make_current();
    staging_.receive(bytes, address_of(from, offset_bytes));
}

std::vector<CudaKernelReport> CudaBackendImpl::kernels() const {
    std::vector<CudaKernelReport> reports;
    for (std::size_t i = 0; i < cuda::kernel_names().size(); ++i)
        reports.push_back({.name = cuda::kernel_names()[i].symbol,
                           .file = cuda::kernel_names()[i].cubin,
                           .runs = kernels_.runs(i)});
    return reports;
}

std::vector<double> CudaBackendImpl::time_graph(const std::function<void()>& enqueue, int warmups,
                                                int repeats) {
    assert(in_step_ && "operations run inside a step");
    run_launches();  // those in front; from here to the step's end launches are made at once
    return cuda::time_graph(driver_, stream_.get(), enqueue, {warmups, repeats});
}

void CudaBackendImpl::read_stream(const TensorView& from, std::int64_t bytes) {
    constexpr std::int64_t kBlocksPerMultiprocessor = 4;  // of 512 threads: all it can hold
    cuda::launch_read_stream(op_, from.data, bytes,
                             kBlocksPerMultiprocessor * facts_.multiprocessors, sink_);
}

}  // namespace

tl::expected<std::unique_ptr<CudaBackend>, std::string> make_cuda_backend(
    const CudaBackendOptions& options) {
    const auto driver = cuda::load_driver(cuda::system_loader(), options.library_dir);
    if (!driver) return tl::unexpected(driver.error());
    const auto facts = cuda::find_device(*driver, options.device);
    if (!facts) return tl::unexpected(facts.error());
    try {
        return std::make_unique<CudaBackendImpl>(*driver, *facts, options);
    } catch (const cuda::CudaError& error) {
        return tl::unexpected("device " + std::to_string(options.device) + " (" + facts->name +
                              ") cannot be used: " + error.what());
    }
}

}  // namespace kernels
