// The last decisions and what came of them, for whoever asks why: the admin endpoint, the dashboard
// and the log.
//
//   Generation ── RequestRecord (with its Decision) ──▶ AccessLog, at the request's end
//                                                          └─▶ DecisionRing.add ─▶ ring of 1024
//
// A record holds of every replica the cost terms or what excluded it, the prefix that was predicted
// and the one that was found, and the time to the first token as expected and as it was. No prompt
// text, no key. A request that was refused on its head alone was no decision and is not here; one
// that waited in vain is, without a decision. Decision thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "router/charge.h"
#include "router/metrics.h"
#include "router/policy.h"
#include "router/wait_queue.h"

namespace router {

/// What a generation came to.
struct RequestRecord {
    Outcome outcome = Outcome::kOk;
    std::string model;  // served name; as the request wrote it while that is not known
    PriorityClass priority_class = PriorityClass::kDefault;
    bool is_stream = false;
    std::optional<int> replica;  // the last one tried
    int attempts = 0;
    std::string_view reason = "-";    // of the last choice
    std::int64_t matched_tokens = 0;  // expected in the replica's cache
    double expected_ttft_s = 0;       // from the selection on
    std::string error;                // code of the error sent, if any
    std::int64_t prompt_tokens = 0;   // as reported; 0 before the first token
    std::int64_t cached_tokens = 0;
    std::optional<std::int64_t> generated_tokens;  // as reported; none until the report
    std::optional<Clock::duration> queued;         // arrival to first dispatch
    std::optional<Clock::duration> first_byte;     // arrival to first token
    std::optional<Clock::duration> ttft;           // selection to first token, as `expected_ttft_s`
    std::string dispatch;                          // id of the last attempt
    std::string trace_id;                          // W3C, 32 hex digits
    std::shared_ptr<const Decision> decision;      // the last one; null: it got no replica
};

struct DecisionRecord {
    std::uint64_t number = 0;  // counts the records of this process from 1
    std::string request_id;
    std::chrono::system_clock::time_point ended_at;
    int status = 0;  // 499: the client left before an answer
    Clock::duration total{};
    RequestRecord request;
};

class DecisionRing {
public:
    static constexpr std::size_t kRecordsMax = 1024;

    /// Numbers the record and puts it in place of the oldest one when the ring is full. It lives on
    /// with whoever keeps it, and learns its report as long as it is in the ring.
    std::shared_ptr<DecisionRecord> add(DecisionRecord record);

    /// The replica's report of a dispatch has come, usually a moment after the request's end.
    void note_generated(const std::string& dispatch, std::int64_t generated_tokens);

    [[nodiscard]] std::size_t size() const { return records_.size(); }
    /// The newest is 0; `age` < size().
    [[nodiscard]] const DecisionRecord& newest(std::size_t age) const;

    /// At most `limit` records, newest first; with an id only that request's (an id may repeat).
    [[nodiscard]] std::vector<const DecisionRecord*> find(std::string_view request_id,
                                                          std::size_t limit) const;

private:
    [[nodiscard]] std::shared_ptr<DecisionRecord>& numbered(std::uint64_t number) {
        return records_[(number - 1) % kRecordsMax];
    }

    std::vector<std::shared_ptr<DecisionRecord>> records_;
    std::unordered_map<std::string, std::uint64_t> number_of_dispatch_;  // of those in the ring
    std::uint64_t count_ = 0;
};

/// One object, for example
/// {"number":7,"request_id":"req-…","ended":"2026-07-01T12:00:00.123Z","status":200,"outcome":"ok",
///  "model":"m","class":"default","stream":true,"attempts":1,"queue_ms":12.0,"total_ms":800.1,
///  "prompt":8120,"predicted_cached":7936,"cached":7936,"generated":412,"expected_ttft_ms":430,
///  "ttft_ms":415.2,"decision":{…}}        decision: see policy_record.h; null without one
[[nodiscard]] std::string decision_record_json(const DecisionRecord& record);

/// UTC with milliseconds, "2026-07-01T12:00:00.123Z": the one form of time in logs and bodies.
[[nodiscard]] std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace router
