#include "router/access_log.h"

#include <iterator>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "router/admission.h"

namespace router {
namespace {

// A note is taken back within the same turn of the loop; more than a few are a leak.
constexpr std::size_t kNotesMax = 16384;
constexpr int kStatusClientGone = 499;  // no answer was sent

double milliseconds(std::chrono::steady_clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

/// The outcome of a request that no generation coroutine has seen. A mistake of our own (500) is
/// counted with the upstream's errors, so that the alert about errors sees it.
Outcome outcome_by_status(const proto::HttpAccess& access) {
    const std::shared_ptr<Admission> admission = admission_of(access.ticket);
    if (admission && admission->is_cut) return Outcome::kUpstreamError;
    if (access.client_aborted) return Outcome::kClientAbort;
    if (access.gate) return Outcome::kClientError;  // 501 and 505 among them
    if (access.status == 504) return Outcome::kUpstreamStall;
    if (access.status == 429 || access.status == 503) return Outcome::kRejected;
    if (access.status >= 500) return Outcome::kUpstreamError;
    return access.status >= 400 ? Outcome::kClientError : Outcome::kOk;
}

/// Clients choose it: what would end a value, or look like the next one, is put in quotes.
std::string log_value(std::string_view text) {
    std::string shown = proto::printable(text);
    if (shown.find_first_of(" =\"") == std::string::npos) return shown;
    for (std::size_t at = shown.find('"'); at != std::string::npos; at = shown.find('"', at + 2))
        shown.insert(at, 1, '\\');
    return '"' + shown + '"';
}

/// What ends the access line of a generation.
std::string times_text(const RequestRecord& record) {
    std::string text;
    if (record.queued) text += fmt::format(" queue_ms={:.1f}", milliseconds(*record.queued));
    // Of streams only, as in the decision record: another answer has no first token of its own.
    if (record.ttft) {
        text += fmt::format(" ttft_ms={:.1f} expected_ttft_ms={:.1f}", milliseconds(*record.ttft),
                            1e3 * record.expected_ttft_s);
    }
    if (!record.trace_id.empty()) text += " trace_id=" + record.trace_id;
    if (!record.error.empty()) text += " error=" + record.error;
    return text;
}

/// Whether its replica worked on it and has not told yet how much it generated.
bool is_report_due(const RequestRecord& record) {
    const bool did_work = record.outcome == Outcome::kOk ||
                          record.outcome == Outcome::kClientAbort ||
                          record.outcome == Outcome::kDrained;
    return did_work && !record.dispatch.empty() && !record.generated_tokens;
}

}  // namespace

Endpoint endpoint_of(std::string_view path) {
    if (path == "/v1/chat/completions") return Endpoint::kChatCompletions;
    if (path == "/v1/completions") return Endpoint::kCompletions;
    if (path == "/tokenize" || path == "/detokenize" || path == "/apply-template") {
        return Endpoint::kTokens;
    }
    if (path.substr(0, 10) == "/v1/models") return Endpoint::kModels;
    if (path == "/health") return Endpoint::kHealth;
    if (path == "/ready") return Endpoint::kReady;
    if (path == "/info") return Endpoint::kInfo;
    if (path == "/metrics" || path == "/metrics/all") return Endpoint::kMetrics;
    if (path.substr(0, 10) == "/dashboard") return Endpoint::kDashboard;
    return Endpoint::kOther;
}

void AccessLog::note(const std::string& request_id, RequestRecord record) {
    if (notes_.size() >= kNotesMax) notes_.clear();
    notes_.emplace(request_id, std::move(record));
}

void AccessLog::write(const Lines& lines) {
    spdlog::info("event=decision_record request_id={} record={}", lines.record->request_id,
                 decision_record_json(*lines.record));
    const auto& generated = lines.record->request.generated_tokens;
    spdlog::info("{}{}{}", lines.before,
                 generated ? " generated=" + std::to_string(*generated) : std::string(),
                 lines.after);
}

void AccessLog::write_oldest() {
    write(held_.front());
    held_by_dispatch_.erase(held_.front().record->request.dispatch);
    held_.pop_front();
}

void AccessLog::on_generated(const std::string& dispatch, std::int64_t generated_tokens) {
    ring_.note_generated(dispatch, generated_tokens);
    const auto found = held_by_dispatch_.find(dispatch);
    if (found == held_by_dispatch_.end()) return;
    const auto lines = found->second;
    held_by_dispatch_.erase(found);
    lines->record->request.generated_tokens = generated_tokens;
    write(*lines);
    held_.erase(lines);
}

void AccessLog::tick(Clock::time_point now) {
    while (!held_.empty() && held_.front().until <= now)
        write_oldest();
}

void AccessLog::write_held() {
    tick(Clock::time_point::max());
}

void AccessLog::on_access(const proto::HttpAccess& access) {
    const auto note = notes_.find(access.request_id);
    const bool is_noted = note != notes_.end();
    const Outcome outcome = is_noted ? note->second.outcome : outcome_by_status(access);
    const int status = access.status == 0 ? kStatusClientGone : access.status;
    const Endpoint endpoint = endpoint_of(access.path);
    metrics_.count_request(endpoint, status, outcome);
    std::shared_ptr<DecisionRecord> record;
    if (is_noted) {
        record = ring_.add({.request_id = access.request_id,
                            .ended_at = std::chrono::system_clock::now(),
                            .status = status,
                            .total = access.duration,
                            .request = std::move(note->second)});
        notes_.erase(note);
    }

    // Probes and scrapes come every few seconds for ever; they are of interest only when they fail.
    const bool is_routine = endpoint == Endpoint::kHealth || endpoint == Endpoint::kReady ||
                            endpoint == Endpoint::kMetrics || endpoint == Endpoint::kInfo ||
                            endpoint == Endpoint::kDashboard;
    const auto level = is_routine ? spdlog::level::debug : spdlog::level::info;
    if (!spdlog::should_log(level)) return;
    std::string line = fmt::format(
        "event=request request_id={} method={} path={} status={} outcome={} total_ms={:.1f}",
        access.request_id, proto::printable(access.method), proto::printable(access.path), status,
        name_of(outcome), milliseconds(access.duration));
    if (const auto admission = admission_of(access.ticket); admission && admission->caller) {
        const std::string& key = admission->caller->name;
        line += " key=" + (key.empty() ? "-" : key);
    }
    if (access.gate) line += fmt::format(" gate={}", proto::gate_reason_name(*access.gate));
    if (!access.fault.empty()) line += " fault=" + log_value(access.fault);
    if (!record) {
        spdlog::log(level, line);
        return;
    }
    const RequestRecord& request = record->request;
    line += fmt::format(
        " model={} class={} replica={} reason={} attempts={} prompt={} matched={} cached={}",
        request.model.empty() ? "-" : log_value(request.model), name_of(request.priority_class),
        request.replica ? std::to_string(*request.replica) : "-", request.reason, request.attempts,
        request.prompt_tokens, request.matched_tokens, request.cached_tokens);
    Lines lines{.record = record,
                .before = std::move(line),
                .after = times_text(request),
                .until = Clock::now() + kReportWait};
    if (!is_report_due(request)) {
        write(lines);
        return;
    }
    if (held_.size() >= kHeldMax) write_oldest();
    held_.push_back(std::move(lines));
    held_by_dispatch_.emplace(held_.back().record->request.dispatch, std::prev(held_.end()));
}

}  // namespace router
