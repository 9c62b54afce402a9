// The engine: requests in, tokens out. One thread owns everything behind this header.
//
//   any thread ─ submit / cancel ─▶ command queue (bounded) ─▶ engine thread, each step:
//       scheduler.plan (pure) ─▶ step descriptor ─▶ StepRunner::run ─▶ sampled tokens ─▶ TokenSink
//
// The engine knows tokens only: no text, no HTTP. A TokenSink, given at submit, is called on the
// engine thread for each generated token and may end the sequence (a stop string it found in the
// text).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "replica/engine/step_runner.h"

namespace replica {

using TokenId = std::int32_t;
using RequestId = std::uint64_t;

/// How tokens are drawn; names as in the OpenAI API, ranges are checked by the caller.
struct SamplingOptions {
    float temperature = 1.0F;
    std::int32_t top_k = 0;  // 0 = off
    float top_p = 1.0F;
    float min_p = 0.0F;
    float repetition_penalty = 1.0F;
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;
    std::uint64_t seed = 0;
    struct Bias {
        TokenId token;
        float bias;
    };
    std::vector<Bias> logit_bias;
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

/// What the sink answers to a token.
enum class SinkVerdict { kContinue, kStop };

struct FinishInfo {
    FinishReason reason = FinishReason::kStop;
    std::optional<TokenId>
        stop_token;     // the end or stop token that ended it; it was counted, not passed on
    std::string error;  // for kError: one sentence, no prompt text
    std::int32_t prompt_tokens = 0;
    std::int32_t cached_tokens = 0;     // of the prompt, not computed but found in the prefix cache
    std::int32_t generated_tokens = 0;  // all sampled tokens, the end token included
    std::int32_t drafted_tokens = 0, accepted_tokens = 0;  // accepted: drafts that became text
    std::chrono::duration<double> queue_time{}, prefill_time{}, decode_time{};
};

/// Called on the engine thread only; must not block. After on_finish it is never called again.
class TokenSink {
public:
    virtual ~TokenSink() = default;
    /// The prompt's first chunk enters a step; `cached_tokens` of it need no computing.
    virtual void on_start(std::int32_t cached_tokens) { static_cast<void>(cached_tokens); }
    /// One generated token, in order. kStop ends the sequence with FinishReason::kStop. `logprobs`
    /// is null unless the request asked; it dies with the call.
    virtual SinkVerdict on_token(TokenId token, const kernels::RowLogprobs* logprobs) = 0;
    virtual void on_finish(const FinishInfo& info) = 0;
};

struct EngineRequest {
    std::vector<TokenId> prompt;  // 1 .. max_model_len - 1 tokens
    SamplingOptions sampling;
    std::optional<std::int32_t> max_tokens;  // none = the room left
    std::int32_t min_tokens = 0;
    bool ignore_eos = false;
    std::vector<TokenId> stop_token_ids;  // beside the model's own end tokens
    std::int32_t top_logprobs = -1;       // -1 = no log-probabilities; else this many beside
    std::int32_t choice_index = 0;        // of the first choice; enters the random draw
    std::int32_t priority = 0;            // lower runs earlier; ages by one per 10 s waited
    /// At most so many drafts a step; none = what the engine finds best, 0 = no speculation.
    std::optional<std::int32_t> draft_tokens;

    // Prefix cache.
    std::string cache_salt;  // requests with different salts share nothing
    /// Prompt positions where another request is likely to part from this one (end of the system
    /// message, start of each user turn, start of the reply); ascending, hints only.
    std::vector<std::int32_t> boundaries;

    /// A further prompt of a request whose first one was taken: it waits beside that one, whatever
    /// the tokens.
    bool continues_request = false;

    /// One per choice, at least one. All choices share the prompt: it is computed once, and they
    /// are one entry of the queue. Choice i draws as choice_index + i.
    std::vector<std::shared_ptr<TokenSink>> sinks;
};

enum class SubmitStatus { kAccepted, kQueueFull, kPromptEmpty, kContextExceeded, kStopping };

struct SubmitResult {
    SubmitStatus status = SubmitStatus::kAccepted;
    RequestId id = 0;  // valid when accepted; names all choices
};

/// Prefix cache in numbers. Totals only rise.
struct CacheStatus {
    bool is_enabled = false;
    std::uint64_t query_tokens_total = 0;  // prompt tokens looked up
    std::uint64_t hit_tokens_total = 0;    // of them found
    std::int32_t blocks_cached = 0;        // free to be taken by others
    std::int32_t checkpoints = 0, checkpoints_max = 0;
    std::uint64_t checkpoint_bytes = 0;                                      // of saved states
    std::uint64_t created_total = 0, restored_total = 0, evicted_total = 0;  // checkpoints
};

/// Speculation in numbers (kernels.md section 9).
struct DraftStatus {
    std::int32_t draft_tokens_max = 0;  // 0 = the model or the options rule it out
    std::int32_t draft_tokens = 0;      // chosen for the last step
    std::array<std::uint64_t, kDraftTokensMax> drafted_total{};   // by position in the draft
    std::array<std::uint64_t, kDraftTokensMax> accepted_total{};  // accepted with all before it
    std::array<double, kDraftTokensMax> acceptance{};  // alpha_j: of those whose predecessors were
    double cost_ratio = 0;  // C: time of a draft-and-verify round over that of a plain step
    double gain_ratio = 0;  // E / C: the predicted speed-up
};

/// A consistent picture of the engine, copied under a short lock; cheap enough for every scrape.
struct EngineStatus {
    std::uint64_t steps = 0;  // forward passes so far; prefill chunks count
    /// Of the last step, or when work arrived after idleness if that is later: with requests in
    /// the engine, its age tells a wedged device.
    std::chrono::steady_clock::time_point last_step_end{};
    std::int32_t running = 0, waiting = 0, sequences_max = 0, waiting_max = 0;
    std::int64_t queued_tokens = 0;  // prompt tokens accepted and not yet prefilled
    std::int64_t queued_tokens_max = 0;
    /// Blocks that only the prefix cache holds count as free.
    std::int32_t blocks_free = 0, blocks_total = 0, block_tokens = 0;
    std::int32_t step_token_budget = 0;  // of the last step
    std::int32_t max_model_len = 0;
    double prefill_tokens_per_s = 0,
           decode_tokens_per_s = 0;                // moving averages over 10 s of busy time
    std::chrono::duration<double> longest_step{};  // of the last 60 s
    std::uint64_t prompt_tokens_total = 0, generated_tokens_total = 0, preemptions_total = 0;
    CacheStatus cache;
    DraftStatus draft;
};

/// What happened in one step; handed to an observer on the engine thread (metrics).
struct StepStats {
    std::int32_t decode_rows = 0, prefill_rows = 0, sequences = 0;  // decode: drafts included
    std::int32_t generated_tokens = 0;
    std::chrono::duration<double> duration{};
};

struct EngineOptions {
    std::int32_t sequences_max = 8;
    std::int32_t waiting_max = 32;  // queue bound: 4 x sequences
    /// Prompt tokens that may wait while all sequences are taken; 0 = only the count bounds it.
    std::int64_t queued_tokens_max = 0;
    std::int32_t step_token_budget = 512;  // most rows of one step; decode rows come first
    /// While sequences decode, prompt chunks shrink so that a step takes about this long. 0 =
    /// never.
    std::chrono::duration<double> step_time_target{0.0};
    bool has_prefix_cache = true;
    std::int32_t draft_tokens_max = 0;  // bound on drafts; 0 = no speculation
    std::int32_t draft_batch_max = 4;   // no drafts while more sequences decode
    bool drafts_always = false;         // not by measured gain: for tests and benchmarks
    std::vector<TokenId> end_tokens;    // the model's end-of-generation set
    std::function<void(const StepStats&)> on_step;  // may be empty
    /// The runner threw (the device is lost). Called once, on the engine thread, after every
    /// request has finished with kError; the engine takes no more. May be empty. It must not
    /// destroy the engine.
    std::function<void(const std::string& reason)> on_fatal;
};

class StepRunner;

class Engine {
public:
    /// Starts the engine thread. `runner` outlives the engine.
    Engine(StepRunner& runner, EngineOptions options);
    /// Stops at once: running sequences finish with kCancelled.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Any thread. The sink is called only for accepted requests, and exactly once with on_finish.
    SubmitResult submit(EngineRequest request);
    /// Any thread, idempotent, unknown ids are ignored. Takes effect within one step.
    void cancel(RequestId id);
    /// Any thread. No new requests (kStopping); running and waiting ones go on.
    void drain();
    EngineStatus status() const;
    /// Called on the engine thread after the status changed (at most once per step). Set before
    /// use.
    void on_status_change(std::function<void()> callback);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace replica
