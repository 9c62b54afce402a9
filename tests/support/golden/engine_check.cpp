// engine-check MODEL CASES: the engine around a real model says the same, whatever spares it work.
//
// Every case of a file like foal-greedy.json goes through the engine alone and plain; that is the
// yardstick. Then again with drafts of every length, drawn at random with a seed, from the prefix
// cache, under its eviction, and all at once. Tokens and log-probabilities must be the same to the
// bit on the CPU backend, whose rows depend on nothing but their sequence. For a file made with
// this very model (--golden) the yardstick itself is compared, and drafts of one token must come
// true exactly as often as the file's mtp_hits foretell.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "replica/engine/engine.h"
#include "tests/support/golden/chat_prompt.h"
#include "tests/support/golden/logits.h"
#include "tests/support/golden/model_session.h"

namespace golden {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
using namespace replica;

constexpr int kExitMiss = 1;
constexpr int kExitUsage = 2;
constexpr std::int32_t kContext = 1024;
constexpr std::int32_t kAnswerMax = 96;

struct Flags {
    std::string model, cases;
    SessionOptions session;
    bool is_golden = false;  // the file was made with this model, in full precision
    bool json = false;
    std::size_t cases_max = 1000;
};

struct Drawn {
    std::int32_t token = 0;
    float logprob = 0;
    std::vector<std::pair<std::int32_t, float>> top;
    bool operator==(const Drawn&) const = default;
};

struct Answer {
    std::vector<Drawn> drawn;
    FinishInfo info;
};

class Sink : public TokenSink {
public:
    SinkVerdict on_token(TokenId token, const kernels::RowLogprobs* logprobs) override {
        Drawn drawn{.token = token, .logprob = logprobs->drawn, .top = {}};
        for (std::int32_t i = 0; i < logprobs->top_count; ++i) {
            const kernels::TokenLogprob& top = logprobs->top[static_cast<std::size_t>(i)];
            drawn.top.emplace_back(top.token, top.logprob);
        }
        answer_.drawn.push_back(std::move(drawn));
        return SinkVerdict::kContinue;
    }
    void on_finish(const FinishInfo& info) override {
        const std::lock_guard lock(mutex_);
        answer_.info = info;
        is_finished_ = true;
        finished_.notify_all();
    }
    Answer wait() {
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [this] { return is_finished_; });
        return answer_;
    }

private:
    std::mutex mutex_;
    std::condition_variable finished_;
    bool is_finished_ = false;
    Answer answer_;
};

struct Case {
    Ids prompt;
    Ids greedy;  // of the file
    std::vector<std::int32_t> boundaries;
};

enum class Draw { kGreedy, kSeeded };

struct Setting {
    std::string name;
    Draw draw = Draw::kGreedy;
    std::int32_t drafts = 0;
    bool has_cache = false;
    bool is_batched = false;
    std::int32_t rounds = 1;  // over all cases
    std::int64_t kv_tokens = 0;
    std::int32_t snapshots = 64;
};

struct Outcome {
    std::string name;
    std::size_t texts = 0, different = 0;
    std::uint64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, generated = 0;
    std::uint64_t drafted = 0, accepted = 0, preempted = 0, evicted = 0;
    std::vector<double> acceptance;  // by position, of all drafted there
    std::vector<std::string> misses;
};

class EngineCheck {
public:
    EngineCheck(const Flags& flags, const GgufFile& file, std::vector<Case> cases,
                std::vector<TokenId> end_tokens, std::int32_t vocabulary)
        : flags_(flags),
          file_(file),
          cases_(std::move(cases)),
          end_tokens_(std::move(end_tokens)),
          vocabulary_(vocabulary) {}

    /// Drafts of one token along a text: what the draft block says entry by entry, walked as rounds
    /// do: a draft that comes true brings a token more, and is not looked at again.
    struct Walk {
        std::int32_t drafted = 0, accepted = 0;
    };
    Walk walk(std::size_t index, const Answer& answer) {
        Ids text = cases_[index].prompt;
        for (const Drawn& drawn : answer.drawn)
            text.push_back(drawn.token);
        const auto prompt = cases_[index].prompt.size();
        const bool has_end = answer.info.stop_token.has_value();
        if (has_end) text.push_back(*answer.info.stop_token);
        const std::vector<std::int32_t> guesses = guesses_along(text);
        Walk walk;
        for (std::size_t known = prompt + 1; known + 1 < text.size() + (has_end ? 1 : 0);) {
            const bool is_right = guesses[known - 2] == text[known];
            const bool ends_here = has_end && known + 1 == text.size();
            ++walk.drafted;
            if (is_right && !ends_here) ++walk.accepted;
            known += is_right ? 2 : 1;
        }
        return walk;
    }

    /// Runs all cases; compares with what the same draw gave before, if `yardstick` is not null.
    Outcome run(const Setting& setting, std::vector<Answer>* answers,
                const std::vector<Answer>* yardstick) {
        auto backend = make_backend(flags_.session);
        RunnerOptions options{.context = kContext,
                              .sequences_max = 8,
                              .step_rows_max = 64,
                              .block_tokens = 16,
                              .kv_tokens = setting.kv_tokens,
                              .kv_dtype = flags_.session.kv_dtype,
                              .draft_tokens_max = setting.drafts,
                              .draft_batch_max = 8};
        options.snapshot_memory_bytes =
            snapshot_bytes(options) * static_cast<std::uint64_t>(setting.snapshots);
        auto runner = ModelRunner::load(file_, **backend, options, LoadProgress{});
        if (!runner) throw std::runtime_error(runner.error().text());
        (*runner)->limit_vocabulary(vocabulary_);
        Engine engine(**runner, {.sequences_max = 8,
                                 .waiting_max = 1000,
                                 .step_token_budget = 64,
                                 .has_prefix_cache = setting.has_cache,
                                 .draft_tokens_max = setting.drafts,
                                 .draft_batch_max = 8,
                                 .drafts_always = true,
                                 .end_tokens = end_tokens_});
        Outcome outcome{.name = setting.name};
        for (std::int32_t round = 0; round < setting.rounds; ++round) {
            std::vector<Answer> now = ask_all(engine, setting, round % 2 == 1);
            for (std::size_t i = 0; i < now.size(); ++i) {
                ++outcome.texts;
                outcome.generated += static_cast<std::uint64_t>(now[i].info.generated_tokens);
                outcome.drafted += static_cast<std::uint64_t>(now[i].info.drafted_tokens);
                outcome.accepted += static_cast<std::uint64_t>(now[i].info.accepted_tokens);
                if (yardstick != nullptr && now[i].drawn != (*yardstick)[i].drawn) {
                    ++outcome.different;
                    outcome.misses.push_back("case " + std::to_string(i) + ": " +
                                             difference(now[i], (*yardstick)[i]));
                }
            }
            if (answers != nullptr) *answers = std::move(now);
        }
        const EngineStatus status = engine.status();
        outcome.steps = status.steps;
        outcome.prompt_tokens = status.prompt_tokens_total;
        outcome.cached_tokens = status.cache.hit_tokens_total;
        outcome.preempted = status.preemptions_total;
        outcome.evicted = status.cache.evicted_total;
        for (std::int32_t i = 0; i < setting.drafts; ++i) {
            const auto at = static_cast<std::size_t>(i);
            outcome.acceptance.push_back(
                static_cast<double>(status.draft.accepted_total[at]) /
                static_cast<double>(std::max<std::uint64_t>(1, status.draft.drafted_total[at])));
        }
        if (status.blocks_free != status.blocks_total) outcome.misses.push_back("blocks are lost");
        return outcome;
    }

    const std::vector<Case>& cases() const { return cases_; }

private:
    /// Entry p guesses the token of p + 2.
    std::vector<std::int32_t> guesses_along(const Ids& text) {
        if (session_ == nullptr) {
            auto session = ModelSession::open(flags_.model, flags_.session);
            if (!session) throw std::runtime_error(session.error());
            session_ = *std::move(session);
        }
        session_->reset(0);
        std::vector<std::int32_t> guesses;
        while (guesses.size() + 1 < text.size()) {
            const std::size_t begin = guesses.size();
            const std::size_t count = std::min<std::size_t>(64, text.size() - 1 - begin);
            session_->step({.sequence = 0, .tokens = std::span(text).subspan(begin, count)});
            const auto logits = session_->step_mtp(0, std::span(text).subspan(begin + 1, count));
            for (std::size_t i = 0; i < count; ++i)
                guesses.push_back(top_two(row_of(logits, i, session_->vocabulary())).best);
        }
        return guesses;
    }

    /// Backwards, the case asked last comes first: what was kept last is still there.
    std::vector<Answer> ask_all(Engine& engine, const Setting& setting, bool is_backwards) {
        std::vector<Answer> answers;
        std::vector<std::shared_ptr<Sink>> sinks(cases_.size());
        for (std::size_t turn = 0; turn < cases_.size(); ++turn) {
            const std::size_t i = is_backwards ? cases_.size() - 1 - turn : turn;
            EngineRequest request{
                .prompt = cases_[i].prompt, .max_tokens = kAnswerMax, .top_logprobs = 5};
            request.sampling.temperature = setting.draw == Draw::kGreedy ? 0.0F : 2.0F;
            request.sampling.seed = 1000 + i;
            if (setting.draw == Draw::kSeeded && i % 3 == 0) {
                request.sampling.repetition_penalty = 1.2F;
                request.sampling.frequency_penalty = 0.3F;
            }
            request.boundaries = cases_[i].boundaries;
            sinks[i] = std::make_shared<Sink>();
            request.sinks = {sinks[i]};
            if (engine.submit(std::move(request)).status != SubmitStatus::kAccepted) {
                throw std::runtime_error("the engine refused a case");
            }
            if (!setting.is_batched) sinks[i]->wait();
        }
        for (const auto& sink : sinks)
            answers.push_back(sink->wait());
        return answers;
    }

    static std::string difference(const Answer& ours, const Answer& expected) {
        std::size_t at = 0;
        while (at < ours.drawn.size() && at < expected.drawn.size() &&
               ours.drawn[at] == expected.drawn[at])
            ++at;
        if (at == ours.drawn.size() || at == expected.drawn.size()) return "another length";
        return "token " + std::to_string(at) + " is " + std::to_string(ours.drawn[at].token) +
               " with " + std::to_string(ours.drawn[at].logprob) + ", plain " +
               std::to_string(expected.drawn[at].token) + " with " +
               std::to_string(expected.drawn[at].logprob);
    }

    std::uint64_t snapshot_bytes(RunnerOptions options) const {
        const auto config = read_model_config(file_);
        options.snapshot_memory_bytes = std::uint64_t{1} << 40;
        const auto plan = plan_memory(*config, options, {.free_bytes = std::uint64_t{1} << 50});
        return plan ? plan->limits.snapshot_bytes : 0;
    }

    const Flags& flags_;
    const GgufFile& file_;
    std::unique_ptr<ModelSession> session_;
    std::vector<Case> cases_;
    std::vector<TokenId> end_tokens_;
    std::int32_t vocabulary_;
};

/// The yardstick against the file: the greedy text up to a near tie.
void compare_with_file(const std::vector<Case>& cases, const std::vector<Answer>& answers,
                       Outcome& outcome) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const Ids& expected = cases[i].greedy;
        const std::vector<Drawn>& ours = answers[i].drawn;
        for (std::size_t at = 0; at < std::min(expected.size(), ours.size()); ++at) {
            if (ours[at].token == expected[at]) continue;
            const auto& top = ours[at].top;
            const bool is_near_tie = top.size() > 1 && top[0].second - top[1].second < kNearTie;
            if (!is_near_tie) {
                ++outcome.different;
                outcome.misses.push_back("case " + std::to_string(i) + ", token " +
                                         std::to_string(at) + ": not the file's");
            }
            break;
        }
    }
}

Json json_of(const Outcome& outcome) {
    return {{"name", outcome.name},
            {"texts", outcome.texts},
            {"different", outcome.different},
            {"steps", outcome.steps},
            {"prompt_tokens", outcome.prompt_tokens},
            {"cached_tokens", outcome.cached_tokens},
            {"generated_tokens", outcome.generated},
            {"drafted", outcome.drafted},
            {"accepted", outcome.accepted},
            {"acceptance", outcome.acceptance},
            {"preempted", outcome.preempted},
            {"evicted", outcome.evicted},
            {"misses", outcome.misses}};
}

void print(const Outcome& outcome) {
    // A round yields one token, and one more for every draft that came true.
    const double rounds =
        static_cast<double>(outcome.generated) - static_cast<double>(outcome.accepted);
    std::printf("%-30s %4zu %5zu %6llu %7llu %7llu %8.2f", outcome.name.c_str(), outcome.texts,
                outcome.different, static_cast<unsigned long long>(outcome.steps),
                static_cast<unsigned long long>(outcome.prompt_tokens),
                static_cast<unsigned long long>(outcome.cached_tokens),
                rounds > 0 ? static_cast<double>(outcome.generated) / rounds : 0.0);
    for (const double alpha : outcome.acceptance)
        std::printf(" %.3f", alpha);
    if (outcome.preempted > 0)
        std::printf(" (%llu preempted)", static_cast<unsigned long long>(outcome.preempted));
    if (outcome.evicted > 0)
        std::printf(" (%llu evicted)", static_cast<unsigned long long>(outcome.evicted));
    std::printf("\n");
    for (std::size_t i = 0; i < std::min<std::size_t>(outcome.misses.size(), 5); ++i)
        std::printf("    %s\n", outcome.misses[i].c_str());
    std::fflush(stdout);
}

std::vector<Case> read_cases(const Flags& flags) {
    std::ifstream stream(flags.cases);
    if (!stream) throw std::runtime_error(flags.cases + ": cannot be read");
    const Json document = Json::parse(stream);
    std::vector<Case> cases;
    for (const Json& item : document.at("cases")) {
        if (cases.size() == flags.cases_max) break;
        Case one{.prompt = item.at("prompt_tokens").get<Ids>(),
                 .greedy = item.at("greedy_tokens").get<Ids>(),
                 .boundaries = {}};
        // A chat begins with the token that begins each of its messages.
        for (std::size_t at = 1; at < one.prompt.size(); ++at)
            if (one.prompt[at] == one.prompt[0])
                one.boundaries.push_back(static_cast<std::int32_t>(at));
        cases.push_back(std::move(one));
    }
    return cases;
}

int run(const Flags& flags) {
    auto file = GgufFile::open(flags.model);
    if (!file) throw std::runtime_error(file.error().text());
    auto chat = ChatModel::from_gguf(*file);
    if (!chat) throw std::runtime_error(chat.error());
    const std::vector<TokenId> ends(chat->tokenizer().end_tokens().begin(),
                                    chat->tokenizer().end_tokens().end());
    EngineCheck check(flags, *file, read_cases(flags), ends, chat->tokenizer().vocabulary_used());

    std::vector<Outcome> outcomes;
    const auto report = [&](Outcome outcome) {
        if (!flags.json) print(outcome);
        outcomes.push_back(std::move(outcome));
    };
    if (!flags.json)
        std::printf("%-30s %4s %5s %6s %7s %7s %8s acceptance by position\n", "", "text", "diff",
                    "steps", "prompt", "cached", "tok/round");
    std::vector<Answer> greedy, seeded;
    Outcome plain = check.run({.name = "plain"}, &greedy, nullptr);
    if (flags.is_golden) compare_with_file(check.cases(), greedy, plain);
    report(std::move(plain));
    report(check.run({.name = "seeded, penalties", .draw = Draw::kSeeded}, &seeded, nullptr));

    std::vector<Answer> drafted;
    Outcome single = check.run({.name = "drafts 1", .drafts = 1}, &drafted, &greedy);
    for (std::size_t i = 0; i < drafted.size(); ++i) {
        const EngineCheck::Walk walk = check.walk(i, drafted[i]);
        if (walk.drafted != drafted[i].info.drafted_tokens ||
            walk.accepted != drafted[i].info.accepted_tokens) {
            single.misses.push_back("case " + std::to_string(i) + ": " +
                                    std::to_string(drafted[i].info.accepted_tokens) + " of " +
                                    std::to_string(drafted[i].info.drafted_tokens) +
                                    " drafts came true, the draft block alone foretells " +
                                    std::to_string(walk.accepted) + " of " +
                                    std::to_string(walk.drafted));
        }
    }
    report(std::move(single));
    for (std::int32_t n = 2; n <= 4; ++n)
        report(check.run({.name = "drafts " + std::to_string(n), .drafts = n}, nullptr, &greedy));
    for (const std::int32_t n : {1, 3})
        report(check.run(
            {.name = "seeded, drafts " + std::to_string(n), .draw = Draw::kSeeded, .drafts = n},
            nullptr, &seeded));
    report(check.run({.name = "batch", .is_batched = true}, nullptr, &greedy));
    report(
        check.run({.name = "batch, drafts 3", .drafts = 3, .is_batched = true}, nullptr, &greedy));
    report(check.run({.name = "cache, twice", .has_cache = true, .rounds = 2}, nullptr, &greedy));
    report(
        check.run({.name = "cache, drafts 3, twice", .drafts = 3, .has_cache = true, .rounds = 2},
                  nullptr, &greedy));
    report(check.run({.name = "cache, seeded batch, drafts 2",
                      .draw = Draw::kSeeded,
                      .drafts = 2,
                      .has_cache = true,
                      .is_batched = true,
                      .rounds = 2},
                     nullptr, &seeded));
    report(check.run({.name = "cache, eviction",
                      .has_cache = true,
                      .is_batched = true,
                      .rounds = 3,
                      .kv_tokens = 1536,
                      .snapshots = 5},
                     nullptr, &greedy));
    report(check.run({.name = "cache, eviction, drafts 3",
                      .drafts = 3,
                      .has_cache = true,
                      .is_batched = true,
                      .rounds = 3,
                      .kv_tokens = 1536,
                      .snapshots = 5},
                     nullptr, &greedy));

    if (flags.json) {
        Json list = Json::array();
        for (const Outcome& outcome : outcomes)
            list.push_back(json_of(outcome));
        std::printf("%s\n", list.dump(1).c_str());
    }
    const bool passed =
        std::ranges::all_of(outcomes, [](const Outcome& o) { return o.misses.empty(); });
    return passed ? 0 : kExitMiss;
}

}  // namespace
}  // namespace golden

int main(int argc, char** argv) {
    golden::Flags flags;
    flags.session.context = golden::kContext;
    CLI::App app{"Compares the engine's ways of sparing work with plain decoding."};
    app.add_option("model", flags.model, "GGUF file with an MTP block")->required();
    app.add_option("cases", flags.cases, "chats with prompt_tokens and greedy_tokens")->required();
    app.add_flag("--golden", flags.is_golden, "the cases were made with this model");
    app.add_option("--backend", flags.session.backend)
        ->check(CLI::IsMember(golden::backend_list()));
    app.add_option("--threads", flags.session.threads);
    app.add_option("--cases-max", flags.cases_max, "only so many");
    app.add_flag("--json", flags.json);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : golden::kExitUsage;
    }
    try {
        return golden::run(flags);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "engine-check: %s\n", error.what());
        return golden::kExitUsage;
    }
}
