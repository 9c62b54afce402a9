#include "router/decision_ring.h"

#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "router/policy_record.h"

namespace router {
namespace {

/// Milliseconds with one digit after the point, as in the access line.
double milliseconds(Clock::duration time) {
    return std::round(std::chrono::duration<double, std::milli>(time).count() * 10) / 10;
}

std::optional<double> milliseconds_of(const std::optional<Clock::duration>& time) {
    if (!time) return std::nullopt;
    return milliseconds(*time);
}

/// Enough for a record with four candidates.
constexpr std::size_t kRecordTextBytes = 1536;

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point time) {
    const auto since_epoch =
        std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
    const auto second = static_cast<std::time_t>(since_epoch / 1000);
    std::tm parts{};
    ::gmtime_r(&second, &parts);
    std::array<char, 32> day{};
    std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%s.%03dZ", day.data(),
                  static_cast<int>(since_epoch % 1000));
    return text.data();
}

std::shared_ptr<DecisionRecord> DecisionRing::add(DecisionRecord record) {
    record.number = ++count_;
    if (records_.size() < kRecordsMax) {
        records_.emplace_back();
    } else {
        const DecisionRecord& oldest = *numbered(count_);
        const auto at = number_of_dispatch_.find(oldest.request.dispatch);
        if (at != number_of_dispatch_.end() && at->second == oldest.number) {
            number_of_dispatch_.erase(at);
        }
    }
    if (!record.request.dispatch.empty()) number_of_dispatch_[record.request.dispatch] = count_;
    return numbered(count_) = std::make_shared<DecisionRecord>(std::move(record));
}

const DecisionRecord& DecisionRing::newest(std::size_t age) const {
    assert(age < records_.size() && "no such record");
    return *records_[(count_ - 1 - age) % kRecordsMax];
}

void DecisionRing::note_generated(const std::string& dispatch, std::int64_t generated_tokens) {
    const auto at = number_of_dispatch_.find(dispatch);
    if (at == number_of_dispatch_.end()) return;
    numbered(at->second)->request.generated_tokens = generated_tokens;
}

std::vector<const DecisionRecord*> DecisionRing::find(std::string_view request_id,
                                                      std::size_t limit) const {
    std::vector<const DecisionRecord*> found;
    for (std::size_t age = 0; age < size() && found.size() < limit; ++age) {
        const DecisionRecord& record = newest(age);
        if (request_id.empty() || record.request_id == request_id) found.push_back(&record);
    }
    return found;
}

std::string decision_record_json(const DecisionRecord& record) {
    const RequestRecord& request = record.request;
    std::string text;
    text.reserve(kRecordTextBytes);
    JsonLine line(text);
    line.open('{');
    line.member("number", record.number);
    line.member("request_id", record.request_id);
    line.member("ended", utc_text(record.ended_at));
    line.member("status", record.status);
    line.member("outcome", name_of(request.outcome));
    line.member("model", request.model);
    line.member("class", name_of(request.priority_class));
    line.member("stream", request.is_stream);
    line.member("attempts", request.attempts);
    line.member("queue_ms", milliseconds_of(request.queued));
    line.member("total_ms", milliseconds(record.total));
    line.member("prompt", request.prompt_tokens);
    line.member("predicted_cached", request.matched_tokens);
    line.member("cached", request.cached_tokens);
    line.member("generated", request.generated_tokens);
    line.name("expected_ttft_ms");
    if (request.decision) {
        line.value(std::round(1e3 * request.expected_ttft_s));
    } else {
        line.value(nullptr);
    }
    line.member("ttft_ms", milliseconds_of(request.ttft));
    if (!request.error.empty()) line.member("error", request.error);
    if (!request.trace_id.empty()) line.member("trace_id", request.trace_id);
    line.name("decision");
    if (request.decision) {
        write_decision(line, *request.decision);
    } else {
        line.value(nullptr);
    }
    line.close('}');
    return text;
}

}  // namespace router
