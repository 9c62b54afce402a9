// The second half of a generation: bytes from the replica to the client.
#include <algorithm>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/free_string.h"
#include "proto/sse.h"
#include "proto/status.h"
#include "router/generation.h"

namespace router {
namespace {

namespace asio = boost::asio;

/// After its terminal event a stream has nothing more to say; it may only take this long over it.
constexpr std::chrono::milliseconds kTailWait{1'000};
constexpr std::size_t kStreamErrorLost = 0;
constexpr std::size_t kStreamErrorStalled = 1;

double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

/// Events that end with LF LF, as our replicas write them; each carries about a token. Others count
/// nothing, and their answer is then expected in full until its end.
std::int64_t count_events(std::string_view events) {
    std::int64_t count = 0;
    for (std::size_t at = events.find("\n\n"); at != std::string_view::npos;
         at = events.find("\n\n", at + 2)) {
        ++count;
    }
    return count;
}

}  // namespace

asio::awaitable<Generation::Next> Generation::relay_stream(Grant& grant,
                                                           proto::UpstreamResponse& response) {
    StreamRelay relay(services_.config.stream_buffer_bytes);
    bool has_begun = false;  // an event of the replica has gone to the client
    std::int64_t event_count = 0;
    auto heard_at = Clock::now();
    auto pinged_at = heard_at;
    for (;;) {
        const auto patience = relay.has_ended() ? kTailWait : look_interval();
        const proto::ReadResult read = co_await response.read_some(patience);
        if (client_gone_at_) {
            count_attempt(grant, AttemptOutcome::kAborted);
            co_return Next::kEnd;
        }
        const auto now = Clock::now();
        if (read.status == proto::ReadStatus::kData) {
            const std::string_view events = relay.feed(read.data);
            if (events.empty()) continue;
            const bool is_first = !std::exchange(has_begun, true);
            if (is_first) {
                grant.on_lost = {};  // from here on a broken connection tells
                co_await pinger_.stop();
                free_body();
            } else {
                services_.metrics.event_gap_seconds->Observe(seconds(now - heard_at));
            }
            heard_at = pinged_at = now;
            const std::int64_t come = count_events(events);
            event_count += come;
            grant.charge.mark_output(come);
            // What ends the stream is often here with the last events, and leaves with them.
            const bool is_whole = exchange_.is_started() && read.is_last && relay.has_ended();
            if (is_whole) note_stream_end(grant, relay, event_count);
            bool is_there = false;
            if (is_whole) {
                is_there = co_await exchange_.finish(events);
            } else if (exchange_.is_started()) {  // by an event before, or by a ping
                is_there = co_await exchange_.write(events);
            } else {
                proto::Headers head = head_for_client(response);
                is_there = co_await exchange_.start_stream(200, std::move(head), events);
            }
            services_.metrics.overhead_seconds.at(static_cast<std::size_t>(Stage::kRelay))
                ->Observe(seconds(Clock::now() - now));
            if (!is_there) on_client_gone();
            if (is_whole) co_return Next::kEnd;
            if (is_there) continue;
            count_attempt(grant, AttemptOutcome::kAborted);
            co_return Next::kEnd;
        }
        if (read.status == proto::ReadStatus::kTimeout && !relay.has_ended()) {
            if (!is_given_up(grant, now, heard_at)) {
                const bool is_ping_due = now - pinged_at >= services_.config.ping;
                if (has_begun && relay.is_at_boundary() && is_ping_due) {
                    pinged_at = now;
                    (void)co_await exchange_.write(proto::kSsePing);
                }
                continue;
            }
        }
        if (relay.has_ended()) {
            if (read.status == proto::ReadStatus::kError &&
                read.error.kind == proto::ClientErrorKind::kMalformed) {
                grant.judge(AttemptVerdict::kFault);  // the client has all of it nevertheless
            }
            note_stream_end(grant, relay, event_count);
            (void)co_await exchange_.finish();
            co_return Next::kEnd;
        }
        // The replica broke off, or fell silent and is down.
        const bool is_stalled = read.status == proto::ReadStatus::kTimeout;
        if (!is_stalled) services_.on_suspicion(grant.replica.index);
        if (is_stalled) has_hung_ = true;
        if (!has_begun) co_return co_await after_failure(grant, AttemptResult::kLost);
        response.close();
        count_attempt(grant, cut_ != Cut::kNone ? AttemptOutcome::kAborted : AttemptOutcome::kLost);
        // Inside an event too long to hold there is no boundary left; make one.
        if (!relay.is_at_boundary()) (void)co_await exchange_.write("\n\n");
        co_await end_broken_stream(is_stalled);
        co_return Next::kEnd;
    }
}

/// The replica has ended its stream, properly or by an error event of its own.
void Generation::note_stream_end(Grant& grant, const StreamRelay& relay, std::int64_t events) {
    const bool is_ok = !relay.has_error();
    record_.outcome = is_ok ? Outcome::kOk : Outcome::kUpstreamError;
    count_attempt(grant, is_ok ? AttemptOutcome::kOk : AttemptOutcome::kLost);
    if (!is_ok) exchange_.close_after();
    if (is_ok && !tells_ends(grant)) account(grant, end_of_stream(relay.last_events()), events);
}

/// Nothing has come for too long from a replica that is down. Where only the connection is at
/// fault it tells by itself, and a replica that lives may take its time.
bool Generation::is_given_up(const Grant& grant, Clock::time_point now,
                             Clock::time_point heard_at) const {
    return now - heard_at >= services_.config.stream_idle && is_replica_lost(grant);
}

/// How often a silent answer is looked at.
std::chrono::milliseconds Generation::look_interval() const {
    return std::min(services_.config.ping, services_.config.stream_idle);
}

asio::awaitable<void> Generation::end_broken_stream(bool is_stalled) {
    const CutAnswer end = broken_end(is_stalled);
    co_await answer_error(end.error, end.outcome);
}

/// Why an answer that has begun ends here; counted and said in the log.
Generation::CutAnswer Generation::broken_end(bool is_stalled) {
    CutAnswer end = cut_answer();
    if (cut_ == Cut::kNone) {
        end.error = proto::ApiError(
            is_stalled ? proto::ErrorCode::kReplicaTimeout : proto::ErrorCode::kReplicaLost,
            "The replica was lost in the middle of the answer. Send the request again; in the logs "
            "it is " +
                exchange_.request().request_id + ".");
        end.outcome = is_stalled ? Outcome::kUpstreamStall : Outcome::kUpstreamError;
    }
    if (end.outcome != Outcome::kDrained && end.outcome != Outcome::kClientError) {
        const bool is_late = end.outcome == Outcome::kUpstreamStall;
        services_.metrics.stream_errors.at(is_late ? kStreamErrorStalled : kStreamErrorLost)
            ->Increment();
        spdlog::warn("event=stream_broken request_id={} replica={} code={}",
                     exchange_.request().request_id, record_.replica.value_or(-1),
                     proto::error_info(end.error.code).name);
    }
    return end;
}

asio::awaitable<Generation::Next> Generation::relay_whole(Grant& grant,
                                                          proto::UpstreamResponse& response) {
    if (response.status == 200) on_first_byte(grant, response);
    std::string held;
    for (;;) {
        const proto::ReadResult read = co_await response.read_some(services_.config.stream_idle);
        if (client_gone_at_) {
            count_attempt(grant, AttemptOutcome::kAborted);
            co_return Next::kEnd;
        }
        if (read.status == proto::ReadStatus::kEnd) break;
        if (read.status == proto::ReadStatus::kTimeout && !is_replica_lost(grant)) continue;
        if (read.status != proto::ReadStatus::kData) {
            services_.on_suspicion(grant.replica.index);
            if (services_.set.has_hung(grant.replica)) has_hung_ = true;
            response.close();
            co_return co_await after_failure(grant, AttemptResult::kLost);
        }
        held.append(read.data);
        if (held.size() > services_.config.answer_hold_bytes) {
            grant.on_lost = {};
            proto::Headers head = head_for_client(response);
            const AttemptOutcome outcome =
                co_await relay_long(grant, response, std::move(head), std::move(held));
            count_attempt(grant, outcome);
            co_return Next::kEnd;
        }
        if (read.is_last) break;
    }
    record_.outcome = outcome_of(response.status);
    grant.judge(verdict_of(response.status));
    count_attempt(grant, response.status < 400   ? AttemptOutcome::kOk
                         : response.status < 500 ? AttemptOutcome::kClientError
                                                 : AttemptOutcome::kLost);
    if (response.status == 200 && !tells_ends(grant)) account(grant, end_of_whole(held), 0);
    co_await pinger_.stop();
    free_body();  // the client may take its time over the answer
    proto::HttpResponse answer(response.status, head_for_client(response), std::move(held));
    co_await answer_whole(std::move(answer));
    co_return Next::kEnd;
}

/// An answer too long to hold: passed on as it comes; a break shows as a cut body.
asio::awaitable<AttemptOutcome> Generation::relay_long(Grant& grant,
                                                       proto::UpstreamResponse& response,
                                                       proto::Headers headers, std::string held) {
    co_await pinger_.stop();
    free_body();
    if (exchange_.is_started()) {  // it was to be a stream, and pings were sent
        exchange_.on_disconnect({});
        exchange_.abort();
        record_.outcome = Outcome::kUpstreamError;
        co_return AttemptOutcome::kLost;
    }
    bool is_there = co_await exchange_.start_stream(response.status, std::move(headers));
    if (is_there) is_there = co_await exchange_.write(held);
    proto::free_string(held);
    auto heard_at = Clock::now();
    const auto patience = look_interval();
    while (is_there) {
        const proto::ReadResult read = co_await response.read_some(patience);
        if (client_gone_at_) break;
        const auto now = Clock::now();
        if (read.status == proto::ReadStatus::kData) {
            is_there = co_await exchange_.write(read.data);
            heard_at = Clock::now();
        } else if (read.status == proto::ReadStatus::kEnd) {
            record_.outcome = outcome_of(response.status);
            grant.give_back();
            (void)co_await exchange_.finish();
            co_return AttemptOutcome::kOk;
        } else if (read.status == proto::ReadStatus::kTimeout &&
                   !is_given_up(grant, now, heard_at)) {
            continue;
        } else {
            const bool is_stalled = read.status == proto::ReadStatus::kTimeout;
            co_return cut_long_answer(grant, is_stalled);
        }
    }
    on_client_gone();
    co_return AttemptOutcome::kAborted;
}

/// Whether the replica will say, or has said, on its status stream what this attempt took.
bool Generation::tells_ends(const Grant& grant) const {
    const Replica* replica = services_.set.find(grant.replica.index);
    return grant.generated_tokens || (replica != nullptr && replica->has_stream);
}

/// It does not, so the answer itself has to: its usage, or else what its head said and one token an
/// event. Of what the replica still reports, should its stream come back, nothing counts twice.
void Generation::account(Grant& grant, const std::optional<AnswerEnd>& end, std::int64_t events) {
    if (!end) services_.metrics.answer_ends_unread->Increment();
    const AnswerEnd said = end.value_or(AnswerEnd{});
    const std::int64_t prompt = said.prompt_tokens.value_or(record_.prompt_tokens);
    const proto::DoneEvent done{
        .dispatch = grant.dispatch_id,
        .prompt = prompt,
        .cached = std::min(said.cached_tokens.value_or(record_.cached_tokens), prompt),
        .generated = said.generated_tokens.value_or(events),
        .reason = said.finish_reason};
    (void)services_.dispatcher.on_done(grant.replica.index, done, services_.estimator);
}

/// What has no events has no place for an error: the body ends without its last chunk.
AttemptOutcome Generation::cut_long_answer(const Grant& grant, bool is_stalled) {
    const CutAnswer end = broken_end(is_stalled);
    if (!is_stalled) services_.on_suspicion(grant.replica.index);
    record_.outcome = end.outcome;
    record_.error = proto::error_info(end.error.code).name;
    exchange_.on_disconnect({});  // it is we who go
    exchange_.abort();
    return cut_ != Cut::kNone ? AttemptOutcome::kAborted : AttemptOutcome::kLost;
}

asio::awaitable<void> Generation::answer_whole(proto::HttpResponse response) {
    if (!exchange_.is_started()) {
        (void)co_await exchange_.send(std::move(response));
        co_return;
    }
    // A ping has sent the head of a stream already, so the replica's error arrives as an event.
    exchange_.close_after();
    const std::string event =
        response.status >= 400
            ? proto::sse_event("error", response.body)
            : proto::sse_error({proto::ErrorCode::kReplicaLost, "The replica sent no stream."});
    const bool is_there = co_await exchange_.write(event);
    if (is_there) (void)co_await exchange_.finish();
}

}  // namespace router
