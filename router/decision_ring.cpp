#include "router/decision_ring.h"

#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "proto/json.h"
#include "router/policy_record.h"

namespace router {
namespace {

/// Milliseconds with one digit after the point, as in the access line.
double milliseconds(Clock::duration time) {
    return std::round(std::chrono::duration<double, std::milli>(time).count() * 10) / 10;
}

proto::Json milliseconds_or_null(const std::optional<Clock::duration>& time) {
    return time ? proto::Json(milliseconds(*time)) : proto::Json();
}

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

const DecisionRecord& DecisionRing::add(DecisionRecord record) {
    record.number = ++count_;
    if (records_.size() < kRecordsMax) return records_.emplace_back(std::move(record));
    DecisionRecord& oldest = records_[(count_ - 1) % kRecordsMax];
    oldest = std::move(record);
    return oldest;
}

const DecisionRecord& DecisionRing::newest(std::size_t age) const {
    assert(age < records_.size() && "no such record");
    return records_[(count_ - 1 - age) % kRecordsMax];
}

void DecisionRing::note_generated(std::string_view dispatch, std::int64_t generated_tokens) {
    for (std::size_t age = 0; age < size(); ++age) {  // it has ended a moment ago
        DecisionRecord& record = records_[(count_ - 1 - age) % kRecordsMax];
        if (record.request.dispatch != dispatch) continue;
        record.request.generated_tokens = generated_tokens;
        return;
    }
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
    proto::Json json{{"number", record.number},
                     {"request_id", record.request_id},
                     {"ended", utc_text(record.ended_at)},
                     {"status", record.status},
                     {"outcome", std::string(name_of(request.outcome))},
                     {"model", request.model},
                     {"class", std::string(name_of(request.priority_class))},
                     {"stream", request.is_stream},
                     {"attempts", request.attempts},
                     {"queue_ms", milliseconds_or_null(request.queued)},
                     {"total_ms", milliseconds(record.total)},
                     {"prompt", request.prompt_tokens},
                     {"predicted_cached", request.matched_tokens},
                     {"cached", request.cached_tokens}};
    json["generated"] =
        request.generated_tokens ? proto::Json(*request.generated_tokens) : proto::Json();
    json["expected_ttft_ms"] =
        request.decision ? proto::Json(std::round(1e3 * request.expected_ttft_s)) : proto::Json();
    json["ttft_ms"] = milliseconds_or_null(request.ttft);
    if (!request.error.empty()) json["error"] = request.error;
    if (!request.trace_id.empty()) json["trace_id"] = request.trace_id;
    std::string text = proto::json_text(json);
    text.pop_back();  // the decision has a text of its own
    return text + R"(,"decision":)" +
           (request.decision ? decision_json(*request.decision) : "null") + "}";
}

}  // namespace router
