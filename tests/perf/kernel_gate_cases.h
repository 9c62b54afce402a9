// The cases of the gate. Making a list packs what its cases need (packing ends with prepare);
// running comes after.
#pragma once

#include <functional>
#include <vector>

#include "tests/perf/kernel_gate_pair.h"
#include "tests/perf/kernel_gate_report.h"

namespace kernels::gate {

using Case = std::function<CaseResult()>;

struct CaseOptions {
    bool small = false;  // leave out everything larger than the demo model's shapes
};

/// What the steps of all cases fit into.
inline constexpr StepLimits kLimits = {.rows = 8192,
                                       .seqs = 64,
                                       .logit_rows = 65,
                                       .blocks_per_seq = 4096,
                                       .vocabulary = 248320,
                                       .inputs_max = 24576,
                                       .delta_key_heads = 16,
                                       .delta_value_heads = 48};

std::vector<Case> linear_cases(Pair& pair, const CaseOptions& options);
/// The same by cuBLASLt, with many rows.
std::vector<Case> prefill_cases(Pair& pair, const CaseOptions& options);
/// Weights altered on the device only: each must be seen as an error.
std::vector<Case> mutation_cases(Pair& pair);
std::vector<Case> row_cases(Pair& pair);  // embed, mtp_join, head with sample
std::vector<Case> sample_cases(Pair& pair, const CaseOptions& options);
std::vector<Case> delta_net_cases(Pair& pair, const CaseOptions& options);
std::vector<Case> delta_chunk_cases(Pair& pair, const CaseOptions& options);
std::vector<Case> attention_cases(Pair& pair, const CaseOptions& options);

}  // namespace kernels::gate
