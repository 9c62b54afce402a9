#include "replica/gguf/tool/recipe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <numeric>
#include <utility>

#include "kernels/quant/format.h"

namespace replica {
namespace {

using kernels::DType;

constexpr std::array kRecipes = {
    Recipe{"iq4_xs", "4.25 bits and up: IQ4_XS, output Q6_K; the one to use", DType::kIQ4_XS, 30},
    Recipe{"q4_k_m", "4.5 bits and up: Q4_K, Q6_K for output and sensitive layers", DType::kQ4_K,
           15},
    Recipe{"q4_k", "Q4_K, output Q6_K", DType::kQ4_K, 14},
    Recipe{"q5_k", "Q5_K, output Q6_K", DType::kQ5_K, 16},
    Recipe{"q6_k", "Q6_K", DType::kQ6_K, 18},
    Recipe{"q8_0", "Q8_0: 8.5 bits, hardly any loss", DType::kQ8_0, 7},
    Recipe{"iq4_nl", "IQ4_NL, output Q6_K", DType::kIQ4_NL, 25},
    Recipe{"q4_0", "Q4_0, output Q6_K", DType::kQ4_0, 2},
    Recipe{"q4_1", "Q4_1, output Q6_K", DType::kQ4_1, 3},
    Recipe{"q5_0", "Q5_0, output Q6_K", DType::kQ5_0, 8},
    Recipe{"q5_1", "Q5_1, output Q6_K", DType::kQ5_1, 9},
    Recipe{"bf16", "BF16", DType::kBF16, 32},
    Recipe{"f16", "F16", DType::kF16, 1},
    Recipe{"f32", "F32", DType::kF32, 0},
};

constexpr std::int64_t kNoBlock = std::int64_t{1} << 32;  // sorts after every block

/// Number of "blk.N.", or kNoBlock.
std::int64_t block_of(std::string_view name) {
    std::int64_t block = kNoBlock;
    if (name.starts_with("blk."))
        std::from_chars(name.data() + 4, name.data() + name.size(), block);
    return block;
}

bool is_ffn_down(std::string_view name) {
    return name.find("ffn_down") != std::string_view::npos;
}
bool is_attn_value(std::string_view name) {
    return name.find("attn_v.") != std::string_view::npos ||
           name.find("attn_qkv.") != std::string_view::npos;
}

/// Tensors are counted in the order of their blocks, whatever the order in the file.
std::vector<std::size_t> by_block(std::span<const RecipeTensor> tensors) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) {
        return std::pair(block_of(tensors[i].name), std::string_view(tensors[i].name));
    });
    return order;
}

struct Counters {
    std::int64_t value_index = 0, value_count = 0;
    std::int64_t ffn_down_index = 0;
};

/// The mix's rule for one matrix; advances the counters.
DType stock_type(const Recipe& recipe, const RecipeModel& model, std::string_view name,
                 bool is_output, Counters& counters) {
    const bool has_exceptions =
        kernels::format_of(recipe.base).block_values > 1 && recipe.base != DType::kQ8_0;
    if (is_output) return has_exceptions ? DType::kQ6_K : recipe.base;
    const bool is_iq4 = recipe.base == DType::kIQ4_XS || recipe.base == DType::kIQ4_NL;
    const bool is_q4_k_m = recipe.name == "q4_k_m";
    if (is_attn_value(name)) {
        const std::int64_t index = counters.value_index++;
        if (is_iq4 && model.heads_per_kv_head >= 4) return DType::kQ5_K;
        if (is_q4_k_m && gets_more_bits(index, counters.value_count)) return DType::kQ6_K;
    } else if (is_ffn_down(name)) {
        const std::int64_t index = counters.ffn_down_index++;
        if (is_iq4 && !model.has_importance && index < model.block_count / 8) return DType::kQ5_K;
        if (is_q4_k_m && gets_more_bits(index, model.block_count)) return DType::kQ6_K;
    }
    return recipe.base;
}

}  // namespace

std::span<const Recipe> all_recipes() {
    return kRecipes;
}

const Recipe* find_recipe(std::string_view name) {
    const auto same = [](unsigned char a, unsigned char b) {
        return std::tolower(a) == std::tolower(b);
    };
    const auto found = std::ranges::find_if(kRecipes, [&](const Recipe& recipe) {
        return std::ranges::equal(recipe.name, name, same);
    });
    return found == kRecipes.end() ? nullptr : found;
}

bool stays_f32(std::string_view name, std::size_t rank) {
    return rank < 2 || !name.ends_with(".weight") || name.find("_norm") != std::string_view::npos ||
           name.find("ssm_conv1d") != std::string_view::npos ||
           name.find("ffn_gate_inp") != std::string_view::npos;
}

bool gets_more_bits(std::int64_t index, std::int64_t count) {
    return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

DType fitting_type(DType dtype, std::int64_t ne0, bool is_output) {
    const auto fits = [&](DType type) { return ne0 % kernels::format_of(type).block_values == 0; };
    if (fits(dtype)) return dtype;
    DType stand_in = DType::kF16;
    switch (dtype) {
        case DType::kIQ4_XS:
            stand_in = DType::kIQ4_NL;
            break;
        case DType::kQ4_K:
            stand_in = DType::kQ5_0;
            break;
        case DType::kQ5_K:
            stand_in = DType::kQ5_1;
            break;
        case DType::kQ6_K:
            stand_in = DType::kQ8_0;
            break;
        case DType::kQ2_K:
        case DType::kQ3_K:
            stand_in = DType::kQ4_0;
            break;
        default:
            return DType::kF16;
    }
    if (is_output) stand_in = DType::kQ8_0;
    return fits(stand_in) ? stand_in : DType::kF16;
}

std::vector<DType> choose_types(const Recipe& recipe, const RecipeModel& model,
                                std::span<const RecipeTensor> tensors,
                                std::span<const TypeOverride> overrides) {
    const bool has_output =
        std::ranges::find(tensors, "output.weight", &RecipeTensor::name) != tensors.end();
    Counters counters;
    counters.value_count = std::ranges::count_if(
        tensors, [](const RecipeTensor& tensor) { return is_attn_value(tensor.name); });

    std::vector<DType> types(tensors.size(), DType::kF32);
    for (const std::size_t i : by_block(tensors)) {
        const RecipeTensor& tensor = tensors[i];
        if (stays_f32(tensor.name, tensor.ne.size())) continue;
        const bool is_output = tensor.name == (has_output ? "output.weight" : "token_embd.weight");
        DType type = stock_type(recipe, model, tensor.name, is_output, counters);
        const auto wished = std::ranges::find_if(overrides, [&](const TypeOverride& override) {
            return std::regex_search(tensor.name, override.pattern);
        });
        if (wished != overrides.end()) type = wished->dtype;
        types[i] = fitting_type(type, tensor.ne[0], is_output);
    }
    return types;
}

}  // namespace replica
