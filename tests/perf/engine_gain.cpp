// engine-gain MODEL [CASES]: what the prefix cache and the drafts spare, measured on a real model.
//
//   chat    a chat of some 2,000 tokens, then its next turn: prompt rows computed and time
//   drafts  all cases, b at a time, with n drafts a round: how often drafts come true (alpha),
//           tokens a round yields (E), its time over a plain one (C), E / C, and the measured
//           speed-up; then with n left to the engine, beside the gain it reckons with
//
// The rounds of plain and drafting runs are interleaved; figures are medians.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "replica/engine/engine.h"
#include "replica/gguf/reader.h"
#include "replica/model/runner.h"
#include "tests/support/golden/chat_prompt.h"

namespace {

using namespace replica;
using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
using Seconds = std::chrono::duration<double>;

constexpr std::int32_t kChatTokens = 2000;
constexpr std::int32_t kNextTurnTokens = 40;
constexpr std::int32_t kAnswerMax = 128;

struct Flags {
    std::string model, cases;
    std::int32_t threads = 2;
    std::int32_t step_token_budget = 64;
    int rounds = 5;
    std::size_t cases_max = 1000;
    std::vector<std::int32_t> batches{1, 4};
    bool json = false;
};

class Sink : public TokenSink {
public:
    SinkVerdict on_token(TokenId token, const kernels::RowLogprobs*) override {
        tokens_.push_back(token);
        return SinkVerdict::kContinue;
    }
    void on_finish(const FinishInfo& info) override {
        const std::lock_guard lock(mutex_);
        info_ = info;
        is_finished_ = true;
        finished_.notify_all();
    }
    FinishInfo wait() {
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [this] { return is_finished_; });
        return info_;
    }
    const Ids& tokens() const { return tokens_; }

private:
    Ids tokens_;
    std::mutex mutex_;
    std::condition_variable finished_;
    bool is_finished_ = false;
    FinishInfo info_;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

struct Case {
    Ids prompt, greedy;
};

/// A model with everything its engine needs.
struct Bench {
    const Flags& flags;
    const GgufFile& file;
    std::vector<Case> cases;
    std::vector<TokenId> end_tokens;
    std::int32_t vocabulary;

    struct Loaded {
        std::unique_ptr<kernels::Backend> backend;
        std::unique_ptr<ModelRunner> runner;
    };
    Loaded load(RunnerOptions options) const {
        Loaded loaded;
        loaded.backend = kernels::make_cpu_backend({.threads = flags.threads});
        options.step_rows_max = flags.step_token_budget;
        auto runner = ModelRunner::load(file, *loaded.backend, options, LoadProgress{});
        if (!runner) throw std::runtime_error(runner.error().text());
        loaded.runner = *std::move(runner);
        loaded.runner->limit_vocabulary(vocabulary);
        return loaded;
    }
};

// ---------------------------------------------------------------------------------------------

struct Turn {
    std::int32_t prompt_tokens = 0, computed_tokens = 0;
    double seconds = 0;  // to the first token
};

Turn turn_of(const FinishInfo& info) {
    return {.prompt_tokens = info.prompt_tokens,
            .computed_tokens = info.prompt_tokens - info.cached_tokens,
            .seconds = Seconds(info.prefill_time).count()};
}

std::pair<FinishInfo, Ids> ask(Engine& engine, const Ids& prompt) {
    EngineRequest request{.prompt = prompt, .max_tokens = 24, .ignore_eos = true};
    request.sampling.temperature = 0;
    for (std::size_t at = 1; at < prompt.size(); ++at)
        if (prompt[at] == prompt[0]) request.boundaries.push_back(static_cast<std::int32_t>(at));
    auto sink = std::make_shared<Sink>();
    request.sinks = {sink};
    engine.submit(std::move(request));
    const FinishInfo info = sink->wait();
    return {info, sink->tokens()};
}

Json measure_chat(const Bench& bench) {
    std::vector<double> first_s, second_s;
    Turn first, second;
    for (int round = 0; round < bench.flags.rounds; ++round) {
        const Bench::Loaded loaded =
            bench.load({.context = 4096, .sequences_max = 1, .snapshot_memory_bytes = 1ULL << 30});
        Engine engine(*loaded.runner,
                      {.sequences_max = 1, .step_token_budget = bench.flags.step_token_budget});
        Ids prompt;
        for (std::size_t i = 0; prompt.size() < kChatTokens; i = (i + 1) % bench.cases.size())
            prompt.insert(prompt.end(), bench.cases[i].prompt.begin(), bench.cases[i].prompt.end());
        prompt.resize(kChatTokens);
        auto [first_info, reply] = ask(engine, prompt);
        prompt.insert(prompt.end(), reply.begin(), reply.end());
        prompt.insert(prompt.end(), bench.cases[0].prompt.begin(),
                      bench.cases[0].prompt.begin() + kNextTurnTokens);
        auto [second_info, end] = ask(engine, prompt);
        first = turn_of(first_info);
        second = turn_of(second_info);
        first_s.push_back(first.seconds);
        second_s.push_back(second.seconds);
    }
    const double work = static_cast<double>(second.computed_tokens) / first.computed_tokens;
    const double time = median(second_s) / median(first_s);
    if (!bench.flags.json) {
        std::printf(
            "chat: first turn %d tokens computed in %.1f ms; next turn of %d tokens, %d "
            "computed in %.1f ms: %.1f %% of the work, %.1f %% of the time\n",
            first.computed_tokens, median(first_s) * 1e3, second.prompt_tokens,
            second.computed_tokens, median(second_s) * 1e3, work * 100, time * 100);
    }
    return {{"first_prompt_tokens", first.prompt_tokens},
            {"first_computed_tokens", first.computed_tokens},
            {"first_prefill_ms", median(first_s) * 1e3},
            {"second_prompt_tokens", second.prompt_tokens},
            {"second_computed_tokens", second.computed_tokens},
            {"second_prefill_ms", median(second_s) * 1e3},
            {"work_ratio", work},
            {"time_ratio", time}};
}

// ---------------------------------------------------------------------------------------------

/// What one pass over all cases showed; only steps in which all b sequences decode are counted.
struct Pass {
    double step_seconds = 0;  // median of the counted steps
    double tokens_per_s = 0;  // over them
    DraftStatus draft;
};

Pass decode_all(const Bench& bench, std::int32_t batch, std::int32_t drafts,
                bool is_left_to_engine) {
    const Bench::Loaded loaded = bench.load({.context = 1024,
                                             .sequences_max = batch,
                                             .draft_tokens_max = drafts,
                                             .draft_batch_max = batch});
    std::vector<double> steps;
    double tokens = 0;
    EngineOptions options{.sequences_max = batch,
                          .waiting_max = 1000,
                          .step_token_budget = bench.flags.step_token_budget,
                          .has_prefix_cache = false,
                          .draft_tokens_max = drafts,
                          .draft_batch_max = batch,
                          .drafts_always = !is_left_to_engine,
                          .end_tokens = bench.end_tokens};
    options.on_step = [&](const StepStats& step) {
        if (step.prefill_rows > 0 || step.sequences < batch) return;
        steps.push_back(step.duration.count());
        tokens += step.generated_tokens;
    };
    Pass pass;
    {
        Engine engine(*loaded.runner, options);
        std::vector<std::shared_ptr<Sink>> sinks;
        for (const Case& one : bench.cases) {
            EngineRequest request{.prompt = one.prompt, .max_tokens = kAnswerMax};
            request.sampling.temperature = 0;
            sinks.push_back(std::make_shared<Sink>());
            request.sinks = {sinks.back()};
            engine.submit(std::move(request));
        }
        for (const auto& sink : sinks)
            sink->wait();
        pass.draft = engine.status().draft;
    }  // the engine thread is gone: what it wrote is complete
    double seconds = 0;
    for (const double step : steps)
        seconds += step;
    pass.step_seconds = median(steps);
    pass.tokens_per_s = tokens / seconds;
    return pass;
}

Json measure_drafts(const Bench& bench, std::int32_t batch) {
    struct Row {
        std::string name;
        std::int32_t drafts;
        bool is_left_to_engine;
        std::vector<double> steps, rates;
        DraftStatus draft{};
    };
    std::vector<Row> rows{{"plain", 0, false, {}, {}}};
    for (std::int32_t n = 1; n <= 4; ++n)
        rows.push_back({std::to_string(n), n, false, {}, {}});
    rows.push_back({"engine's choice of 0..4", 4, true, {}, {}});
    for (int round = 0; round < bench.flags.rounds; ++round) {
        for (Row& row : rows) {
            const Pass pass = decode_all(bench, batch, row.drafts, row.is_left_to_engine);
            row.steps.push_back(pass.step_seconds);
            row.rates.push_back(pass.tokens_per_s);
            row.draft = pass.draft;
        }
    }
    Json list = Json::array();
    if (!bench.flags.json)
        std::printf("drafts, %d at once: %-24s %9s %6s %6s %6s %8s  alpha\n", batch, "", "tok/s",
                    "E", "C", "E/C", "speed-up");
    for (const Row& row : rows) {
        double expected = 1, all_true = 1;
        std::vector<double> alpha;
        for (std::int32_t i = 0; i < row.drafts; ++i) {
            alpha.push_back(row.draft.acceptance[static_cast<std::size_t>(i)]);
            all_true *= alpha.back();
            expected += all_true;
        }
        double cost = median(row.steps) / median(rows[0].steps);
        double gain = expected / cost;
        if (row.is_left_to_engine) {  // as it reckons itself
            cost = row.draft.cost_ratio;
            gain = row.draft.gain_ratio;
            expected = gain * cost;
        }
        const double speed_up = median(row.rates) / median(rows[0].rates);
        if (!bench.flags.json) {
            std::printf("                    %-24s %9.1f %6.2f %6.2f %6.2f %8.2f ",
                        row.name.c_str(), median(row.rates), expected, cost, gain, speed_up);
            for (const double a : alpha)
                std::printf(" %.2f", a);
            std::printf("\n");
            std::fflush(stdout);
        }
        list.push_back({{"drafts", row.name},
                        {"tokens_per_s", median(row.rates)},
                        {"yield", expected},
                        {"cost_ratio", cost},
                        {"gain_ratio", gain},
                        {"speed_up", speed_up},
                        {"alpha", alpha}});
    }
    return {{"sequences", batch}, {"rows", list}};
}

int run(const Flags& flags) {
    auto file = GgufFile::open(flags.model);
    if (!file) throw std::runtime_error(file.error().text());
    auto tokenizer = golden::load_tokenizer(*file);
    if (!tokenizer) throw std::runtime_error(tokenizer.error());
    std::ifstream stream(flags.cases);
    if (!stream) throw std::runtime_error(flags.cases + ": cannot be read");
    std::vector<Case> cases;
    const Json document = Json::parse(stream);
    for (const Json& item : document.at("cases"))
        if (cases.size() < flags.cases_max)
            cases.push_back({.prompt = item.at("prompt_tokens").get<Ids>(),
                             .greedy = item.at("greedy_tokens").get<Ids>()});
    const Bench bench{.flags = flags,
                      .file = *file,
                      .cases = std::move(cases),
                      .end_tokens = tokenizer->end_tokens(),
                      .vocabulary = tokenizer->vocabulary_used()};
    Json result{{"model", flags.model}, {"threads", flags.threads}};
    result["chat"] = measure_chat(bench);
    result["drafts"] = Json::array();
    for (const std::int32_t batch : flags.batches)
        result["drafts"].push_back(measure_drafts(bench, batch));
    if (flags.json) std::printf("%s\n", result.dump(1).c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Flags flags;
    CLI::App app{
        "Measures what the prefix cache and the drafts spare. Columns: E tokens a round yields for "
        "a "
        "sequence, C its time over a plain step, E/C the speed-up they foretell, speed-up the "
        "measured "
        "one, alpha how often draft 1, 2, … came true given those before it."};
    app.add_option("model", flags.model, "GGUF file with an MTP block")->required();
    flags.cases = QUADRIGA_SOURCE_DIR "/tests/golden/foal-greedy.json";
    app.add_option("cases", flags.cases,
                   "chats with prompt_tokens and greedy_tokens, of a model with the same tokenizer")
        ->capture_default_str();
    app.add_option("--cases-max", flags.cases_max, "only the first so many chats");
    app.add_option("--batches", flags.batches, "sequences at once")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--threads", flags.threads)->capture_default_str();
    app.add_option("--step-token-budget", flags.step_token_budget)->capture_default_str();
    app.add_option("--rounds", flags.rounds)->check(CLI::Range(1, 100))->capture_default_str();
    app.add_flag("--json", flags.json);
    CLI11_PARSE(app, argc, argv);
    try {
        return run(flags);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "engine-gain: %s\n", error.what());
        return 2;
    }
}
