#include "kernels/cuda/cuda_backend.h"

#include <cassert>
#include <exception>
#include <optional>
#include <utility>

#include "kernels/cuda/delta_net.h"
#include "kernels/cuda/graph_timer.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/prefill_path.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/cuda/step_timeline.h"
#include "kernels/cuda/step_trace.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/cuda/tensor_store.h"
#include "kernels/cuda/weight_store.h"
#include "kernels/sampling.h"

namespace kernels {
namespace {

using cuda::check_cuda;

class CudaBackendImpl final : public CudaBackend {
public:
    CudaBackendImpl(const cuda::Driver& driver, const cuda::DeviceFacts& facts,
                    const CudaBackendOptions& options, const cuda::DeviceCode& code)
        : driver_(driver),
          facts_(facts),
          context_(driver_, facts_.device),
          kernels_(driver_, code),
          registry_(kernels_, facts.shared_bytes_max, options.disabled_kernels),
          lane_registry_(kernels_, facts.shared_bytes_max, options.disabled_kernels),
          attention_registry_(kernels_, facts.shared_bytes_max, options.disabled_kernels),
          delta_net_(kernels_, facts.shared_bytes_max, options.disabled_kernels),
          sampler_(driver_, kernels_, facts_.shared_bytes_max, options.disabled_kernels),
          stream_(cuda::make_stream(driver_)),
          arena_(driver_),
          staging_(driver_, stream_.get()),
          tensors_(driver_, arena_, staging_, stream_.get()),
          weights_(driver_, facts_, kernels_, registry_, lane_registry_, arena_, staging_,
                   stream_.get()),
          prefill_(kernels_, options),
          graphs_(driver_, kernels_),
          trace_(driver_) {
        sink_ = reinterpret_cast<unsigned*>(arena_.take(sizeof(unsigned)));
        op_.kernels = &kernels_;
        op_.stream = stream_.get();
        op_.step = &step_;
        op_.delta_net = &delta_net_;
        op_.matmul.plans = &plans_;
        if (kernels_.kind() == cuda::CodeKind::kSm70) op_.lanes.registry = &lane_registry_;
        op_.attention.registry = &attention_registry_;
        op_.prefill = &prefill_.scratch();
    }
    ~CudaBackendImpl() override;

    DeviceInfo device() const override;
    std::vector<KernelEntry> armed_kernels() const override;
    std::uint64_t packed_bytes(std::span<const MatrixSource> sources) const override {
        return weights_.packed_bytes(sources);
    }
    std::uint64_t load_bytes() const override { return cuda::MatrixUpload::kSliceBytes; }
    std::uint64_t scratch_bytes(const StepLimits& limits) const override {
        return plan_scratch(limits).device_bytes();
    }
    void watch_loading(std::function<void(std::uint64_t bytes)> on_bytes) override {
        weights_.watch(std::move(on_bytes));
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
    bool repeats(StepProgram program) override;
    bool begin_rehearsal(const StepDescriptor& step, StepProgram program) override;
    void finish_rehearsal() override;
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
    void set_prefill_rows_min(std::int64_t rows) override { prefill_.scratch().rows_min = rows; }
    std::uint64_t prefill_numerics(const LinearArgs& args, std::int64_t rows) const override;
    std::int64_t prefill_bytes() const override { return prefill_.scratch().bytes; }
    std::int64_t dequantise(const MatrixView& view) override {
        return cuda::dequantise_slice(op_, weights_.at(view));
    }
    void multiply_scratch(std::int64_t n, std::int64_t k, std::int64_t rows) override {
        cuda::multiply_scratch(op_, n, k, rows);
    }

private:
    cuda::ScratchPlan plan_scratch(const StepLimits& limits) const;
    void norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& y,
              const std::int32_t* row_map = nullptr);
    void run_launches();
    void begin(const StepDescriptor& step);
    bool is_eager() const;
    std::uint64_t fallback_runs() const;
    void synchronize(const char* what) {
        check_cuda(driver_, driver_.stream_synchronize(stream_.get()), what);
    }

    // In order of need: what comes later uses what comes before.
    cuda::Driver driver_;
    cuda::DeviceFacts facts_;
    cuda::Context context_;
    cuda::KernelSet kernels_;
    cuda::MatmulRegistry registry_;
    cuda::LaneRegistry lane_registry_;
    cuda::AttentionRegistry attention_registry_;
    cuda::DeltaNetRegistry delta_net_;
    cuda::Sampler sampler_;
    cuda::MatmulPlans plans_;
    cuda::Stream stream_;
    cuda::Arena arena_;
    cuda::Staging staging_;
    cuda::TensorStore tensors_;
    cuda::WeightStore weights_;
    cuda::PrefillPath prefill_;
    cuda::StepGraphs graphs_;
    cuda::LaunchList launches_;  // of the step
    cuda::StepTrace trace_;
    bool is_tracing_ = false;
    std::vector<CudaTracedLaunch> traced_;
    int timeline_repeats_ = 0;  // of the next step; 0 = its launches are not timed
    std::vector<CudaLaunchTime> step_times_;
    unsigned* sink_ = nullptr;

    bool is_prepared_ = false;
    StepLimits limits_;
    cuda::StepUpload upload_;

    StepDescriptor step_;
    cuda::OpContext op_;
    bool in_step_ = false;
    std::optional<cuda::StepKey> key_;
    bool is_repeated_ = false;                // a graph stands for the operations
    std::uint64_t fallback_runs_before_ = 0;  // of a step that might become known
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
    for (KernelEntry& entry : lane_registry_.entries(kernels_))
        entries.push_back(std::move(entry));
    for (KernelEntry& entry : attention_registry_.entries(kernels_))
        entries.push_back(std::move(entry));
    for (KernelEntry& entry : delta_net_.entries(kernels_))
        entries.push_back(std::move(entry));
    entries.push_back(sampler_.entry());
    entries.push_back(prefill_.entry());
    return entries;
}

TensorView CudaBackendImpl::allocate(DType dtype, std::span<const std::int64_t> shape) {
    context_.make_current();
    return tensors_.allocate(dtype, shape);
}

TensorView CudaBackendImpl::upload_f32(std::span<const float> values,
                                       std::span<const std::int64_t> shape) {
    context_.make_current();
    return tensors_.upload(values, shape);
}

std::optional<Refusal> CudaBackendImpl::pack(std::span<const MatrixSource> sources,
                                             MatrixView& out) {
    assert(!is_prepared_ && "pack comes before prepare");
    context_.make_current();
    return weights_.pack(sources, out);
}

std::uint64_t CudaBackendImpl::prefill_numerics(const LinearArgs& args, std::int64_t rows) const {
    if (prefill_.scratch().rows_min == 0 && rows <= cuda::kGraphRowsMax) return 0;
    const cuda::LinearJob job{
        .matrix = &weights_.at(args.w), .rows = rows, .epilogue = args.epilogue};
    if (!cuda::wants_prefill(op_, job) || !cuda::has_prefill(op_, job)) return 0;
    return cuda::prefill_id(op_, weights_.at(args.w), rows);
}

cuda::ScratchPlan CudaBackendImpl::plan_scratch(const StepLimits& limits) const {
    return cuda::scratch_plan({.limits = limits,
                               .multiprocessors = facts_.multiprocessors,
                               .matrices = weights_.all(),
                               .with_prefill = prefill_.is_open(),
                               .with_lanes = kernels_.kind() == cuda::CodeKind::kSm70});
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
    for (const cuda::Matrix& matrix : weights_.all())
        if (matrix.k > limits.inputs_max)
            return Refusal{"step limits", "inputs_max = " + std::to_string(limits.inputs_max),
                           "is below the " + std::to_string(matrix.k) + " inputs of a matrix",
                           "give the largest K of any linear"};
    synchronize("upload of weights");
    weights_.end_loading();
    staging_.end_loading();
    try {
        const cuda::ScratchPlan plan = plan_scratch(limits);
        cuda::reserve_scratch(plan, facts_, driver_, arena_, op_);
        prefill_.reserve(plan, weights_.all(), arena_, driver_, op_);
        upload_ = cuda::StepUpload(driver_, limits);
        sampler_.reserve(limits);
    } catch (const cuda::CudaError& error) {
        if (error.status != cuda::kOutOfMemory) throw;
        return Refusal{"step scratch", std::to_string(limits.rows) + " rows",
                       "needs more memory than the device gives", "lower the token budget",
                       RefusalKind::kMemory};
    }
    op_.view = upload_.view();
    synchronize("prepare");
    limits_ = limits;
    is_prepared_ = true;
    return std::nullopt;
}

// ---------------------------------------------------------------------------------------------
// Between steps

void CudaBackendImpl::copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to) {
    assert(!in_step_);
    context_.make_current();
    tensors_.copy_item(tensor, from, to);
}

void CudaBackendImpl::read_item(const TensorView& tensor, std::int64_t index,
                                std::span<std::byte> to) {
    assert(!in_step_);
    context_.make_current();
    tensors_.read_item(tensor, index, to);
}

void CudaBackendImpl::write_item(const TensorView& tensor, std::int64_t index,
                                 std::span<const std::byte> from) {
    assert(!in_step_);
    context_.make_current();
    tensors_.write_item(tensor, index, from);
}

// ---------------------------------------------------------------------------------------------
// Step

void CudaBackendImpl::begin(const StepDescriptor& step) {
    assert(is_prepared_ && "prepare comes before the first step");
    assert(!in_step_ && "finish_step ends a step");
    assert(step.rows <= limits_.rows && step.seqs <= limits_.seqs &&
           step.logit_rows <= limits_.logit_rows);
    assert(step.seqs == 0 || (step.row_begin.front() == 0 &&
                              step.row_begin[static_cast<std::size_t>(step.seqs)] == step.rows));
    context_.make_current();
    step_ = step;
    sampler_.begin();
    outputs_ = {};
    in_step_ = true;
    key_.reset();
    is_repeated_ = false;
    launches_.clear();
}

/// Steps that no graph takes launch at once: cuBLASLt, which serves only there, does so too.
bool CudaBackendImpl::is_eager() const {
    const cuda::PrefillScratch& prefill = prefill_.scratch();
    return is_tracing_ || step_.rows > cuda::kGraphRowsMax ||
           (prefill.rows_min > 0 && step_.rows >= prefill.rows_min);
}

void CudaBackendImpl::begin_step(const StepDescriptor& step) {
    begin(step);
    upload_.fill(step_);
    if (is_eager()) upload_.send(stream_.get());
    kernels_.record(upload_.is_sent() ? nullptr : &launches_);
    if (is_tracing_) trace_.begin(stream_.get());
}

/// Work that fell back is counted where it is launched, so a step with such never becomes known.
std::uint64_t CudaBackendImpl::fallback_runs() const {
    std::uint64_t runs = 0;
    for (const KernelEntry& entry : armed_kernels())
        runs += entry.fallback_runs;
    return runs;
}

bool CudaBackendImpl::repeats(StepProgram program) {
    assert(in_step_ && launches_.empty());
    if (upload_.is_sent()) return false;
    key_ = cuda::step_key(step_, program);
    if (!key_) return false;
    is_repeated_ = timeline_repeats_ == 0 && graphs_.knows(*key_);
    if (!is_repeated_) fallback_runs_before_ = fallback_runs();
    return is_repeated_;
}

bool CudaBackendImpl::begin_rehearsal(const StepDescriptor& step, StepProgram program) {
    const std::optional<cuda::StepKey> key = cuda::step_key(step, program);
    if (!key) return false;
    begin(step);
    if (is_eager()) {
        in_step_ = false;
        return false;
    }
    key_ = key;
    fallback_runs_before_ = fallback_runs();
    kernels_.record(&launches_);
    return true;
}

void CudaBackendImpl::finish_rehearsal() {
    assert(in_step_ && key_);
    kernels_.record(nullptr);
    if (fallback_runs() == fallback_runs_before_) graphs_.rehearse(launches_, *key_, stream_.get());
    launches_.clear();
    in_step_ = false;
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
    cuda::launch_embed(op_, weights_.at(args.table), args.x);
}

void CudaBackendImpl::linear(const LinearArgs& args) {
    assert(in_step_ && args.x.shape[1] == args.w.k && args.x.rows() >= step_.rows);
    assert(args.y.shape[1] == (args.epilogue == Epilogue::kSwiGlu ? args.w.n / 2 : args.w.n));
    assert(args.epilogue != Epilogue::kSwiGlu || args.w.n % 2 == 0);
    assert(args.norm_weight.empty() || args.norm_weight.shape[0] == args.w.k);
    assert(args.bias.empty() || args.bias.shape[0] == args.w.n);
    cuda::launch_linear(op_, {.matrix = &weights_.at(args.w),
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
    cuda::launch_linear(op_, {.matrix = &weights_.at(args.w),
                              .rows = step_.logit_rows,
                              .live_rows = op_.view.logit_rows,
                              .row_map = op_.view.logit_row,
                              .x = args.hidden.as<float>(),
                              .x_stride = args.hidden.row_stride,
                              .y = args.logits.as<float>(),
                              .y_stride = args.logits.row_stride});
    if (step_.wants_logits) sampler_.want_logits(args.logits);
}

void CudaBackendImpl::mtp_join(const MtpJoinArgs& args) {
    assert(in_step_ && args.joined.shape[1] == 2 * args.table.k);
    const TensorView embedding = columns(args.joined, 0, args.table.k);
    cuda::launch_embed(op_, weights_.at(args.table), embedding);
    norm(embedding, args.embed_norm_weight, args.norm_eps, embedding);
    assert(static_cast<std::int32_t>(step_.hidden_row.size()) >= step_.rows &&
           "an MTP pass says which hidden rows it joins");
    norm(args.hidden, args.hidden_norm_weight, args.norm_eps,
         columns(args.joined, args.table.k, args.table.k), op_.view.hidden_row);
}

/// Makes the launches that operations have written down.
void CudaBackendImpl::run_launches() {
    kernels_.record(nullptr);
    if (!upload_.is_sent()) upload_.send(stream_.get());
    if (is_repeated_) {
        graphs_.repeat(*key_, stream_.get());
        is_repeated_ = false;
        launches_.clear();  // of the draw, which the graph holds
        return;
    }
    if (launches_.empty()) return;
    if (key_ && fallback_runs() != fallback_runs_before_) key_.reset();
    if (timeline_repeats_ > 0) {
        step_times_ = cuda::time_launches(driver_, kernels_, launches_, stream_.get(),
                                          std::exchange(timeline_repeats_, 0));
    }
    graphs_.run(launches_, step_.rows, key_, stream_.get());
    launches_.clear();
}

void CudaBackendImpl::sample(const SampleArgs& args) {
    assert(in_step_);
    if (step_.wants_logits) sampler_.want_logits(args.logits);
    if (!step_.sampling.empty()) sampler_.sample(step_, args, upload_, stream_.get());
}

const StepOutputs& CudaBackendImpl::finish_step() {
    assert(in_step_ && "begin_step begins a step");
    run_launches();
    sampler_.finish(step_, outputs_, stream_.get());
    if (is_tracing_) {
        traced_.clear();
        for (const cuda::TracedLaunch& launch : trace_.end())
            traced_.push_back({launch.name, launch.us});
    }
    in_step_ = false;
    return outputs_;
}

// ---------------------------------------------------------------------------------------------
// Beyond the seam

void CudaBackendImpl::write(const TensorView& to, std::span<const std::byte> bytes,
                            std::size_t offset_bytes) {
    context_.make_current();
    tensors_.write(to, bytes, offset_bytes);
}

void CudaBackendImpl::read(const TensorView& from, std::span<std::byte> bytes,
                           std::size_t offset_bytes) {
    context_.make_current();
    tensors_.read(from, bytes, offset_bytes);
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
    const bool has_folder = !options.ptx_folder.empty();
    const auto facts = cuda::find_device(*driver, options.device, has_folder || has_cuda_sm_70());
    if (!facts) return tl::unexpected(facts.error());
    assert((!options.with_own_ptx || has_cuda_sm_70()) && "asked for what the program has");
    const tl::expected<cuda::DeviceCode, std::string> code =
        has_folder ? cuda::read_ptx(options.ptx_folder)
                   : cuda::own_code(options.with_own_ptx ? cuda::CodeKind::kSm70 : facts->code);
    if (!code) return tl::unexpected(code.error());
    if (const std::string missing = cuda::missing_file(*code); !missing.empty())
        return tl::unexpected(options.ptx_folder + " has no " + missing +
                              ".ptx; make it anew from these sources");
    try {
        return std::make_unique<CudaBackendImpl>(*driver, *facts, options, *code);
    } catch (const cuda::CudaError& error) {
        return tl::unexpected("device " + std::to_string(options.device) + " (" + facts->name +
                              ") cannot be used: " + error.what());
    }
}

}  // namespace kernels
