#include "kernels/quant/format.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>

namespace kernels {
namespace {

constexpr std::array kFormats = {
    Format{0, "F32", 1, 4, true},          Format{1, "F16", 1, 2, true},
    Format{2, "Q4_0", 32, 18, true},       Format{3, "Q4_1", 32, 20, true},
    Format{6, "Q5_0", 32, 22, true},       Format{7, "Q5_1", 32, 24, true},
    Format{8, "Q8_0", 32, 34, true},       Format{9, "Q8_1", 32, 36, false},
    Format{10, "Q2_K", 256, 84, true},     Format{11, "Q3_K", 256, 110, true},
    Format{12, "Q4_K", 256, 144, true},    Format{13, "Q5_K", 256, 176, true},
    Format{14, "Q6_K", 256, 210, true},    Format{15, "Q8_K", 256, 292, false},
    Format{16, "IQ2_XXS", 256, 66, false}, Format{17, "IQ2_XS", 256, 74, false},
    Format{18, "IQ3_XXS", 256, 98, false}, Format{19, "IQ1_S", 256, 50, false},
    Format{20, "IQ4_NL", 32, 18, true},    Format{21, "IQ3_S", 256, 110, false},
    Format{22, "IQ2_S", 256, 82, false},   Format{23, "IQ4_XS", 256, 136, true},
    Format{24, "I8", 1, 1, false},         Format{25, "I16", 1, 2, false},
    Format{26, "I32", 1, 4, true},         Format{27, "I64", 1, 8, false},
    Format{28, "F64", 1, 8, false},        Format{29, "IQ1_M", 256, 56, false},
    Format{30, "BF16", 1, 2, true},        Format{34, "TQ1_0", 256, 54, false},
    Format{35, "TQ2_0", 256, 66, false},   Format{39, "MXFP4", 32, 17, false},
    Format{40, "NVFP4", 64, 36, false},    Format{41, "Q1_0", 0, 0, false},
    Format{42, "Q2_0", 0, 0, false},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(
        a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

const Format* find_format(std::uint32_t type_id) {
    const auto* found = std::ranges::find(kFormats, type_id, &Format::type_id);
    return found == kFormats.end() ? nullptr : found;
}

const Format& format_of(DType dtype) {
    const Format* format = find_format(static_cast<std::uint32_t>(dtype));
    assert(format != nullptr && format->supported && "a DType has a row in the table");
    return *format;
}

std::optional<DType> dtype_by_name(std::string_view name) {
    for (const Format& format : kFormats) {
        if (format.supported && equal_ignoring_case(format.name, name))
            return static_cast<DType>(format.type_id);
    }
    return std::nullopt;
}

std::span<const Format> all_formats() {
    return kFormats;
}

std::int64_t row_bytes(DType dtype, std::int64_t values) {
    const Format& format = format_of(dtype);
    assert(values >= 0 && values % format.block_values == 0 && "a row is whole blocks");
    return values / format.block_values * format.block_bytes;
}

}  // namespace kernels
