#include "router/key_file.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <openssl/evp.h>
#include <toml++/toml.h>

#include "proto/error.h"
#include "proto/regular_file.h"
#include "proto/toml_depth.h"

namespace router {
namespace {

constexpr int kPriorityLeast = -100;
constexpr int kPriorityMost = 100;
constexpr double kWeightLeast = 0.01;
constexpr double kWeightMost = 1000;
constexpr int kRequestsMost = 1'000'000;

using Error = tl::unexpected<std::string>;

std::string line_of(const toml::node& node) {
    return "line " + std::to_string(node.source().begin.line) + ": ";
}

std::optional<std::uint8_t> hex_digit(char c) {
    if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<std::uint8_t>(c - 'A' + 10);
    return std::nullopt;
}

std::optional<Sha256> parse_digest(std::string_view hex) {
    Sha256 digest{};
    if (hex.size() != 2 * digest.size()) return std::nullopt;
    for (std::size_t i = 0; i < digest.size(); ++i) {
        const auto high = hex_digit(hex[2 * i]);
        const auto low = hex_digit(hex[2 * i + 1]);
        if (!high || !low) return std::nullopt;
        digest.at(i) = static_cast<std::uint8_t>(*high << 4U | *low);
    }
    return digest;
}

bool is_good_name(std::string_view name) {
    return !name.empty() && name.size() <= kKeyNameBytesMax &&
           std::ranges::all_of(name, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '.' || c == '_' || c == '-';
           });
}

/// Sets one field of `entry`; the error is what is wanted in its place.
tl::expected<void, std::string> take_field(KeyEntry& entry, std::string_view field,
                                           const toml::node& value) {
    if (field == "name") {
        const auto name = value.value_exact<std::string>();
        if (!name || !is_good_name(*name)) {
            return Error("a name of 1 to 64 letters, digits, '.', '_' or '-'");
        }
        entry.name = *name;
    } else if (field == "sha256") {
        const auto hex = value.value_exact<std::string>();
        const auto digest = hex ? parse_digest(*hex) : std::nullopt;
        if (!digest) {
            return Error("64 hex digits, as printed by: printf %s \"$KEY\" | sha256sum");
        }
        entry.digest = *digest;
    } else if (field == "priority_min") {
        const auto number = value.value_exact<std::int64_t>();
        if (!number || *number < kPriorityLeast || *number > kPriorityMost) {
            return Error("a whole number from -100 to 100");
        }
        entry.priority_min = static_cast<int>(*number);
    } else if (field == "weight") {
        const auto number = value.is_number() ? value.value<double>() : std::nullopt;
        // Written so that a NaN is refused.
        if (!number || !(*number >= kWeightLeast && *number <= kWeightMost)) {
            return Error("a number from 0.01 to 1000");
        }
        entry.weight = *number;
    } else if (field == "requests_max") {
        const auto number = value.value_exact<std::int64_t>();
        if (!number || *number < 1 || *number > kRequestsMost) {
            return Error("a whole number from 1 to 1000000; without the field there is no limit");
        }
        entry.requests_max = static_cast<int>(*number);
    } else {
        return Error("name, sha256, priority_min, weight or requests_max");
    }
    return {};
}

tl::expected<KeyEntry, std::string> parse_entry(const toml::table& table) {
    KeyEntry entry;
    for (const auto& [field, value] : table) {
        // The value is not repeated: somebody may have pasted a key where its digest belongs.
        if (const auto taken = take_field(entry, field.str(), value); !taken) {
            return Error(line_of(value) + "'" + proto::printable(field.str(), 64) +
                         "' is wrong; wanted: " + taken.error());
        }
    }
    for (const char* needed : {"name", "sha256"}) {
        if (!table.contains(needed)) {
            return Error(line_of(table) + "this key has no '" + needed + "'");
        }
    }
    return entry;
}

}  // namespace

Sha256 sha256_of(std::string_view bytes) {
    Sha256 digest{};
    unsigned int size = 0;
    if (::EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, ::EVP_sha256(), nullptr) !=
            1 ||
        size != digest.size()) {
        throw std::runtime_error("SHA-256 is not available");
    }
    return digest;
}

tl::expected<std::vector<KeyEntry>, std::string> parse_key_file(const std::string& text) {
    if (text.size() > kKeyFileBytesMax) return Error("it is longer than 1 MiB");
    if (auto deep = proto::toml_depth_error(text)) return Error(std::move(*deep));
    toml::table table;
    try {
        table = toml::parse(text);
    } catch (const toml::parse_error& error) {
        return Error("line " + std::to_string(error.source().begin.line) + ": " +
                     std::string(error.description()));
    }
    for (const auto& [name, node] : table) {
        if (name.str() == "key" && node.is_array_of_tables()) continue;
        return Error(line_of(node) + "'" + proto::printable(name.str(), 64) +
                     "' has no place here; wanted: tables [[key]]");
    }
    const toml::array* list = table.get_as<toml::array>("key");
    if (list == nullptr || list->empty()) {
        return Error(
            "it has no key, so nobody could use this server; to take the last key away put a new "
            "one in its place, or stop the server; wanted: tables [[key]]");
    }
    if (list->size() > kKeysMax) return Error("it has more than 4096 keys");
    std::vector<KeyEntry> entries;
    for (const toml::node& node : *list) {
        auto entry = parse_entry(*node.as_table());
        if (!entry) return Error(std::move(entry.error()));
        for (const KeyEntry& other : entries) {
            if (other.name == entry->name) {
                return Error(line_of(node) + "the name '" + entry->name + "' is there twice");
            }
            if (other.digest == entry->digest) {
                return Error(line_of(node) + "'" + entry->name + "' has the key of '" + other.name +
                             "'; each needs its own");
            }
        }
        entries.push_back(std::move(*entry));
    }
    return entries;
}

tl::expected<std::string, std::string> read_key_text(const std::string& path) {
    auto text = proto::read_regular_file(path, kKeyFileBytesMax);
    if (!text) return Error("the key file '" + path + "' cannot be read: " + text.error());
    return text;
}

}  // namespace router
