#include "replica/server/selftest.h"

#include <algorithm>
#include <future>

#include "replica/server/digest.h"
#include "replica/server/prepared_request.h"

namespace replica::server {
namespace {

using proto::ReplicaState;

/// Collects the tokens of one request and hands them over when it has finished.
class CollectingSink final : public TokenSink {
public:
    struct Outcome {
        std::vector<TokenId> tokens;
        FinishInfo info;
    };
    explicit CollectingSink(std::function<void(std::size_t)> on_count)
        : on_count_(std::move(on_count)) {}

    SinkVerdict on_token(TokenId token, const kernels::RowLogprobs*) override {
        outcome_.tokens.push_back(token);
        on_count_(outcome_.tokens.size());
        return SinkVerdict::kContinue;
    }
    void on_finish(const FinishInfo& info) override {
        outcome_.info = info;
        done_.set_value(std::move(outcome_));
    }
    std::future<Outcome> outcome() { return done_.get_future(); }

private:
    std::function<void(std::size_t)> on_count_;
    Outcome outcome_;
    std::promise<Outcome> done_;
};

CollectingSink::Outcome run(const Serving& serving, EngineRequest request,
                            std::function<void(std::size_t)> on_count) {
    const auto sink = std::make_shared<CollectingSink>(std::move(on_count));
    auto outcome = sink->outcome();
    request.sinks = {sink};
    const SubmitResult result = serving.engine->submit(std::move(request));
    if (result.status != SubmitStatus::kAccepted) {
        CollectingSink::Outcome refused;
        refused.info.reason = FinishReason::kError;
        refused.info.error = "the engine refused the request";
        return refused;
    }
    return outcome.get();
}

/// A chat where the model has a template that takes one, else plain text.
proto::Result<PreparedRequest> selftest_request(const ServedModel& model) {
    const std::string common = R"("temperature":0,"ignore_eos":true,"max_tokens":)" +
                               std::to_string(kSelftestTokens) + "}";
    if (model.chat_template) {
        auto chat = prepare_chat(
            model,
            R"({"messages":[{"role":"user","content":"Name three animals of a farm."}],)" + common,
            {});
        if (chat) return chat;
    }
    return prepare_completion(model, R"({"prompt":"The horses of the farm",)" + common, {});
}

double rate(double tokens, std::chrono::duration<double> time) {
    return time.count() > 0 ? tokens / time.count() : 0.0;
}

tl::unexpected<StartFailure> failed(std::string why) {
    return tl::make_unexpected(
        StartFailure{ExitCode::kSelftest,
                     {.id = "Q0800",
                      .error_class = "selftest",
                      .what = "the self-test failed",
                      .why = std::move(why),
                      .fix = "check the model file with quadriga-gguf verify"}});
}

}  // namespace

void warm_up(const Serving& serving, const LoadHooks& hooks) {
    hooks.on_progress(ReplicaState::kWarming, 0, 1);
    const int vocabulary = serving.model->tokenizer.vocabulary_used();
    const int room = serving.model->max_model_len() - 2;
    EngineRequest request;
    for (int i = 0; i < std::min(kWarmUpPromptTokens, room); ++i) {
        request.prompt.push_back(i % vocabulary);
    }
    if (request.prompt.empty()) return;
    request.sampling.temperature = 0;
    request.max_tokens = 1;
    run(serving, std::move(request), [](std::size_t) {});
    hooks.on_progress(ReplicaState::kWarming, 1, 1);
}

tl::expected<SelftestReport, StartFailure> run_selftest(const Serving& serving,
                                                        const LoadHooks& hooks) {
    hooks.on_progress(ReplicaState::kSelftest, 0, kSelftestTokens);
    auto prepared = selftest_request(*serving.model);
    if (!prepared) return failed(prepared.error().message);
    const auto outcome =
        run(serving, std::move(prepared->prompts.front().engine), [&](std::size_t count) {
            hooks.on_progress(ReplicaState::kSelftest, count, kSelftestTokens);
        });
    if (outcome.info.reason == FinishReason::kError) return failed(outcome.info.error);
    SelftestReport report;
    report.tokens = outcome.tokens;
    if (report.tokens.empty()) return failed("no token was generated");
    std::string text;
    for (const TokenId id : report.tokens) {
        if (id < 0 || id >= serving.model->tokenizer.vocabulary_used()) {
            return failed("token " + std::to_string(id) + " is outside the vocabulary");
        }
        text += (text.empty() ? "" : ",") + std::to_string(id);
    }
    const bool is_one_id = std::all_of(report.tokens.begin(), report.tokens.end(),
                                       [&](TokenId id) { return id == report.tokens.front(); });
    if (is_one_id && report.tokens.size() == kSelftestTokens) {
        return failed("the model repeats token " + std::to_string(report.tokens.front()));
    }
    Sha256 digest;
    digest.update(text);
    report.tokens_sha256 = digest.hex();
    report.prefill_tokens_per_s = rate(outcome.info.prompt_tokens, outcome.info.prefill_time);
    report.decode_tokens_per_s =
        rate(static_cast<double>(report.tokens.size() - 1), outcome.info.decode_time);
    return report;
}

}  // namespace replica::server
