#include "tests/support/golden/model_session.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#ifdef QUADRIGA_HAS_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace golden {

tl::expected<std::unique_ptr<kernels::Backend>, std::string> make_backend(
    const SessionOptions& options) {
    kernels::CpuBackendOptions cpu;
    cpu.threads = options.threads;
    if (options.backend == "cpu") return kernels::make_cpu_backend(cpu);
    if (options.backend == "cpu-reference") {
        cpu.accumulator = kernels::CpuAccumulator::kDouble;
        return kernels::make_cpu_backend(cpu);
    }
#ifdef QUADRIGA_HAS_CUDA
    if (options.backend == "cuda") return kernels::make_cuda_backend({});
    if (options.backend == "cuda-sm70" && kernels::has_cuda_sm_70())
        return kernels::make_cuda_backend({.with_own_ptx = true});
#endif
    return tl::unexpected("backend '" + options.backend + "' is not in this build; there are " +
                          backend_names());
}

std::vector<std::string> backend_list() {
    std::vector<std::string> names{"cpu", "cpu-reference"};
#ifdef QUADRIGA_HAS_CUDA
    names.emplace_back("cuda");
    if (kernels::has_cuda_sm_70()) names.emplace_back("cuda-sm70");
#endif
    return names;
}

std::string backend_names() {
    std::string text;
    for (const std::string& name : backend_list())
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

tl::expected<std::unique_ptr<ModelSession>, std::string> ModelSession::open(
    const std::filesystem::path& model, const SessionOptions& options) {
    auto file = replica::GgufFile::open(model);
    if (!file) return tl::unexpected(file.error().text());
    std::unique_ptr<ModelSession> session(new ModelSession(*std::move(file), options));
    auto backend = make_backend(options);
    if (!backend) return tl::unexpected(backend.error());
    session->backend_ = *std::move(backend);
    // A whole context for every sequence: block tables here are fixed.
    const std::int32_t whole =
        (options.context + options.block_tokens - 1) / options.block_tokens * options.block_tokens;
    const replica::RunnerOptions runner_options{
        .context = options.context,
        .sequences_max = options.sequences,
        .step_rows_max = options.rows_max,
        .logit_rows_max = options.rows_max,
        .block_tokens = options.block_tokens,
        .kv_tokens = std::int64_t{options.sequences} * whole,
        .kv_dtype = options.kv_dtype,
        .with_mtp = true};
    auto runner = replica::ModelRunner::load(session->file_, *session->backend_, runner_options,
                                             replica::LoadProgress{});
    if (!runner) return tl::unexpected(runner.error().text());
    session->runner_ = *std::move(runner);
    return session;
}

ModelSession::ModelSession(replica::GgufFile file, SessionOptions options)
    : file_(std::move(file)),
      options_(std::move(options)),
      trunk_lengths_(static_cast<std::size_t>(options_.sequences)),
      mtp_lengths_(static_cast<std::size_t>(options_.sequences)) {}

bool ModelSession::is_f32() const {
    return std::ranges::all_of(file_.tensors(), [](const replica::GgufTensor& tensor) {
        return tensor.dtype == kernels::DType::kF32;
    });
}

void ModelSession::reset(std::int32_t sequence) {
    trunk_lengths_[static_cast<std::size_t>(sequence)] = 0;
    mtp_lengths_[static_cast<std::size_t>(sequence)] = 0;
}

std::span<const float> ModelSession::step(std::span<const Chunk> chunks) {
    return run(chunks, trunk_lengths_, false);
}

std::span<const float> ModelSession::step_mtp(std::int32_t sequence,
                                              std::span<const std::int32_t> tokens) {
    const Chunk chunk{.sequence = sequence, .tokens = tokens, .logits = Rows::kAll};
    return run(std::span(&chunk, 1), mtp_lengths_, true);
}

std::span<const float> ModelSession::step_mtp_all_visible(std::span<const std::int32_t> tokens,
                                                          std::size_t begin, std::size_t count) {
    assert(options_.block_tokens == 1 && "entries are exchanged page by page");
    assert(count <= static_cast<std::size_t>(options_.sequences) && "one sequence an entry");
    const auto entries = static_cast<std::int32_t>(tokens.size());
    const std::int32_t blocks_per_seq = runner_->limits().step.blocks_per_seq;
    const auto table_width = static_cast<std::size_t>(blocks_per_seq);
    std::vector<std::int32_t> position, row, row_begin{0}, slots(count, 0);
    std::vector<std::int32_t> block_table(count * table_width);
    for (std::size_t i = 0; i < count; ++i) {
        const std::span table = std::span(block_table).subspan(i * table_width, table_width);
        for (std::int32_t b = 0; b < blocks_per_seq; ++b) {
            table[static_cast<std::size_t>(b)] = b * options_.sequences;
        }
        std::swap(table[begin + i], table[tokens.size() - 1]);
        position.push_back(static_cast<std::int32_t>(begin + i));
        row.push_back(static_cast<std::int32_t>(i));
        row_begin.push_back(static_cast<std::int32_t>(i) + 1);
    }
    const std::vector<std::int32_t> before(count, entries - 1);
    const std::vector<std::int32_t> after(count, entries);
    kernels::StepDescriptor step;
    step.rows = step.seqs = step.logit_rows = static_cast<std::int32_t>(count);
    step.token = tokens.subspan(begin, count);
    step.position = position;
    step.seq_of_row = row;
    step.row_begin = row_begin;
    step.kv_len_before = before;
    step.kv_len = after;
    step.state_slot = slots;
    step.block_table = block_table;
    step.blocks_per_seq_max = blocks_per_seq;
    step.logit_row = row;
    step.wants_logits = true;
    step.hidden_row = position;
    return runner_->run_draft(step, replica::HiddenSource::kTrunk).logits;
}

std::span<const float> ModelSession::run(std::span<const Chunk> chunks,
                                         std::vector<std::int32_t>& lengths, bool mtp) {
    std::vector<std::int32_t> token, position, seq_of_row, row_begin{0}, before, after, slots;
    std::vector<std::int32_t> logit_row, block_table;
    const std::int32_t blocks_per_seq = runner_->limits().step.blocks_per_seq;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const Chunk& chunk = chunks[c];
        std::int32_t& length = lengths[static_cast<std::size_t>(chunk.sequence)];
        before.push_back(length);
        for (const std::int32_t id : chunk.tokens) {
            token.push_back(id);
            position.push_back(length++);
            seq_of_row.push_back(static_cast<std::int32_t>(c));
            if (chunk.logits == Rows::kAll) {
                logit_row.push_back(static_cast<std::int32_t>(token.size()) - 1);
            }
        }
        if (chunk.logits == Rows::kLast) {
            logit_row.push_back(static_cast<std::int32_t>(token.size()) - 1);
        }
        after.push_back(length);
        row_begin.push_back(static_cast<std::int32_t>(token.size()));
        slots.push_back(chunk.sequence + 1);
        // Pages of the sequences are interleaved, so that a wrong page is another sequence's.
        for (std::int32_t b = 0; b < blocks_per_seq; ++b) {
            block_table.push_back(b * options_.sequences + chunk.sequence);
        }
    }
    kernels::StepDescriptor step;
    step.rows = static_cast<std::int32_t>(token.size());
    step.seqs = static_cast<std::int32_t>(chunks.size());
    step.logit_rows = static_cast<std::int32_t>(logit_row.size());
    step.token = token;
    step.position = position;
    step.seq_of_row = seq_of_row;
    step.row_begin = row_begin;
    step.kv_len_before = before;
    step.kv_len = after;
    step.state_slot = slots;
    step.block_table = block_table;
    step.blocks_per_seq_max = blocks_per_seq;
    step.logit_row = logit_row;
    step.wants_logits = true;
    if (!mtp) return runner_->run(step).logits;
    std::vector<std::int32_t> hidden_row(token.size());
    std::iota(hidden_row.begin(), hidden_row.end(), 0);
    step.hidden_row = hidden_row;
    return runner_->run_draft(step, replica::HiddenSource::kTrunk).logits;
}

}  // namespace golden
