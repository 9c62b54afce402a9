#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cuda/sample_edits.h"

namespace kernels::cuda {
namespace {

DeviceAddress address_of(const TensorView& view, std::int64_t row) {
    return reinterpret_cast<DeviceAddress>(view.as<float>() + row * view.row_stride);
}

}  // namespace

Sampler::Sampler(const Driver& driver, KernelSet& kernels, int shared_bytes_max,
                 std::span<const std::string> disabled)
    : driver_(driver),
      kernels_(kernels),
      entry_{.name = "sample_rows", .variant = "F32", .reason = {}, .fallback = "the host"} {
    if (!kernels.has(KernelId::kSampleRows)) {
        mark_wrong_arch(entry_);
    } else if (kernels.allow_shared_bytes(KernelId::kSampleRows, shared_bytes_max) != kSuccess) {
        entry_.state = KernelState::kFailed;
        entry_.reason = "the driver does not grant " + std::to_string(shared_bytes_max) +
                        " bytes of shared memory";
    }
    if (is_named_by_any(entry_, disabled)) {
        entry_.state = KernelState::kDisabled;
        entry_.reason = "by the operator";
    }
}

void Sampler::reserve(const StepLimits& limits) {
    limits_ = limits;
    const auto rows = static_cast<std::size_t>(limits.logit_rows);
    const auto rules_bytes = static_cast<std::size_t>(sample_rules_bytes(limits.logit_rows));
    const auto drawn_bytes = static_cast<std::size_t>(sample_drawn_bytes(limits.logit_rows));
    host_logits_ = make_pinned_buffer(
        driver_, rows * static_cast<std::size_t>(limits.vocabulary) * sizeof(float));
    host_rules_ = make_pinned_buffer(driver_, rules_bytes);
    host_drawn_ = make_pinned_buffer(driver_, drawn_bytes);
    rules_ = make_device_buffer(driver_, rules_bytes);
    drawn_ = make_device_buffer(driver_, drawn_bytes);
    edits_.reserve(kSampleEditsMax);
    scratch_.reserve(limits.vocabulary);
    sampled_.resize(rows);
    error_.resize(rows);
    logprobs_.resize(rows);
    if (entry_.state == KernelState::kArmed && sample_ids(limits.vocabulary) > kSampleIdsMax) {
        entry_.state = KernelState::kFailed;
        entry_.reason = "a vocabulary of " + std::to_string(limits.vocabulary) +
                        " does not fit the shared memory of a cluster";
    }
}

KernelEntry Sampler::entry() const {
    KernelEntry entry = entry_;
    entry.runs = kernels_.runs(KernelId::kSampleRows);
    return entry;
}

void Sampler::begin() {
    logits_ = {};
    wants_logits_ = false;
    draws_ = false;
    draws_here_ = false;
}

void Sampler::want_logits(const TensorView& logits) {
    assert(logits.row_stride == logits.shape[1] && "logits rows follow each other");
    assert(logits.shape[1] <= limits_.vocabulary);
    logits_ = logits;
    wants_logits_ = true;
}

/// False: more edits than the device has room for.
bool Sampler::upload(const StepDescriptor& step, StreamHandle stream) {
    const auto rows = static_cast<std::size_t>(step.logit_rows);
    auto* const rules = static_cast<SampleRow*>(host_rules_.get());
    edits_.clear();
    for (std::size_t row = 0; row < rows; ++row) {
        rules[row] = flatten(step.sampling[row], edits_);
        if (edits_.size() > std::size_t{kSampleEditsMax}) return false;
    }
    // Behind the rows that a step can have at most: the kernel's addresses never change.
    const auto edits_at = static_cast<std::size_t>(sample_edits_at(limits_.logit_rows));
    const std::size_t edit_bytes = edits_.size() * sizeof(LogitEdit);
    std::memcpy(static_cast<std::byte*>(host_rules_.get()) + edits_at, edits_.data(), edit_bytes);
    check_cuda(driver_,
               driver_.copy_to_device(
                   rules_.get(), rules,
                   edit_bytes == 0 ? rows * sizeof(SampleRow) : edits_at + edit_bytes, stream),
               "upload of sampling rules");
    return true;
}

void Sampler::sample(const StepDescriptor& step, const SampleArgs& args, StreamHandle stream) {
    if (step.logit_rows == 0) return;
    assert(static_cast<std::int32_t>(step.sampling.size()) == step.logit_rows);
    assert(args.logits.row_stride == args.logits.shape[1] && "logits rows follow each other");
    assert(args.logits.shape[1] <= limits_.vocabulary);
    logits_ = args.logits;
    draws_ = true;
    vocabulary_used_ = args.vocabulary_used;
    if (entry_.state != KernelState::kArmed || !upload(step, stream)) {
        ++entry_.fallback_runs;
        return;
    }
    draws_here_ = true;
    const auto edits_at = static_cast<std::size_t>(sample_edits_at(limits_.logit_rows));
    SampleParams p{};
    p.rows = reinterpret_cast<const SampleRow*>(rules_.get());
    p.edits = reinterpret_cast<const LogitEdit*>(rules_.get() + edits_at);
    p.logits = args.logits.as<float>();
    p.logits_stride = args.logits.row_stride;
    p.vocabulary = args.vocabulary_used;
    p.ids = static_cast<std::int32_t>(sample_ids(args.vocabulary_used));
    p.tokens = reinterpret_cast<std::int32_t*>(drawn_.get());
    p.statuses = p.tokens + limits_.logit_rows;
    kernels_.launch(KernelId::kSampleRows,
                    {.x = std::int64_t{kSampleBlocks} * step.logit_rows,
                     .threads = kSampleThreads,
                     .shared_bytes = static_cast<int>(sample_shared_bytes(args.vocabulary_used)),
                     .overlaps_previous = true},
                    stream, p);
}

std::span<const float> Sampler::host_row(std::size_t row) const {
    const auto width = static_cast<std::size_t>(logits_.shape[1]);
    return {static_cast<const float*>(host_logits_.get()) + row * width, width};
}

void Sampler::fetch_all(std::int32_t rows, StreamHandle stream) {
    check_cuda(driver_,
               driver_.copy_to_host(
                   host_logits_.get(), address_of(logits_, 0),
                   static_cast<std::size_t>(rows * logits_.shape[1]) * sizeof(float), stream),
               "download of logits");
}

void Sampler::fetch_rows(std::span<const std::size_t> rows, StreamHandle stream) {
    for (const std::size_t row : rows) {
        const std::span<const float> to = host_row(row);
        check_cuda(driver_,
                   driver_.copy_to_host(const_cast<float*>(to.data()),
                                        address_of(logits_, static_cast<std::int64_t>(row)),
                                        to.size_bytes(), stream),
                   "download of logits");
    }
    check_cuda(driver_, driver_.stream_synchronize(stream), "download of logits");
}

void Sampler::draw_on_host(const SamplingRow& rules, std::size_t row) {
    const SampledToken drawn = sample_row(host_row(row), rules, vocabulary_used_, scratch_);
    sampled_[row] = drawn.token;
    error_[row] = drawn.error ? 1 : 0;
    if (rules.top_logprobs >= 0)
        logprobs_[row] = row_logprobs(host_row(row), vocabulary_used_, drawn, rules.top_logprobs);
}

std::vector<std::size_t> Sampler::rows_for_host(const StepDescriptor& step) const {
    const auto* statuses = static_cast<const std::int32_t*>(host_drawn_.get()) + limits_.logit_rows;
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < step.sampling.size(); ++row)
        if (!draws_here_ || step.sampling[row].top_logprobs >= 0 ||
            statuses[row] == static_cast<std::int32_t>(SampleStatus::kHost))
            rows.push_back(row);
    return rows;
}

void Sampler::finish(const StepDescriptor& step, StepOutputs& outputs, StreamHandle stream) {
    const auto rows = static_cast<std::size_t>(step.logit_rows);
    if (wants_logits_ && rows > 0) fetch_all(step.logit_rows, stream);
    if (draws_here_)
        check_cuda(driver_,
                   driver_.copy_to_host(
                       host_drawn_.get(), drawn_.get(),
                       static_cast<std::size_t>(sample_drawn_bytes(limits_.logit_rows)), stream),
                   "download of tokens");
    check_cuda(driver_, driver_.stream_synchronize(stream), "step");
    if (wants_logits_)
        outputs.logits = {static_cast<const float*>(host_logits_.get()),
                          rows * static_cast<std::size_t>(logits_.shape[1])};
    if (!draws_) return;
    if (draws_here_) {
        const auto* tokens = static_cast<const std::int32_t*>(host_drawn_.get());
        const auto* statuses = tokens + limits_.logit_rows;
        std::copy_n(tokens, rows, sampled_.begin());
        for (std::size_t row = 0; row < rows; ++row)
            error_[row] =
                statuses[row] == static_cast<std::int32_t>(SampleStatus::kNoLogit) ? 1 : 0;
    }
    const std::vector<std::size_t> for_host = rows_for_host(step);
    if (!wants_logits_ && !for_host.empty()) fetch_rows(for_host, stream);
    for (const std::size_t row : for_host)
        draw_on_host(step.sampling[row], row);
    outputs.sampled = {sampled_.data(), rows};
    outputs.error = {error_.data(), rows};
    if (wants_logprobs(step.sampling)) outputs.logprobs = {logprobs_.data(), rows};
}

}  // namespace kernels::cuda
