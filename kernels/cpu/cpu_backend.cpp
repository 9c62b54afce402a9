#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "kernels/cpu/matrix.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/element_bytes.h"
#include "kernels/quant/decode.h"
#include "kernels/sampling.h"

namespace kernels {
namespace {

using cpu::LoopPart;

const float* data_or_null(const TensorView& view) {
    return view.as<float>();
}

class CpuBackend final : public Backend {
public:
    explicit CpuBackend(const CpuBackendOptions& options)
        : is_reference_(options.accumulator == CpuAccumulator::kDouble),
          simd_target_(cpu::simd_target()),
          pool_(options.threads, options.cores) {
        context_ = {.pool = &pool_,
                    .scratch = &scratch_,
                    .rows = cpu::row_kernels(),
                    .delta = cpu::delta_kernels(),
                    .attention = cpu::attention_kernels()};
    }

    DeviceInfo device() const override;
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

private:
    const cpu::Matrix& matrix(const MatrixView& view) const {
        assert(view.id >= 0 && static_cast<std::size_t>(view.id) < matrices_.size());
        return matrices_[static_cast<std::size_t>(view.id)];
    }
    void run_linear(const cpu::LinearJob& job);
    void embed_row(const cpu::Matrix& table, std::int64_t m, float* out) const;
    void norm_row(const float* x, const TensorView& weight, float eps, float* out) const;
    void publish_logits(const TensorView& logits);

    bool is_reference_;
    std::string simd_target_;
    cpu::ThreadPool pool_;
    cpu::Arena arena_;
    cpu::Scratch scratch_;
    cpu::Context context_;
    std::vector<cpu::Matrix> matrices_;

    bool is_prepared_ = false;
    StepLimits limits_;
    StepDescriptor step_;
    bool in_step_ = false;
    std::vector<std::int32_t> sampled_;
    std::vector<std::uint8_t> error_;
    std::vector<RowLogprobs> logprobs_;
    StepOutputs outputs_;
};

// ---------------------------------------------------------------------------------------------
// Load

DeviceInfo CpuBackend::device() const {
    const int threads = pool_.threads();
    return {.name = "cpu (" + simd_target_ + ", " + std::to_string(threads) +
                    (threads == 1 ? " thread" : " threads") +
                    (is_reference_ ? ", double precision reference)" : ")"),
            .memory_bytes_free = cpu::memory_available_bytes(),
            .memory_is_host = true};
}

TensorView CpuBackend::allocate(DType dtype, std::span<const std::int64_t> shape) {
    assert(!shape.empty() && shape.size() <= 4);
    TensorView view{.dtype = dtype, .rank = static_cast<int>(shape.size())};
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        assert(shape[i] >= 0);
        view.shape[i] = shape[i];
        if (__builtin_mul_overflow(elements, shape[i], &elements)) throw std::bad_alloc();
    }
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, element_bytes(dtype), &bytes)) throw std::bad_alloc();
    view.row_stride = view.row_elements();
    view.data = arena_.take(static_cast<std::size_t>(bytes));
    return view;
}

TensorView CpuBackend::upload_f32(std::span<const float> values,
                                  std::span<const std::int64_t> shape) {
    const TensorView view = allocate(DType::kF32, shape);
    assert(static_cast<std::int64_t>(values.size()) == view.shape[0] * view.row_elements());
    std::copy(values.begin(), values.end(), view.as<float>());
    return view;
}

std::optional<Refusal> CpuBackend::pack(std::span<const MatrixSource> sources, MatrixView& out) {
    assert(!is_prepared_ && "pack comes before prepare");
    cpu::Matrix matrix;
    if (std::optional<Refusal> refusal = cpu::make_matrix(sources, matrix)) return refusal;
    out = {.id = static_cast<std::int32_t>(matrices_.size()), .n = matrix.n, .k = matrix.k};
    matrices_.push_back(matrix);
    return std::nullopt;
}

std::optional<Refusal> CpuBackend::prepare(const StepLimits& limits) {
    assert(!is_prepared_ && "prepare comes once");
    const std::pair<const char*, std::int32_t> counts[] = {{"rows", limits.rows},
                                                           {"seqs", limits.seqs},
                                                           {"logit_rows", limits.logit_rows},
                                                           {"vocabulary", limits.vocabulary},
                                                           {"inputs_max", limits.inputs_max}};
    for (const auto& [name, count] : counts)
        if (count <= 0)
            return Refusal{"step limits", std::string(name) + " = " + std::to_string(count),
                           "is not positive", "give the largest step the model will run"};
    for (const cpu::Matrix& matrix : matrices_)
        if (matrix.k > limits.inputs_max)
            return Refusal{"step limits", "inputs_max = " + std::to_string(limits.inputs_max),
                           "is below the " + std::to_string(matrix.k) + " inputs of a matrix",
                           "give the largest K of any linear"};
    try {
        scratch_.reserve(limits, pool_.threads(), is_reference_, arena_);
        sampled_.resize(static_cast<std::size_t>(limits.logit_rows));
        error_.resize(static_cast<std::size_t>(limits.logit_rows));
        logprobs_.resize(static_cast<std::size_t>(limits.logit_rows));
    } catch (const std::bad_alloc&) {
        return Refusal{"step scratch", std::to_string(limits.rows) + " rows",
                       "needs more memory than the system gives", "lower the token budget"};
    }
    limits_ = limits;
    is_prepared_ = true;
    return std::nullopt;
}

// ---------------------------------------------------------------------------------------------
// Between steps

/// Bytes of one index of the first dimension.
std::span<std::byte> item_of(const TensorView& tensor, std::int64_t index) {
    assert(index >= 0 && index < tensor.shape[0] && "an item of the tensor");
    const std::int64_t bytes = element_bytes(tensor.dtype);
    return {static_cast<std::byte*>(tensor.data) + index * tensor.row_stride * bytes,
            static_cast<std::size_t>(tensor.row_elements() * bytes)};
}

void CpuBackend::copy_item(const TensorView& tensor, std::int64_t from, std::int64_t to) {
    assert(!in_step_);
    const std::span<std::byte> source = item_of(tensor, from);
    if (from != to) std::memcpy(item_of(tensor, to).data(), source.data(), source.size());
}

void CpuBackend::read_item(const TensorView& tensor, std::int64_t index, std::span<std::byte> to) {
    assert(!in_step_);
    const std::span<std::byte> item = item_of(tensor, index);
    assert(to.size() == item.size());
    std::memcpy(to.data(), item.data(), item.size());
}

void CpuBackend::write_item(const TensorView& tensor, std::int64_t index,
                            std::span<const std::byte> from) {
    assert(!in_step_);
    const std::span<std::byte> item = item_of(tensor, index);
    assert(from.size() == item.size());
    std::memcpy(item.data(), from.data(), item.size());
}

// ---------------------------------------------------------------------------------------------
// Step

void CpuBackend::begin_step(const StepDescriptor& step) {
    assert(is_prepared_ && "prepare comes before the first step");
    assert(!in_step_ && "finish_step ends a step");
    assert(step.rows <= limits_.rows && step.seqs <= limits_.seqs &&
           step.logit_rows <= limits_.logit_rows);
    assert(step.blocks_per_seq_max <= limits_.blocks_per_seq || limits_.blocks_per_seq == 0);
    assert(step.seqs == 0 || (step.row_begin.front() == 0 &&
                              step.row_begin[static_cast<std::size_t>(step.seqs)] == step.rows));
    pool_.pin_caller();
    step_ = step;
    context_.step = &step_;
    outputs_ = {};
    in_step_ = true;
}

/// The embedding of row m's token; zeros for a row without one.
void CpuBackend::embed_row(const cpu::Matrix& table, std::int64_t m, float* out) const {
    const std::int32_t token = step_.token[static_cast<std::size_t>(m)];
    if (token < 0) {
        std::fill(out, out + table.k, 0.0F);
        return;
    }
    const cpu::Segment& segment = table.segment_of(token);
    decode_row(segment.dtype, segment.blocks + (token - segment.first) * segment.row_bytes, out,
               table.k);
}

void CpuBackend::norm_row(const float* x, const TensorView& weight, float eps, float* out) const {
    context_.rows.rms_norm(x, weight.as<float>(), eps, weight.shape[0], out);
}

void CpuBackend::embed(const EmbedArgs& args) {
    assert(in_step_ && args.x.shape[1] == args.table.k);
    const cpu::Matrix& table = matrix(args.table);
    pool_.run(step_.rows, [&](const LoopPart& part) {
        for (std::int64_t m = part.begin; m < part.end; ++m)
            embed_row(table, m, args.x.row<float>(m));
    });
}

void CpuBackend::run_linear(const cpu::LinearJob& job) {
    if (is_reference_) {
        cpu::reference_linear(context_, job);
    } else {
        cpu::linear(context_, job);
    }
}

void CpuBackend::linear(const LinearArgs& args) {
    assert(in_step_ && args.x.shape[1] == args.w.k && args.x.rows() >= step_.rows);
    assert(args.y.shape[1] == (args.epilogue == Epilogue::kSwiGlu ? args.w.n / 2 : args.w.n));
    assert(args.epilogue != Epilogue::kSwiGlu || args.w.n % 2 == 0);
    assert(args.norm_weight.empty() || args.norm_weight.shape[0] == args.w.k);
    assert(args.bias.empty() || args.bias.shape[0] == args.w.n);
    run_linear({.matrix = &matrix(args.w),
                .rows = step_.rows,
                .x = args.x.as<float>(),
                .x_stride = args.x.row_stride,
                .norm_weight = data_or_null(args.norm_weight),
                .norm_eps = args.norm_eps,
                .bias = data_or_null(args.bias),
                .epilogue = args.epilogue,
                .y = args.y.as<float>(),
                .y_stride = args.y.row_stride});
}

void CpuBackend::delta_net(const DeltaNetArgs& args) {
    assert(in_step_);
    if (is_reference_) {
        cpu::reference_delta_net(context_, args);
    } else {
        cpu::delta_net(context_, args);
    }
}

void CpuBackend::attention(const AttentionArgs& args) {
    assert(in_step_ && args.n_kv > 0 && args.n_h % args.n_kv == 0);
    assert(args.n_rot % 2 == 0 && args.n_rot <= args.head_dim);
    assert(args.n_rot == 0 || args.rope.shape[1] == args.n_rot);
    assert(args.kv.k.dtype == DType::kF16 || args.kv.k.dtype == DType::kF32);
    assert(args.kv.k.dtype == args.kv.v.dtype && args.kv.k.shape == args.kv.v.shape);
    assert(args.kv.k.shape[1] == args.n_kv && args.kv.k.shape[3] == args.head_dim);
    if (is_reference_) {
        cpu::reference_attention(context_, args);
    } else {
        cpu::attention(context_, args);
    }
}

void CpuBackend::head(const HeadArgs& args) {
    assert(in_step_);
    pool_.run(step_.rows, [&](const LoopPart& part) {
        for (std::int64_t m = part.begin; m < part.end; ++m)
            norm_row(args.x.row<float>(m), args.norm_weight, args.norm_eps,
                     args.hidden.row<float>(m));
    });
    if (args.w.empty()) return;
    run_linear({.matrix = &matrix(args.w),
                .rows = step_.logit_rows,
                .row_map = step_.logit_row.data(),
                .x = args.hidden.as<float>(),
                .x_stride = args.hidden.row_stride,
                .y = args.logits.as<float>(),
                .y_stride = args.logits.row_stride});
    publish_logits(args.logits);
}

void CpuBackend::mtp_join(const MtpJoinArgs& args) {
    assert(in_step_ && args.joined.shape[1] == 2 * args.table.k);
    assert(static_cast<std::int32_t>(step_.hidden_row.size()) >= step_.rows &&
           "an MTP pass says which hidden rows it joins");
    const cpu::Matrix& table = matrix(args.table);
    pool_.run(step_.rows, [&](const LoopPart& part) {
        for (std::int64_t m = part.begin; m < part.end; ++m) {
            float* embedding = args.joined.row<float>(m);
            embed_row(table, m, embedding);
            norm_row(embedding, args.embed_norm_weight, args.norm_eps, embedding);
            const std::int32_t hidden_row = step_.hidden_row[static_cast<std::size_t>(m)];
            norm_row(args.hidden.row<float>(hidden_row), args.hidden_norm_weight, args.norm_eps,
                     embedding + table.k);
        }
    });
}

void CpuBackend::publish_logits(const TensorView& logits) {
    if (!step_.wants_logits) return;
    assert(logits.row_stride == logits.shape[1] && "logits rows follow each other");
    outputs_.logits = {logits.as<float>(), static_cast<std::size_t>(step_.logit_rows) *
                                               static_cast<std::size_t>(logits.shape[1])};
}

void CpuBackend::sample(const SampleArgs& args) {
    assert(in_step_);
    publish_logits(args.logits);
    if (step_.sampling.empty()) return;
    assert(static_cast<std::int32_t>(step_.sampling.size()) == step_.logit_rows);
    assert(args.logits.shape[1] <= limits_.vocabulary);
    const auto vocabulary = static_cast<std::size_t>(args.logits.shape[1]);
    pool_.run(step_.logit_rows, [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i) {
            const auto row = static_cast<std::size_t>(i);
            const SampledToken drawn =
                sample_row({args.logits.row<float>(i), vocabulary}, step_.sampling[row],
                           args.vocabulary_used, context_.thread(part).sampling);
            sampled_[row] = drawn.token;
            error_[row] = drawn.error ? 1 : 0;
            if (step_.sampling[row].top_logprobs >= 0)
                logprobs_[row] =
                    row_logprobs({args.logits.row<float>(i), vocabulary}, args.vocabulary_used,
                                 drawn, step_.sampling[row].top_logprobs);
        }
    });
    const auto count = static_cast<std::size_t>(step_.logit_rows);
    outputs_.sampled = {sampled_.data(), count};
    outputs_.error = {error_.data(), count};
    if (wants_logprobs(step_.sampling)) outputs_.logprobs = {logprobs_.data(), count};
}

const StepOutputs& CpuBackend::finish_step() {
    assert(in_step_ && "begin_step begins a step");
    in_step_ = false;
    return outputs_;
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
    return std::make_unique<CpuBackend>(options);
}

}  // namespace kernels
