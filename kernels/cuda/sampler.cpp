#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <limits>

#include "kernels/cuda/sample_edits.h"

namespace kernels::cuda {
namespace {

/// What lies where the kernel has not written yet: no token and no status.
constexpr std::int32_t kNotDrawn = std::numeric_limits<std::int32_t>::min();
constexpr int kLooksBetweenQueries = 4096;  // at the drawn tokens; then we ask how the stream is

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
    constexpr std::size_t kEditBytes = std::size_t{kSampleEditsMax} * sizeof(LogitEdit);
    host_logits_ = make_pinned_buffer(
        driver_, rows * static_cast<std::size_t>(limits.vocabulary) * sizeof(float));
    host_edits_ = make_pinned_buffer(driver_, kEditBytes);
    edits_there_ = make_device_buffer(driver_, kEditBytes);
    drawn_ = make_pinned_buffer(driver_,
                                static_cast<std::size_t>(sample_drawn_bytes(limits.logit_rows)));
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
bool Sampler::write_rules(const StepDescriptor& step, SampleRow* rules, StreamHandle stream) {
    edits_.clear();
    for (std::size_t row = 0; row < static_cast<std::size_t>(step.logit_rows); ++row) {
        rules[row] = flatten(step.sampling[row], edits_);
        if (edits_.size() > std::size_t{kSampleEditsMax}) return false;
    }
    if (edits_.empty()) return true;
    const std::size_t bytes = edits_.size() * sizeof(LogitEdit);
    std::memcpy(host_edits_.get(), edits_.data(), bytes);
    check_cuda(driver_,
               driver_.copy_to_device(edits_there_.get(), host_edits_.get(), bytes, stream),
               "upload of changed logits");
    return true;
}

void Sampler::sample(const StepDescriptor& step, const SampleArgs& args, StepUpload& upload,
                     StreamHandle stream) {
    if (step.logit_rows == 0) return;
    assert(static_cast<std::int32_t>(step.sampling.size()) == step.logit_rows);
    assert(args.logits.row_stride == args.logits.shape[1] && "logits rows follow each other");
    assert(args.logits.shape[1] <= limits_.vocabulary);
    logits_ = args.logits;
    draws_ = true;
    vocabulary_used_ = args.vocabulary_used;
    if (entry_.state != KernelState::kArmed || !write_rules(step, upload.rules(), stream)) {
        ++entry_.fallback_runs;
        return;
    }
    if (upload.is_sent()) upload.send_rules(step.logit_rows, stream);
    draws_here_ = true;
    SampleParams p{};
    p.rows = upload.device_rules();
    p.edits = reinterpret_cast<const LogitEdit*>(edits_there_.get());
    p.logits = args.logits.as<float>();
    p.logits_stride = args.logits.row_stride;
    p.vocabulary = args.vocabulary_used;
    p.ids = static_cast<std::int32_t>(sample_ids(args.vocabulary_used));
    p.tokens = static_cast<std::int32_t*>(drawn_.get());  // host memory has one address for both
    p.statuses = p.tokens + limits_.logit_rows;
    std::fill_n(p.tokens, step.logit_rows, kNotDrawn);
    std::fill_n(p.statuses, step.logit_rows, kNotDrawn);
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
    const auto* statuses = static_cast<const std::int32_t*>(drawn_.get()) + limits_.logit_rows;
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < step.sampling.size(); ++row)
        if (!draws_here_ || step.sampling[row].top_logprobs >= 0 ||
            statuses[row] == static_cast<std::int32_t>(SampleStatus::kHost))
            rows.push_back(row);
    return rows;
}

/// Watches for the tokens; behind them in the stream lies nothing. A stream that ends or fails
/// without them ends the watch too.
void Sampler::await_drawn(std::size_t rows, StreamHandle stream) const {
    const volatile auto* tokens = static_cast<const volatile std::int32_t*>(drawn_.get());
    const volatile std::int32_t* statuses = tokens + limits_.logit_rows;
    const auto has_row = [&](std::size_t row) {
        return tokens[row] != kNotDrawn && statuses[row] != kNotDrawn;
    };
    for (std::size_t row = 0; row < rows; ++row)
        for (int looks = 1; !has_row(row); ++looks) {
            __builtin_ia32_pause();
            if (looks % kLooksBetweenQueries != 0) continue;
            const Status status = driver_.stream_query(stream);
            if (status == kNotReady) continue;
            check_cuda(driver_, status, "step");
            check_cuda(driver_, driver_.stream_synchronize(stream), "step");
            assert(has_row(row) && "a step that has ended has drawn");
            break;
        }
    std::atomic_thread_fence(std::memory_order_acquire);
}

void Sampler::finish(const StepDescriptor& step, StepOutputs& outputs, StreamHandle stream) {
    const auto rows = static_cast<std::size_t>(step.logit_rows);
    if (wants_logits_ && rows > 0) fetch_all(step.logit_rows, stream);
    if (draws_here_ && !wants_logits_)
        await_drawn(rows, stream);
    else
        check_cuda(driver_, driver_.stream_synchronize(stream), "step");
    if (wants_logits_)
        outputs.logits = {static_cast<const float*>(host_logits_.get()),
                          rows * static_cast<std::size_t>(logits_.shape[1])};
    if (!draws_) return;
    if (draws_here_) {
        const auto* tokens = static_cast<const std::int32_t*>(drawn_.get());
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
