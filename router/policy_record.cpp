#include "router/policy_record.h"

#include <cmath>

#include "proto/json.h"

namespace router {
namespace {

/// Microseconds are more than any of these numbers is worth.
double rounded(double seconds) {
    return std::round(seconds * 1e6) / 1e6;
}

proto::Json candidate_json(const Candidate& candidate) {
    proto::Json json{{"replica", candidate.replica.index}};
    if (!candidate.can_start()) json["obstacle"] = std::string(name_of(candidate.obstacle));
    if (!candidate.is_candidate()) return json;
    const CostTerms& terms = candidate.terms;
    json["cost_s"] = rounded(terms.total());
    json["queue_s"] = rounded(terms.queue_s);
    json["prefill_s"] = rounded(terms.prefill_s);
    json["saved_s"] = rounded(terms.saved_s);
    json["decode_s"] = rounded(terms.decode_s);
    json["kv_s"] = rounded(terms.kv_s);
    json["slot_s"] = rounded(terms.slot_s);
    json["matched"] = candidate.matched_tokens;
    return json;
}

}  // namespace

std::string decision_json(const Decision& decision) {
    proto::Json json = proto::Json::object();
    if (decision.replica) json["replica"] = decision.replica->index;
    if (decision.verdict == Verdict::kDispatch) {
        json["reason"] = std::string(name_of(decision.reason));
        json["matched"] = decision.matched_tokens;
        json["uncached"] = decision.uncached_tokens;
        json["is_big"] = decision.is_big;
        json["expected_ttft_ms"] = std::round(1e3 * decision.expected_ttft_s);
    }
    json["candidates"] = proto::Json::array();
    for (const Candidate& candidate : decision.candidates)
        json["candidates"].push_back(candidate_json(candidate));
    return proto::json_text(json);
}

}  // namespace router
