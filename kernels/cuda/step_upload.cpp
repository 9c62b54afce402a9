#include "kernels/cuda/step_upload.h"

#include <algorithm>
#include <cassert>
#include <span>

namespace kernels::cuda {
namespace {

constexpr std::int64_t kHeaderEntries = 16;  // rows, seqs, logit_rows, table_stride
constexpr std::int64_t kAlignEntries = 16;   // every array begins at a multiple of 64 bytes

std::int64_t aligned(std::int64_t entries) {
    return (entries + kAlignEntries - 1) / kAlignEntries * kAlignEntries;
}

}  // namespace

StepUpload::StepUpload(const Driver& driver, const StepLimits& limits) : driver_(&driver) {
    table_entries_ = std::int64_t{limits.seqs} * limits.blocks_per_seq;
    const std::int64_t rows = aligned(limits.rows);
    const std::int64_t seqs = aligned(limits.seqs + 1);
    const std::int64_t rules = aligned(sample_edits_at(limits.logit_rows) /
                                       static_cast<std::int64_t>(sizeof(std::int32_t)));
    const std::int64_t total = kHeaderEntries + 4 * rows + 5 * seqs + aligned(limits.logit_rows) +
                               rules + aligned(table_entries_);
    const auto bytes = static_cast<std::size_t>(total) * sizeof(std::int32_t);
    device_ = make_device_buffer(driver, bytes);
    pinned_ = make_pinned_buffer(driver, bytes);

    const auto* base = reinterpret_cast<const std::int32_t*>(device_.get());
    const std::int32_t* next = base + kHeaderEntries;
    const auto take = [&](std::int64_t entries) {
        const std::int32_t* begin = next;
        next += entries;
        return begin;
    };
    view_ = {.rows = base, .seqs = base + 1, .logit_rows = base + 2, .table_stride = base + 3};
    view_.token = take(rows);
    view_.position = take(rows);
    view_.seq_of_row = take(rows);
    view_.row_begin = take(seqs);
    view_.kv_len_before = take(seqs);
    view_.state_slot = take(seqs);
    view_.replay_rows = take(seqs);
    view_.commit = take(seqs);
    view_.hidden_row = take(rows);
    view_.logit_row = take(aligned(limits.logit_rows));
    rules_begin_ = take(rules) - base;
    view_.block_table = next;
    table_begin_ = next - base;
}

void StepUpload::fill(const StepDescriptor& step) {
    const auto* base = view_.rows;
    std::int32_t* host = host_words();
    const auto at = [&](const std::int32_t* where) { return host + (where - base); };
    const auto put = [&](const std::int32_t* where, std::span<const std::int32_t> values,
                         std::int64_t count) {
        assert(static_cast<std::int64_t>(values.size()) >= count && "arrays of the step's counts");
        std::copy_n(values.data(), count, at(where));
    };
    host[0] = step.rows;
    host[1] = step.seqs;
    host[2] = step.logit_rows;
    host[3] = step.blocks_per_seq_max;
    put(view_.token, step.token, step.rows);
    put(view_.position, step.position, step.rows);
    put(view_.seq_of_row, step.seq_of_row, step.rows);
    put(view_.row_begin, step.row_begin, step.seqs + 1);
    put(view_.kv_len_before, step.kv_len_before, step.seqs);
    put(view_.state_slot, step.state_slot, step.seqs);
    put(view_.logit_row, step.logit_row, step.logit_rows);
    if (step.replay_rows.empty()) {
        std::fill_n(at(view_.replay_rows), step.seqs, 0);
    } else {
        put(view_.replay_rows, step.replay_rows, step.seqs);
    }
    if (step.commit.empty()) {
        std::fill_n(at(view_.commit), step.seqs, 1);
    } else {
        std::copy_n(step.commit.data(), step.seqs, at(view_.commit));
    }
    if (!step.hidden_row.empty()) put(view_.hidden_row, step.hidden_row, step.rows);
    const std::int64_t entries = std::min<std::int64_t>(
        std::int64_t{step.seqs} * step.blocks_per_seq_max,
        static_cast<std::int64_t>(step.block_table.size()));  // none without attention
    assert(entries <= table_entries_ && "block tables within the limits");
    put(view_.block_table, step.block_table, entries);
    filled_ = table_begin_ + entries;
    is_sent_ = false;
}

void StepUpload::send(StreamHandle stream) {
    const auto bytes = static_cast<std::size_t>(filled_) * sizeof(std::int32_t);
    check_cuda(*driver_, driver_->copy_to_device(device_.get(), pinned_.get(), bytes, stream),
               "upload of the step");
    is_sent_ = true;
}

void StepUpload::send_rules(std::int32_t logit_rows, StreamHandle stream) {
    check_cuda(*driver_,
               driver_->copy_to_device(
                   device_.get() + static_cast<std::size_t>(rules_begin_) * sizeof(std::int32_t),
                   rules(), static_cast<std::size_t>(logit_rows) * sizeof(SampleRow), stream),
               "upload of sampling rules");
}

}  // namespace kernels::cuda
