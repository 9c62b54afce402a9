#include "replica/engine/checkpoint_plan.h"

#include <algorithm>

namespace replica {

std::vector<std::int32_t> plan_checkpoints(const CheckpointQuestion& question) {
    const std::int32_t last_place = question.prompt_tokens - 1;  // one token is always computed
    std::vector<std::int32_t> inside;
    for (const std::int32_t boundary : question.boundaries)
        if (boundary >= kCheckpointTokensMin && boundary <= last_place) inside.push_back(boundary);

    std::vector<std::int32_t> wanted;
    if (!inside.empty()) wanted.push_back(inside.front());
    for (std::size_t i = inside.size() > 2 ? inside.size() - 2 : 0; i < inside.size(); ++i)
        wanted.push_back(inside[i]);
    const bool has_end = !inside.empty() && inside.back() >= last_place - kNearEndTokens;
    if (!has_end && last_place >= kCheckpointTokensMin) wanted.push_back(last_place);
    for (std::int32_t at = kCheckpointStride; at < last_place; at += kCheckpointStride)
        wanted.push_back(at);
    const bool has_parted =
        question.parting_tokens > question.cached_tokens && question.parting_tokens <= last_place;
    if (has_parted) wanted.push_back(question.parting_tokens);
    std::ranges::sort(wanted);
    const auto stays = [&](std::int32_t place) {
        return place == (inside.empty() ? 0 : inside.front()) ||
               (has_parted && place == question.parting_tokens);
    };

    // Of two that are too close, the later one stays: it spares the next request more.
    std::vector<std::int32_t> places;
    for (const std::int32_t place : wanted) {
        if (place <= question.cached_tokens) continue;
        if (!places.empty() && place == places.back()) continue;
        const bool is_close = !places.empty() && place - places.back() < kCheckpointGapMin;
        if (is_close && !stays(places.back())) places.pop_back();
        places.push_back(place);
    }
    const bool has_last = !places.empty() && places.back() == last_place;
    if (question.shares_prompt && !has_last && last_place > question.cached_tokens) {
        places.push_back(last_place);
    }
    return places;
}

}  // namespace replica
