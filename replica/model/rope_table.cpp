#include "replica/model/rope_table.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace replica {
namespace {

// Rotations per context at which YaRN stops interpolating at all, and starts to interpolate fully
// (Peng et al. 2023, section 3.2).
constexpr double kYarnBetaFast = 32.0;
constexpr double kYarnBetaSlow = 1.0;

/// The pair index whose wavelength makes `rotations` turns within the original context.
double yarn_pair_of(const ModelConfig& config, double rotations) {
    const double context = config.rope_scaling.original_context;
    return config.n_rot * std::log(context / (2.0 * std::numbers::pi * rotations)) /
           (2.0 * std::log(config.rope_base));
}

struct PairFrequencies {
    std::vector<double> angle_per_position;  // [n_rot / 2]
    double magnitude = 1.0;                  // cos and sin are multiplied by it
};

PairFrequencies pair_frequencies(const ModelConfig& config,
                                 std::span<const float> frequency_divisors) {
    const int pairs = config.n_rot / 2;
    PairFrequencies result;
    result.angle_per_position.resize(static_cast<std::size_t>(pairs));
    const RopeScaling& scaling = config.rope_scaling;
    double low = 0.0;
    double high = 0.0;
    if (scaling.kind == RopeScaling::Kind::kYarn) {
        low = std::clamp(std::floor(yarn_pair_of(config, kYarnBetaFast)), 0.0, config.n_rot - 1.0);
        high = std::clamp(std::ceil(yarn_pair_of(config, kYarnBetaSlow)), 0.0, config.n_rot - 1.0);
        result.magnitude = (1.0 + 0.1 * std::log(scaling.factor)) * scaling.attention_factor;
    }
    for (int i = 0; i < pairs; ++i) {
        double angle = std::pow(config.rope_base, -2.0 * i / config.n_rot);
        if (!frequency_divisors.empty()) {
            angle /= static_cast<double>(frequency_divisors[static_cast<std::size_t>(i)]);
        }
        if (scaling.kind == RopeScaling::Kind::kLinear) angle /= scaling.factor;
        if (scaling.kind == RopeScaling::Kind::kYarn) {
            const double ramp = 1.0 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
            // ramp 1: fast pairs keep their angle; ramp 0: slow pairs are interpolated.
            angle = angle / scaling.factor * (1.0 - ramp) + angle * ramp;
        }
        result.angle_per_position[static_cast<std::size_t>(i)] = angle;
    }
    return result;
}

}  // namespace

std::vector<float> make_rope_table(const ModelConfig& config, std::int32_t positions,
                                   std::span<const float> frequency_divisors) {
    const auto pairs = static_cast<std::size_t>(config.n_rot / 2);
    assert(frequency_divisors.empty() || frequency_divisors.size() == pairs);
    const PairFrequencies frequencies = pair_frequencies(config, frequency_divisors);
    std::vector<float> table(static_cast<std::size_t>(positions) * pairs * 2);
    for (std::int32_t position = 0; position < positions; ++position) {
        float* row = table.data() + static_cast<std::size_t>(position) * pairs * 2;
        for (std::size_t i = 0; i < pairs; ++i) {
            const double angle = position * frequencies.angle_per_position[i];
            row[i] = static_cast<float>(std::cos(angle) * frequencies.magnitude);
            row[pairs + i] = static_cast<float>(std::sin(angle) * frequencies.magnitude);
        }
    }
    return table;
}

}  // namespace replica
