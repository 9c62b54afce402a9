// The checks, one per golden format; each reads one JSON document and returns one report.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/golden/model_session.h"
#include "tests/support/golden/report.h"

namespace golden {

using Json = nlohmann::ordered_json;

/// Largest allowed difference of a logit: rounding of f32 sums, or of sums over BF16 weights.
inline double tolerance_for(const ModelSession& session) {
    return session.is_f32() ? 2e-3 : 2e-2;
}

/// Logits, greedy continuation, MTP, prefill splits and batching of a small model ("prompts").
void check_prompts(const Json& document, ModelSession& session, Report& report);
/// Chats of the demo model: rendering, ids, logits, greedy text, MTP hits ("cases" with
/// greedy_tokens).
void check_chats(const Json& document, ModelSession& session, Report& report);
/// "cases" with text and tokens.
void check_tokenizer(const Json& document, const replica::GgufFile& model, Report& report);
/// "splits" of "texts".
void check_splits(const Json& document, Report& report);
/// "cases" with a template each, or one "template" for all.
void check_templates(const Json& document, Report& report);

}  // namespace golden
