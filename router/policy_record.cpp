#include "router/policy_record.h"

#include <cmath>

namespace router {
namespace {

/// Microseconds are more than any of these numbers is worth.
double rounded(double seconds) {
    return std::round(seconds * 1e6) / 1e6;
}

void write_candidate(JsonLine& line, const Candidate& candidate) {
    line.open('{');
    line.member("replica", candidate.replica.index);
    if (!candidate.can_start()) line.member("obstacle", name_of(candidate.obstacle));
    if (candidate.is_candidate()) {
        const CostTerms& terms = candidate.terms;
        line.member("cost_s", rounded(terms.total()));
        line.member("queue_s", rounded(terms.queue_s));
        line.member("prefill_s", rounded(terms.prefill_s));
        line.member("saved_s", rounded(terms.saved_s));
        line.member("decode_s", rounded(terms.decode_s));
        line.member("kv_s", rounded(terms.kv_s));
        line.member("slot_s", rounded(terms.slot_s));
        line.member("matched", candidate.matched_tokens);
    }
    line.close('}');
}

}  // namespace

void write_decision(JsonLine& line, const Decision& decision) {
    line.open('{');
    if (decision.replica) line.member("replica", decision.replica->index);
    if (decision.verdict == Verdict::kDispatch) {
        line.member("reason", name_of(decision.reason));
        line.member("matched", decision.matched_tokens);
        line.member("uncached", decision.uncached_tokens);
        line.member("is_big", decision.is_big);
        line.member("expected_ttft_ms", std::round(1e3 * decision.expected_ttft_s));
    }
    line.name("candidates");
    line.open('[');
    for (const Candidate& candidate : decision.candidates)
        write_candidate(line, candidate);
    line.close(']');
    line.close('}');
}

std::string decision_json(const Decision& decision) {
    std::string text;
    JsonLine line(text);
    write_decision(line, decision);
    return text;
}

}  // namespace router
