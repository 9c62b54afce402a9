#include "replica/gguf/metadata.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "replica/gguf/value.h"

namespace replica {
namespace {

constexpr std::size_t kWhyBytesMax = 240;  // a sentence; it may quote a value of the file

/// The reading rule of metadata.h; nullopt when the value is no T.
template <class T>
std::optional<T> convert(const GgufNumber& number) {
    return std::visit(
        [](auto value) -> std::optional<T> {
            using V = decltype(value);
            if constexpr (std::is_same_v<T, bool>) {
                if constexpr (std::is_same_v<V, bool>) return value;
                if constexpr (std::is_integral_v<V>) {
                    if (value == V{0} || value == V{1}) return value == V{1};
                }
            } else if constexpr (std::is_same_v<T, float>) {
                if constexpr (std::is_same_v<V, float>) return value;
                if constexpr (std::is_same_v<V, double>) {
                    constexpr auto kLargest =
                        static_cast<double>(std::numeric_limits<float>::max());
                    if (!std::isfinite(value) || std::fabs(value) <= kLargest)
                        return static_cast<float>(value);
                }
            } else if constexpr (std::is_integral_v<V> && !std::is_same_v<V, bool>) {
                if (std::in_range<T>(value)) return static_cast<T>(value);
            }
            return std::nullopt;
        },
        number);
}

template <class T>
constexpr std::string_view wanted() {
    if constexpr (std::is_same_v<T, bool>) return "bool (or integer 0 or 1)";
    if constexpr (std::is_same_v<T, float>) return "float that fits 32 bits";
    if constexpr (std::is_same_v<T, std::uint32_t>) return "integer within 0..2^32-1";
    if constexpr (std::is_same_v<T, std::int32_t>) return "integer within -2^31..2^31-1";
    if constexpr (std::is_same_v<T, std::uint64_t>) return "integer of at least 0";
    return "value";
}

}  // namespace

GgufMetadata::GgufMetadata(std::string file, std::vector<GgufEntry> entries)
    : file_(std::move(file)), entries_(std::move(entries)), by_key_(entries_.size()) {
    std::iota(by_key_.begin(), by_key_.end(), std::size_t{0});
    std::ranges::sort(by_key_, {}, [&](std::size_t i) { return entries_[i].key; });
}

const GgufEntry* GgufMetadata::find(std::string_view key) const {
    const auto key_of = [&](std::size_t i) { return entries_[i].key; };
    const auto found = std::ranges::lower_bound(by_key_, key, {}, key_of);
    if (found == by_key_.end() || key_of(*found) != key) return nullptr;
    return &entries_[*found];
}

GgufError GgufMetadata::error_about(std::string_view key, std::string why, std::string fix) const {
    return {GgufErrorKind::kWrongValue, file_ + ": key " + printable(key),
            printable(why, kWhyBytesMax), std::move(fix)};
}

GgufResult<const GgufEntry*> GgufMetadata::required(std::string_view key) const {
    if (const GgufEntry* entry = find(key)) return entry;
    GgufError error = error_about(key, "is required and absent", "convert the model again");
    error.kind = GgufErrorKind::kMissing;
    return tl::unexpected(std::move(error));
}

template <class T>
GgufResult<T> GgufMetadata::scalar(std::string_view key) const {
    const GgufResult<const GgufEntry*> entry = required(key);
    if (!entry) return tl::unexpected(entry.error());
    if (fixed_size_of((*entry)->type) != 0) {
        if (const std::optional<T> value =
                convert<T>(number_at((*entry)->type, (*entry)->bytes.data())))
            return *value;
    }
    return tl::unexpected(error_about(key, "must be one " + std::string(wanted<T>()) + ", is " +
                                               type_text(**entry) + " " +
                                               value_text(**entry, 1, 40)));
}

template <class T>
GgufResult<std::vector<T>> GgufMetadata::array(std::string_view key) const {
    const GgufResult<const GgufEntry*> found = required(key);
    if (!found) return tl::unexpected(found.error());
    const GgufEntry& entry = **found;
    const std::size_t size = fixed_size_of(entry.element_type);
    if (entry.type != GgufType::kArray || size == 0)
        return tl::unexpected(
            error_about(key, "must be an array of numbers, is " + type_text(entry)));
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(entry.count));
    for (std::size_t i = 0; i < entry.count; ++i) {
        const std::optional<T> value =
            convert<T>(number_at(entry.element_type, entry.bytes.data() + i * size));
        if (!value) {
            return tl::unexpected(error_about(key, "entry " + std::to_string(i) + " must be one " +
                                                       std::string(wanted<T>()) + ", is of type " +
                                                       std::string(name_of(entry.element_type))));
        }
        values.push_back(*value);
    }
    return values;
}

template <class T>
GgufResult<std::vector<T>> GgufMetadata::per_layer(std::string_view key, std::size_t layers) const {
    const GgufResult<const GgufEntry*> entry = required(key);
    if (!entry) return tl::unexpected(entry.error());
    if ((*entry)->type != GgufType::kArray) {
        const GgufResult<T> value = scalar<T>(key);
        if (!value) return tl::unexpected(value.error());
        return std::vector<T>(layers, *value);
    }
    GgufResult<std::vector<T>> values = array<T>(key);
    if (values && values->size() != layers) {
        return tl::unexpected(error_about(key, "must have one entry for each of the " +
                                                   std::to_string(layers) + " layers, has " +
                                                   std::to_string(values->size())));
    }
    return values;
}

GgufResult<std::uint32_t> GgufMetadata::get_u32(std::string_view key) const {
    return scalar<std::uint32_t>(key);
}
GgufResult<std::int32_t> GgufMetadata::get_i32(std::string_view key) const {
    return scalar<std::int32_t>(key);
}
GgufResult<std::uint64_t> GgufMetadata::get_u64(std::string_view key) const {
    return scalar<std::uint64_t>(key);
}
GgufResult<float> GgufMetadata::get_f32(std::string_view key) const {
    return scalar<float>(key);
}
GgufResult<bool> GgufMetadata::get_bool(std::string_view key) const {
    return scalar<bool>(key);
}

GgufResult<std::string_view> GgufMetadata::get_string(std::string_view key) const {
    const GgufResult<const GgufEntry*> entry = required(key);
    if (!entry) return tl::unexpected(entry.error());
    if ((*entry)->type != GgufType::kString)
        return tl::unexpected(error_about(key, "must be a string, is " + type_text(**entry)));
    return string_at((*entry)->bytes.data());
}

GgufResult<std::uint32_t> GgufMetadata::get_u32_or(std::string_view key,
                                                   std::uint32_t absent) const {
    return contains(key) ? get_u32(key) : absent;
}
GgufResult<std::int32_t> GgufMetadata::get_i32_or(std::string_view key, std::int32_t absent) const {
    return contains(key) ? get_i32(key) : absent;
}
GgufResult<float> GgufMetadata::get_f32_or(std::string_view key, float absent) const {
    return contains(key) ? get_f32(key) : absent;
}
GgufResult<bool> GgufMetadata::get_bool_or(std::string_view key, bool absent) const {
    return contains(key) ? get_bool(key) : absent;
}
GgufResult<std::string_view> GgufMetadata::get_string_or(std::string_view key,
                                                         std::string_view absent) const {
    return contains(key) ? get_string(key) : absent;
}

GgufResult<std::vector<std::string_view>> GgufMetadata::get_strings(std::string_view key) const {
    const GgufResult<const GgufEntry*> found = required(key);
    if (!found) return tl::unexpected(found.error());
    const GgufEntry& entry = **found;
    if (entry.type != GgufType::kArray || entry.element_type != GgufType::kString)
        return tl::unexpected(
            error_about(key, "must be an array of strings, is " + type_text(entry)));
    std::vector<std::string_view> strings;
    strings.reserve(static_cast<std::size_t>(entry.count));
    const std::byte* at = entry.bytes.data();
    for (std::uint64_t i = 0; i < entry.count; ++i) {
        strings.push_back(string_at(at));
        at += 8 + strings.back().size();
    }
    assert(at == entry.bytes.data() + entry.bytes.size() && "the parser measured the array");
    return strings;
}

GgufResult<std::vector<std::int32_t>> GgufMetadata::get_i32s(std::string_view key) const {
    return array<std::int32_t>(key);
}
GgufResult<std::vector<std::uint32_t>> GgufMetadata::get_u32s(std::string_view key) const {
    return array<std::uint32_t>(key);
}
GgufResult<std::vector<float>> GgufMetadata::get_f32s(std::string_view key) const {
    return array<float>(key);
}

GgufResult<std::vector<std::uint32_t>> GgufMetadata::get_u32_per_layer(std::string_view key,
                                                                       std::size_t layers) const {
    return per_layer<std::uint32_t>(key, layers);
}
GgufResult<std::vector<std::uint32_t>> GgufMetadata::get_u32_per_layer_or(
    std::string_view key, std::size_t layers, std::uint32_t absent) const {
    if (!contains(key)) return std::vector<std::uint32_t>(layers, absent);
    return per_layer<std::uint32_t>(key, layers);
}
GgufResult<std::vector<bool>> GgufMetadata::get_bool_per_layer(std::string_view key,
                                                               std::size_t layers) const {
    return per_layer<bool>(key, layers);
}

}  // namespace replica
