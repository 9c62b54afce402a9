// A row's sampling rules as the device takes them: pure host code.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/sample_rows.h"

namespace kernels::cuda {

/// Flattens `row`; what bias, penalties and bans do to each token goes to the end of `edits`, one
/// entry a token.
SampleRow flatten(const SamplingRow& row, std::vector<LogitEdit>& edits);

}  // namespace kernels::cuda
