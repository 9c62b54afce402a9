#include "replica/gguf/tool/inspect.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/quant/format.h"
#include "replica/gguf/header_bytes.h"
#include "replica/gguf/tool/progress.h"
#include "replica/gguf/value.h"

namespace replica {
namespace {

using Json = nlohmann::ordered_json;

std::string_view type_name(const GgufTensor& tensor) {
    return kernels::find_format(tensor.type_id)->name;  // the parser knows no other ids
}

/// Totals of one tensor type.
struct TypeTotal {
    std::uint64_t tensors = 0;
    std::uint64_t bytes = 0;
};

struct Totals {
    std::map<std::string_view, TypeTotal> by_type;
    std::uint64_t values = 0;
    std::uint64_t bytes = 0;

    double bits_per_weight() const {
        return values == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
    }
};

Totals totals_of(const GgufFile& file) {
    Totals totals;
    for (const GgufTensor& tensor : file.tensors()) {
        TypeTotal& total = totals.by_type[type_name(tensor)];
        ++total.tensors;
        total.bytes += tensor.bytes;
        totals.bytes += tensor.bytes;
        totals.values += static_cast<std::uint64_t>(tensor.elements());
    }
    return totals;
}

/// printf into a string; for table columns.
template <class... Args>
std::string line(const char* format, Args... args) {
    char text[512];
    std::snprintf(text, sizeof(text), format, args...);
    return text;
}

/// The number as its shortest text reads, so that an f32 of 1e-6 does not become 9.99999997e-07.
Json number_json(const GgufNumber& number) {
    return std::visit(
        [](auto value) -> Json {
            if constexpr (std::is_same_v<decltype(value), float>) {
                std::array<char, 32> text;
                const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
                return Json::parse(text.data(), end, nullptr, false).is_number()
                           ? Json::parse(text.data(), end)
                           : Json(nullptr);  // infinite or NaN
            } else {
                return value;
            }
        },
        number);
}

Json value_json(const GgufEntry& entry, std::size_t elements_max) {
    Json values = Json::array();
    const std::byte* at = entry.bytes.data();
    const std::size_t limit = entry.type == GgufType::kArray ? elements_max : 1;
    const std::size_t shown = std::min<std::size_t>(entry.count, limit);
    for (std::size_t i = 0; i < shown; ++i) {
        if (entry.element_type == GgufType::kString) {
            const std::string_view string = string_at(at);
            values.push_back(std::string(string));
            at += sizeof(std::uint64_t) + string.size();
        } else {
            values.push_back(number_json(number_at(entry.element_type, at)));
            at += fixed_size_of(entry.element_type);
        }
    }
    return entry.type == GgufType::kArray ? values : values.at(0);
}

std::string padded(std::string_view text, std::size_t width) {
    std::string result(text);
    if (result.size() < width) result.append(width - result.size(), ' ');
    return result;
}

}  // namespace

std::string inspect_text(const GgufFile& file, const InspectOptions& options) {
    std::string text;
    for (const GgufPart& part : file.parts()) {
        text += part.path.string() + ": GGUF version " + std::to_string(part.version) + ", " +
                bytes_text(part.bytes) + ", data from byte " + std::to_string(part.data_start) +
                ", alignment " + std::to_string(part.alignment) + "\n";
    }
    text += "\nmetadata, " + std::to_string(file.metadata().entries().size()) + " keys\n";
    for (const GgufEntry& entry : file.metadata().entries()) {
        text += "  " + padded(printable(entry.key), 44) + " " + padded(type_text(entry), 24) + " " +
                value_text(entry, options.elements_max, options.string_bytes_max) + "\n";
    }
    text += "\ntensors, " + std::to_string(file.tensors().size()) + "\n";
    for (const GgufTensor& tensor : file.tensors()) {
        text += "  " + padded(printable(tensor.name), 44) + " " + padded(type_name(tensor), 8) +
                " " + padded(tensor.shape_text(), 20) + " " + bytes_text(tensor.bytes) + "\n";
    }
    const Totals totals = totals_of(file);
    text += "\ntypes\n";
    for (const auto& [name, total] : totals.by_type) {
        text += "  " + padded(name, 8) +
                line("%6llu tensors  ", static_cast<unsigned long long>(total.tensors)) +
                bytes_text(total.bytes) + "\n";
    }
    return text + line("\n%.2f M values, %.3f bits per value\n",
                       static_cast<double>(totals.values) / 1e6, totals.bits_per_weight());
}

std::string inspect_json(const GgufFile& file, const InspectOptions& options) {
    Json json;
    for (const GgufPart& part : file.parts()) {
        json["files"].push_back({{"path", part.path.string()},
                                 {"version", part.version},
                                 {"bytes", part.bytes},
                                 {"data_start", part.data_start},
                                 {"alignment", part.alignment}});
    }
    json["metadata"] = Json::object();
    for (const GgufEntry& entry : file.metadata().entries()) {
        Json& item = json["metadata"][std::string(entry.key)];
        item["type"] = name_of(entry.type);
        if (entry.type == GgufType::kArray) {
            item["element_type"] = name_of(entry.element_type);
            item["count"] = entry.count;
        }
        item["value"] = value_json(entry, options.elements_max);
    }
    json["tensors"] = Json::array();
    for (const GgufTensor& tensor : file.tensors()) {
        const int rank = std::max(tensor.rank, 1);
        json["tensors"].push_back(
            {{"name", tensor.name},
             {"type", type_name(tensor)},
             {"shape", std::vector(tensor.ne.begin(), tensor.ne.begin() + rank)},
             {"bytes", tensor.bytes},
             {"file", tensor.part},
             {"file_offset", tensor.file_offset}});
    }
    const Totals totals = totals_of(file);
    json["types"] = Json::object();
    for (const auto& [name, total] : totals.by_type)
        json["types"][std::string(name)] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
    json["values"] = totals.values;
    json["tensor_bytes"] = totals.bytes;
    json["bits_per_value"] = totals.bits_per_weight();
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace replica
