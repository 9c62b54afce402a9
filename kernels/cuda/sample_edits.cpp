#include "kernels/cuda/sample_edits.h"

#include <algorithm>
#include <limits>

#include "kernels/philox.h"
#include "kernels/sampling.h"

namespace kernels::cuda {
namespace {

constexpr float kBan = -std::numeric_limits<float>::infinity();

LogitEdit joined(const LogitEdit& a, const LogitEdit& b) {
    return {a.token, a.bias + b.bias, a.generated + b.generated, a.occurred + b.occurred};
}

}  // namespace

SampleRow flatten(const SamplingRow& row, std::vector<LogitEdit>& edits) {
    const auto begin = static_cast<std::ptrdiff_t>(edits.size());
    for (const LogitBias& bias : row.bias)
        edits.push_back({bias.token, bias.bias <= kBanBias ? kBan : bias.bias, 0, 0});
    for (const TokenCount& count : row.counts)
        edits.push_back({count.token, 0.0F, count.generated, count.generated + count.in_prompt});
    for (const std::int32_t token : row.drafted)
        edits.push_back({token, 0.0F, 1, 1});
    for (const std::int32_t token : row.banned)
        edits.push_back({token, kBan, 0, 0});
    std::stable_sort(edits.begin() + begin, edits.end(),
                     [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; });
    auto last = edits.begin() + begin;
    for (auto edit = last; edit != edits.end(); ++edit) {
        if (edit == last) continue;
        if (edit->token == last->token)
            *last = joined(*last, *edit);
        else
            *++last = *edit;
    }
    if (last != edits.end()) edits.erase(last + 1, edits.end());

    const bool is_greedy = row.temperature < kGreedyTemperature;
    SampleRow flat{};
    flat.uniform = is_greedy ? 0.0 : draw_uniform(row.seed, row.draw_index);
    flat.inverse_temperature = is_greedy ? 0.0F : 1.0F / row.temperature;
    flat.top_p = row.top_p;
    flat.min_p = row.min_p;
    flat.repetition_penalty = row.repetition_penalty;
    flat.presence_penalty = row.presence_penalty;
    flat.frequency_penalty = row.frequency_penalty;
    flat.top_k = std::max(row.top_k, 0);
    flat.edit_begin = static_cast<std::int32_t>(begin);
    flat.edit_count = static_cast<std::int32_t>(edits.size()) - flat.edit_begin;
    return flat;
}

}  // namespace kernels::cuda
