// Which type each tensor of a model gets when it is quantised: the stock mixes, as a pure function.
//
// A mix has a base type and a few exceptions: the output matrix is always at least Q6_K, values and
// the end of each MLP get more bits in some layers, vectors and norms stay F32. The rules and their
// running counters are those of llama.cpp's quantiser, so that files agree tensor by tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"

namespace replica {

/// A mix by its name on the command line.
struct Recipe {
    std::string_view name;     // "iq4_xs"
    std::string_view summary;  // for --help
    kernels::DType base;
    std::uint32_t file_type;  // value of general.file_type
};

std::span<const Recipe> all_recipes();
/// Case does not matter. nullptr when there is none.
const Recipe* find_recipe(std::string_view name);

/// What the choice depends on.
struct RecipeTensor {
    std::string name;
    std::vector<std::int64_t> ne;
};

struct RecipeModel {
    std::int64_t block_count = 0;
    std::int64_t heads_per_kv_head = 1;
    bool has_importance = false;
};

/// A wish of the user: tensors whose name contains a match get this type.
struct TypeOverride {
    std::regex pattern;
    kernels::DType dtype;
};

/// One type per tensor. Overrides win (the first that matches), except that tensors which stay F32
/// stay so, and a type whose blocks do not fit the rows is replaced as the mix would.
std::vector<kernels::DType> choose_types(const Recipe& recipe, const RecipeModel& model,
                                         std::span<const RecipeTensor> tensors,
                                         std::span<const TypeOverride> overrides);

/// True for tensors that no recipe touches: vectors, norms, convolutions, expert routers.
bool stays_f32(std::string_view name, std::size_t rank);

/// "More bits" layers of the K mixes: the first and last eighth and every third between.
bool gets_more_bits(std::int64_t index, std::int64_t count);

/// `dtype` if rows of `ne0` values are whole blocks of it, else its stand-in.
kernels::DType fitting_type(kernels::DType dtype, std::int64_t ne0, bool is_output);

}  // namespace replica
