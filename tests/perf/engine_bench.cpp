// engine-bench: our side of tests/perf/cpu_vs_llama and gpu_vs_llama. A model on a backend, stepped
// with the batches a caller asks for, one JSON object a line:
//
//   engine-bench MODEL [--backend cpu] [--threads 2] [--cores 0 1] [--context 1024] [--sequences
//   16]
//
//   {"op":"decode","sequences":4,"prompt":[ids],"tokens":[ids]}   prefills each sequence with the
//       prompt (not timed), then feeds one token per sequence and step:
//       {"ms":[per step],"cpu_ms":sum,"argmax":[[id per sequence] per step],"finite":true}
//   {"op":"prefill","tokens":[ids],"step":64}                     one sequence, in steps of at most
//       64 rows: {"ms":[whole],"cpu_ms":x,"argmax":[[id]],"finite":true}; with "trace":true, on
//       backend cuda, also "kernel_us":{kernel:sum}, every launch timed by itself
//   {"op":"timeline","sequences":4,"prompt":[ids],"tokens":[ids]}  as decode, then what each launch
//   of
//       one more step takes on a GPU:
//       {"launches":[{"kernel":"norm_rows","blocks":4,"us":2.1}],"finite":true}
//   {"op":"verify","sequences":1,"rows":5,"prompt":[ids],"tokens":[ids]}  as decode, with 5 rows of
//   a
//       sequence in every step, of which the one before has all accepted
//   {"op":"draft","sequences":1,"prompt":[ids],"tokens":[ids]}     passes of the MTP block with its
//       head, a row of each sequence, behind a decode step of the same
//       Both, with "timeline":true: {"launches":[...]} of one more of them.
//   {"op":"rehearse","sequences":16,"drafts":3}                    {"steps":48,"ms":x,"bytes":of
//   the
//       device's memory}
//   {"op":"gaps","tokens":[ids],"answer":[ids]}                    {"gaps":[logit of each token of
//       the answer minus the best other one]}
//
// Sequence s begins the prompt at its s-th id and the tokens likewise, so that sequences differ.
// "draw":true lets decode draw greedy tokens on the device and leaves the logits there: "argmax"
// then holds what was drawn. Timed is the step alone, down to its logits; reading them for the
// answer is not.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "replica/gguf/reader.h"
#include "replica/model/rehearsal.h"
#include "replica/model/runner.h"
#include "tests/support/golden/model_session.h"

namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

struct BenchOptions {
    std::string model;
    std::string backend = "cpu";
    int threads = 2;
    std::vector<int> cores;
    std::int32_t context = 1024;
    std::int32_t sequences = 16;
    std::int32_t step_rows = 512;
    std::int32_t drafts = 0;
};

struct Verify {
    bool is_on = false;            // every row draws and none commits
    std::int32_t replay_rows = 0;  // accepted in the step before
};

/// A step with its arrays.
class Batch {
public:
    /// `draws`: a greedy token for each logit row, instead of the logits.
    explicit Batch(std::int32_t blocks_per_seq, bool draws = false)
        : blocks_per_seq_(blocks_per_seq), draws_(draws) {}

    /// Appends `tokens` of a sequence that holds `before` tokens; the last row gives logits.
    void add(std::int32_t sequence, std::span<const std::int32_t> tokens, std::int32_t before,
             Verify verify = {}) {
        const auto seq = static_cast<std::int32_t>(before_.size());
        before_.push_back(before);
        for (std::int32_t i = 0; const std::int32_t id : tokens) {
            token_.push_back(id);
            position_.push_back(before + i++);
            seq_of_row_.push_back(seq);
        }
        const auto rows = static_cast<std::int32_t>(token_.size());
        const auto logits = verify.is_on ? static_cast<std::int32_t>(tokens.size()) : 1;
        for (std::int32_t row = rows - logits; row < rows; ++row) {
            logit_row_.push_back(row);
            if (draws_) sampling_.push_back({.temperature = 0.0F});
        }
        replay_rows_.push_back(verify.replay_rows);
        commit_.push_back(verify.is_on ? 0 : 1);
        hidden_row_.resize(token_.size(), seq);
        after_.push_back(before + static_cast<std::int32_t>(tokens.size()));
        row_begin_.push_back(static_cast<std::int32_t>(token_.size()));
        slot_.push_back(sequence + 1);
        for (std::int32_t b = 0; b < blocks_per_seq_; ++b)
            block_table_.push_back(sequence * blocks_per_seq_ + b);
    }

    kernels::StepDescriptor step() const {
        kernels::StepDescriptor step;
        step.rows = static_cast<std::int32_t>(token_.size());
        step.seqs = static_cast<std::int32_t>(before_.size());
        step.logit_rows = static_cast<std::int32_t>(logit_row_.size());
        step.token = token_;
        step.position = position_;
        step.seq_of_row = seq_of_row_;
        step.row_begin = row_begin_;
        step.kv_len_before = before_;
        step.kv_len = after_;
        step.state_slot = slot_;
        step.replay_rows = replay_rows_;
        step.commit = commit_;
        step.hidden_row = hidden_row_;
        step.block_table = block_table_;
        step.blocks_per_seq_max = blocks_per_seq_;
        step.logit_row = logit_row_;
        step.sampling = sampling_;
        step.wants_logits = !draws_;
        return step;
    }

private:
    std::int32_t blocks_per_seq_;
    bool draws_;
    std::vector<kernels::SamplingRow> sampling_;
    Ids token_, position_, seq_of_row_, row_begin_{0}, before_, after_, slot_, logit_row_;
    Ids replay_rows_, hidden_row_;
    std::vector<std::uint8_t> commit_;
    Ids block_table_;
};

/// Wall and processor time of the steps, and what they said.
struct Record {
    Json ms = Json::array();
    Json argmax = Json::array();
    double cpu_ms = 0.0;
    bool is_finite = true;

    Json json() const {
        return {{"ms", ms}, {"cpu_ms", cpu_ms}, {"argmax", argmax}, {"finite", is_finite}};
    }
};

double process_cpu_ms() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

class Bench {
public:
    explicit Bench(const BenchOptions& options)
        : file_(open(options.model)),
          backend_(make_backend(options)),
          step_rows_(static_cast<std::size_t>(options.step_rows)) {
        const auto begin = std::chrono::steady_clock::now();
        auto runner = replica::ModelRunner::load(file_, *backend_,
                                                 {.context = options.context,
                                                  .sequences_max = options.sequences,
                                                  .step_rows_max = options.step_rows,
                                                  .kv_dtype = kernels::DType::kF16,
                                                  .draft_tokens_max = options.drafts},
                                                 replica::LoadProgress{});
        if (!runner) throw std::runtime_error(runner.error().text());
        runner_ = *std::move(runner);
        load_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    Json description() const {
        return {{"engine", "quadriga"},
                {"device", backend_->device().name},
                {"load_s", load_s_},
                {"file_bytes", file_.tensor_bytes()},
                {"vocabulary", runner_->config().vocabulary}};
    }

    Json decode(std::int32_t sequences, const Ids& prompt, const Ids& tokens, bool draws) {
        const std::int32_t length = fill(sequences, prompt);
        Record record;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            record.ms.push_back(run(decode_step(sequences, length, tokens, i, draws), record));
        return record.json();
    }

    /// Rows of a verify step; `rows` = 0: passes of the MTP block.
    Json speculate(std::int32_t sequences, std::int32_t rows, const Ids& prompt, const Ids& tokens,
                   bool has_timeline) {
        const bool is_draft = rows == 0;
        const std::int32_t length = fill(sequences, prompt);
        const auto step = [&](std::int32_t i) {
            if (is_draft)
                return decode_step(sequences, length, tokens, static_cast<std::size_t>(i), true);
            Batch batch(blocks_per_seq(), true);
            for (std::int32_t s = 0; s < sequences; ++s) {
                Ids own;
                for (std::int32_t row = 0; row < rows; ++row)
                    own.push_back(
                        tokens[static_cast<std::size_t>(i * rows + row + s) % tokens.size()]);
                batch.add(s, own, length + i * rows,
                          {.is_on = true, .replay_rows = i == 0 ? 0 : rows});
            }
            return batch;
        };
        Record record;
        if (is_draft) run(step(0), record);  // its hidden rows are what the passes join
        const auto steps = static_cast<std::int32_t>(tokens.size());
        for (std::int32_t i = 0; i < steps; ++i)
            record.ms.push_back(run(step(i), record, is_draft));
        if (!has_timeline) return record.json();
        return launches([&] { run(step(steps), record, is_draft); }, record);
    }

    Json rehearse(std::int32_t sequences, std::int32_t drafts) {
        const std::uint64_t free = backend_->device().memory_bytes_free;
        const auto begin = std::chrono::steady_clock::now();
        int steps = 0;
        for (const replica::Rehearsal& one : replica::plan_rehearsals({.sequences = sequences,
                                             .draft_tokens_max = drafts,
                                             .draft_batch_max = 4,
                                             .logit_rows = runner_->limits().step.logit_rows,
                                             .steps_max = 192}))
            steps += runner_->rehearse(one) ? 1 : 0;
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - begin;
        return {{"steps", steps},
                {"ms", time.count()},
                {"bytes", free - backend_->device().memory_bytes_free}};
    }

    /// Behind a decode of the same.
    Json timeline(std::int32_t sequences, const Ids& prompt, const Ids& tokens, bool draws) {
        decode(sequences, prompt, tokens, draws);
        Record record;
        const auto length = static_cast<std::int32_t>(prompt.size());
        return launches(
            [&] { run(decode_step(sequences, length, tokens, tokens.size(), draws), record); },
            record);
    }

    Json prefill(const Ids& tokens, std::size_t step_rows, bool is_traced) {
        auto* device = dynamic_cast<kernels::CudaBackend*>(backend_.get());
        if (is_traced && device == nullptr)
            throw std::runtime_error("only backend cuda traces its kernels");
        if (is_traced) device->set_tracing(true);
        Record record;
        std::map<std::string, double> kernel_us;
        double whole_ms = 0.0;
        for (std::size_t begin = 0; begin < tokens.size(); begin += step_rows) {
            Batch batch(blocks_per_seq());
            const std::size_t rows = std::min(step_rows, tokens.size() - begin);
            batch.add(0, std::span(tokens).subspan(begin, rows), static_cast<std::int32_t>(begin));
            record.argmax.clear();  // the last step's stay
            whole_ms += run(batch, record);
            if (!is_traced) continue;
            for (const kernels::CudaTracedLaunch& launch : device->last_trace())
                kernel_us[std::string(launch.name)] += launch.us;
        }
        record.ms.push_back(whole_ms);
        Json json = record.json();
        if (is_traced) {
            device->set_tracing(false);
            json["kernel_us"] = kernel_us;
        }
        return json;
    }

    /// Feeds an answer and says how far each of its tokens' logit lies above the best other one.
    Json gaps(const Ids& prompt, const Ids& answer) {
        Json gaps = Json::array();
        auto held = static_cast<std::int32_t>(prompt.size());
        for (std::size_t i = 0; i < answer.size(); ++i) {
            Batch batch(blocks_per_seq());
            if (i == 0) {
                batch.add(0, prompt, 0);
            } else {
                batch.add(0, {&answer[i - 1], 1}, held++);
            }
            const std::span<const float> logits = runner_->run(batch.step()).logits;
            float best = -INFINITY;
            for (std::size_t id = 0; id < logits.size(); ++id)
                if (static_cast<std::int32_t>(id) != answer[i]) best = std::max(best, logits[id]);
            gaps.push_back(logits[static_cast<std::size_t>(answer[i])] - best);
        }
        return {{"gaps", gaps}};
    }

private:
    /// What each launch of a step takes.
    template <class Step>
    Json launches(Step step, const Record& record) {
        auto* cuda = dynamic_cast<kernels::CudaBackend*>(backend_.get());
        if (cuda == nullptr) throw std::runtime_error("only a GPU has a timeline of launches");
        constexpr int kRepeats = 9;
        cuda->time_next_step(kRepeats);
        step();
        Json launches = Json::array();
        for (const kernels::CudaLaunchTime& launch : cuda->step_times())
            launches.push_back({{"kernel", launch.kernel},
                                {"blocks", launch.blocks},
                                {"us", launch.seconds * 1e6}});
        return {{"launches", std::move(launches)}, {"finite", record.is_finite}};
    }

    /// Feeds each sequence the prompt, and returns its length.
    std::int32_t fill(std::int32_t sequences, const Ids& prompt) {
        const auto length = static_cast<std::int32_t>(prompt.size());
        for (std::int32_t s = 0; s < sequences; ++s) {
            Ids own = prompt;
            std::rotate(own.begin(), own.begin() + s % length, own.end());
            for (std::size_t begin = 0; begin < own.size(); begin += step_rows_) {
                Batch batch(blocks_per_seq());
                batch.add(s,
                          std::span<const std::int32_t>(own).subspan(
                              begin, std::min(step_rows_, own.size() - begin)),
                          static_cast<std::int32_t>(begin));
                runner_->run(batch.step());
            }
        }
        return length;
    }

    static replica::GgufFile open(const std::string& path) {
        auto file = replica::GgufFile::open(path);
        if (!file) throw std::runtime_error(file.error().text());
        return *std::move(file);
    }

    static std::unique_ptr<kernels::Backend> make_backend(const BenchOptions& options) {
        if (options.backend == "cpu")
            return kernels::make_cpu_backend({.threads = options.threads, .cores = options.cores});
        golden::SessionOptions session;
        session.backend = options.backend;
        auto backend = golden::make_backend(session);
        if (!backend) throw std::runtime_error(backend.error());
        return *std::move(backend);
    }

    /// One token of each sequence, the i-th behind its prompt.
    Batch decode_step(std::int32_t sequences, std::int32_t length, const Ids& tokens, std::size_t i,
                      bool draws) const {
        Batch batch(blocks_per_seq(), draws);
        for (std::int32_t s = 0; s < sequences; ++s) {
            const std::size_t at = (i + static_cast<std::size_t>(s)) % tokens.size();
            batch.add(s, {&tokens[at], 1}, length + static_cast<std::int32_t>(i));
        }
        return batch;
    }

    std::int32_t blocks_per_seq() const { return runner_->limits().step.blocks_per_seq; }

    /// Runs the step and returns its milliseconds; the rest goes to `record`.
    double run(const Batch& batch, Record& record, bool is_draft = false) {
        const kernels::StepDescriptor step = batch.step();
        const double cpu_before = process_cpu_ms();
        const auto begin = std::chrono::steady_clock::now();
        const kernels::StepOutputs& outputs =
            is_draft ? runner_->run_draft(step, replica::HiddenSource::kTrunk) : runner_->run(step);
        const std::chrono::duration<double, std::milli> wall =
            std::chrono::steady_clock::now() - begin;
        record.cpu_ms += process_cpu_ms() - cpu_before;
        for (const std::uint8_t error : outputs.error)
            record.is_finite &= error == 0;
        if (!outputs.sampled.empty()) record.argmax.push_back(outputs.sampled);
        if (outputs.logits.empty()) return wall.count();
        const auto width = outputs.logits.size() / static_cast<std::size_t>(step.logit_rows);
        Json best = Json::array();
        for (std::size_t at = 0; at < outputs.logits.size(); at += width) {
            const auto row = outputs.logits.subspan(at, width);
            record.is_finite &= std::ranges::all_of(row, [](float x) { return std::isfinite(x); });
            best.push_back(std::ranges::max_element(row) - row.begin());
        }
        record.argmax.push_back(std::move(best));
        return wall.count();
    }

    replica::GgufFile file_;
    std::unique_ptr<kernels::Backend> backend_;
    std::unique_ptr<replica::ModelRunner> runner_;
    std::size_t step_rows_;
    double load_s_ = 0.0;
};

Json answer(Bench& bench, const Json& ask) {
    const std::string op = ask.at("op");
    const bool draws = ask.value("draw", false);
    if (op == "decode")
        return bench.decode(ask.at("sequences"), ask.at("prompt"), ask.at("tokens"), draws);
    if (op == "timeline")
        return bench.timeline(ask.at("sequences"), ask.at("prompt"), ask.at("tokens"), draws);
    if (op == "prefill")
        return bench.prefill(ask.at("tokens"), ask.at("step"), ask.value("trace", false));
    if (op == "verify" || op == "draft")
        return bench.speculate(ask.at("sequences"), op == "draft" ? 0 : ask.at("rows").get<int>(),
                               ask.at("prompt"), ask.at("tokens"), ask.value("timeline", false));
    if (op == "rehearse") return bench.rehearse(ask.at("sequences"), ask.at("drafts"));
    if (op == "gaps") return bench.gaps(ask.at("tokens"), ask.at("answer"));
    throw std::runtime_error(
        "op is decode, timeline, prefill, verify, draft, rehearse or gaps, not " + op);
}

}  // namespace

int main(int argc, char** argv) {
    BenchOptions options;
    CLI::App app("Steps a model as asked on standard input");
    app.add_option("model", options.model, "GGUF file")->required();
    app.add_option("--backend", options.backend, golden::backend_names())->capture_default_str();
    app.add_option("--threads", options.threads, "threads of the backend");
    app.add_option("--cores", options.cores, "processors to pin them to, in turn");
    app.add_option("--context", options.context, "tokens a sequence may hold");
    app.add_option("--sequences", options.sequences, "sequences at most");
    app.add_option("--step-rows", options.step_rows, "rows of a step at most")
        ->capture_default_str();
    app.add_option("--drafts", options.drafts, "rows of a verify step beyond the first, at most");
    CLI11_PARSE(app, argc, argv);
    try {
        Bench bench(options);
        std::cout << bench.description() << std::endl;
        for (std::string line; std::getline(std::cin, line);)
            std::cout << answer(bench, Json::parse(line)) << std::endl;
    } catch (const std::exception& error) {
        std::cerr << "engine-bench: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
