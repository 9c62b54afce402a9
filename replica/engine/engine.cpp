#include "replica/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "replica/engine/engine_limits.h"
#include "replica/engine/sequence.h"
#include "replica/engine/statistics.h"
#include "replica/engine/step_runner.h"
#include "replica/engine/stepper.h"

namespace replica {

/// One lock guards what other threads see: the command queue and the status. It is never held while
/// a step runs or a callback is called, so sinks may call back into the engine.
class Engine::Impl {
public:
    Impl(StepRunner& runner, EngineOptions options);
    ~Impl();

    SubmitResult submit(EngineRequest request);
    void cancel(RequestId id);
    void drain();
    EngineStatus status() const;
    void on_status_change(std::function<void()> callback) { status_changed_ = std::move(callback); }

private:
    std::vector<std::unique_ptr<Sequence>> make_choices(EngineRequest request, RequestId id) const;
    void run();
    bool take_commands();
    void step();
    void show_state();
    void publish();
    void stop_with(FinishReason reason, const std::string& error);

    const EngineOptions options_;
    const EngineLimits limits_;
    const std::int32_t vocabulary_;

    // The engine thread's.
    Stepper stepper_;
    std::vector<std::unique_ptr<Sequence>> arrived_;  // work memory of take_commands
    std::vector<RequestId> cancelled_;
    std::vector<std::unique_ptr<Sequence>> finished_;  // work memory of publish
    std::function<void()> status_changed_;

    // Shared, under mutex_.
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::unique_ptr<Sequence>> submits_;  // choices of `open_` requests
    std::vector<RequestId> cancels_;                  // at most one per open request
    struct OpenRequest {
        bool is_cancel_asked = false;
    };
    std::unordered_map<RequestId, OpenRequest> open_;  // accepted, not finished; <= requests_max
    RequestId last_id_ = 0;
    bool is_draining_ = false;
    bool is_stopping_ = false;
    EngineStatus status_;
    Statistics statistics_;

    std::thread thread_;  // last: it starts when all else is there
};

Engine::Impl::Impl(StepRunner& runner, EngineOptions options)
    : options_(std::move(options)),
      limits_(engine_limits(runner.limits(), options_)),
      vocabulary_(runner.limits().step.vocabulary),
      stepper_(runner, limits_) {
    const auto requests = static_cast<std::size_t>(limits_.requests_max());
    for (auto* sequences : {&arrived_, &finished_, &submits_})
        sequences->reserve(requests);
    for (std::vector<RequestId>* ids : {&cancelled_, &cancels_})
        ids->reserve(requests);
    status_.sequences_max = limits_.sequences_max;
    status_.waiting_max = limits_.waiting_max;
    status_.max_model_len = limits_.max_model_len;
    status_.queued_tokens_max = limits_.queued_tokens_max;
    stepper_.fill(status_);
    thread_ = std::thread([this] { run(); });
}

Engine::Impl::~Impl() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

SubmitResult Engine::Impl::submit(EngineRequest request) {
    if (request.prompt.empty()) return {.status = SubmitStatus::kPromptEmpty};
    if (request.prompt.size() >= static_cast<std::size_t>(limits_.max_model_len)) {
        return {.status = SubmitStatus::kContextExceeded};
    }
    assert(std::all_of(request.prompt.begin(), request.prompt.end(),
                       [this](TokenId token) { return token >= 0 && token < vocabulary_; }) &&
           "the caller checked the token ids");
    assert(!request.sinks.empty() && "a request has a choice");
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    RequestId id = 0;
    {  // Take a place in the queue; what costs time comes outside the lock.
        const std::lock_guard lock(mutex_);
        if (is_stopping_ || is_draining_) return {.status = SubmitStatus::kStopping};
        const bool would_wait = open_.size() >= static_cast<std::size_t>(limits_.sequences_max);
        const bool has_too_many_tokens =
            would_wait && !request.continues_request && status_.queued_tokens > 0 &&
            status_.queued_tokens + prompt_tokens > limits_.queued_tokens_max;
        if (has_too_many_tokens ||
            open_.size() >= static_cast<std::size_t>(limits_.requests_max())) {
            return {.status = SubmitStatus::kQueueFull};
        }
        id = ++last_id_;
        open_.emplace(id, OpenRequest{});
        status_.waiting += 1;
        status_.queued_tokens += prompt_tokens;
    }
    std::vector<std::unique_ptr<Sequence>> choices = make_choices(std::move(request), id);
    {
        const std::lock_guard lock(mutex_);
        if (is_stopping_) {  // meanwhile; the engine thread may be gone already
            open_.erase(id);
            return {.status = SubmitStatus::kStopping};
        }
        std::ranges::move(choices, std::back_inserter(submits_));
    }
    wake_.notify_one();
    return {.status = SubmitStatus::kAccepted, .id = id};
}

/// Any thread.
std::vector<std::unique_ptr<Sequence>> Engine::Impl::make_choices(EngineRequest request,
                                                                  RequestId id) const {
    auto family = std::make_shared<Family>();
    family->id = id;
    family->choices = family->unfinished = static_cast<std::int32_t>(request.sinks.size());
    // Without a cache across requests, choices still share their own prompt.
    family->salt =
        limits_.has_prefix_cache ? "salt " + request.cache_salt : "request " + std::to_string(id);
    std::vector<std::unique_ptr<Sequence>> choices;
    for (std::int32_t choice = 0; choice < family->choices; ++choice) {
        const bool is_last = choice + 1 == family->choices;
        choices.push_back(
            std::make_unique<Sequence>(is_last ? std::move(request) : request,
                                       SequenceOrigin{.family = family,
                                                      .choice = choice,
                                                      .arrival = id,
                                                      .max_model_len = limits_.max_model_len,
                                                      .draft_tokens_max = limits_.draft_tokens_max,
                                                      .end_tokens = options_.end_tokens,
                                                      .accepted_at = Clock::now()}));
    }
    return choices;
}

void Engine::Impl::cancel(RequestId id) {
    {
        const std::lock_guard lock(mutex_);
        const auto request = open_.find(id);
        if (request == open_.end() || request->second.is_cancel_asked) return;
        request->second.is_cancel_asked = true;
        cancels_.push_back(id);
    }
    wake_.notify_one();
}

void Engine::Impl::drain() {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
}

EngineStatus Engine::Impl::status() const {
    const std::lock_guard lock(mutex_);
    EngineStatus status = status_;
    statistics_.fill(status, Clock::now());
    return status;
}

void Engine::Impl::run() {
    while (take_commands()) {
        if (!stepper_.is_empty()) {
            try {
                step();
            } catch (const std::exception& error) {
                stop_with(FinishReason::kError, error.what());
                if (options_.on_fatal) options_.on_fatal(error.what());
                return;
            }
        }
        publish();
    }
    stop_with(FinishReason::kCancelled, {});
}

/// Sleeps while there is nothing to do. False = stop now.
bool Engine::Impl::take_commands() {
    {
        std::unique_lock lock(mutex_);
        if (stepper_.is_empty()) {
            wake_.wait(lock,
                       [this] { return is_stopping_ || !submits_.empty() || !cancels_.empty(); });
            statistics_.work_begins(Clock::now());
        }
        if (is_stopping_) return false;
        arrived_.swap(submits_);
        cancelled_.swap(cancels_);
    }
    for (std::unique_ptr<Sequence>& sequence : arrived_)
        stepper_.add(std::move(sequence));
    for (const RequestId id : cancelled_)
        stepper_.cancel(id);
    arrived_.clear();
    cancelled_.clear();
    return true;
}

void Engine::Impl::step() {
    stepper_.begin_step();
    show_state();  // a long first prefill counts as running while it runs
    const StepStats stats = stepper_.finish_step();
    {
        const std::lock_guard lock(mutex_);
        statistics_.record_step(stats, Clock::now());
    }
    if (options_.on_step) options_.on_step(stats);
}

void Engine::Impl::show_state() {
    const std::lock_guard lock(mutex_);
    stepper_.fill(status_);
    for (const std::unique_ptr<Sequence>& sequence : submits_) {
        if (sequence->is_blocked()) continue;
        status_.waiting += 1;
        status_.queued_tokens += sequence->prompt_tokens();
    }
    for (const std::unique_ptr<Sequence>& sequence : finished_)
        if (--sequence->family().unfinished == 0) open_.erase(sequence->id());
}

/// Shows the new state, then tells the sinks: who hears on_finish sees the blocks as free.
void Engine::Impl::publish() {
    stepper_.take_finished(finished_);
    show_state();
    for (const std::unique_ptr<Sequence>& sequence : finished_)
        sequence->sink().on_finish(sequence->finish_info());
    finished_.clear();
    if (status_changed_) status_changed_();
}

/// The end of the engine thread: nothing is accepted any more, and everything accepted finishes.
void Engine::Impl::stop_with(FinishReason reason, const std::string& error) {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
        arrived_.swap(submits_);
    }
    for (std::unique_ptr<Sequence>& sequence : arrived_)
        stepper_.add(std::move(sequence));
    arrived_.clear();
    stepper_.finish_all(reason, error);
    publish();
}

Engine::Engine(StepRunner& runner, EngineOptions options)
    : impl_(std::make_unique<Impl>(runner, std::move(options))) {}
Engine::~Engine() = default;
SubmitResult Engine::submit(EngineRequest request) {
    return impl_->submit(std::move(request));
}
void Engine::cancel(RequestId id) {
    impl_->cancel(id);
}
void Engine::drain() {
    impl_->drain();
}
EngineStatus Engine::status() const {
    return impl_->status();
}
void Engine::on_status_change(std::function<void()> callback) {
    impl_->on_status_change(std::move(callback));
}

}  // namespace replica
