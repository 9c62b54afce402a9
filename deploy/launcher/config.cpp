#include "deploy/launcher/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <openssl/evp.h>
#include <toml++/toml.h>

#include "deploy/launcher/owned_keys.h"
#include "proto/regular_file.h"
#include "proto/toml_depth.h"

extern char** environ;

namespace deploy {
namespace {

constexpr std::size_t kConfigBytesMax = 1024 * 1024;
constexpr int kReplicasMax = 64;

[[noreturn]] void refuse(std::string what, std::string why, std::string fix) {
    throw StartError({.kind = FailureClass::kConfig,
                      .what = std::move(what),
                      .why = std::move(why),
                      .fix = std::move(fix)});
}

std::string range_text(const Setting& setting) {
    std::ostringstream text;
    text << std::setprecision(12) << setting.min << " to " << setting.max;
    return text.str();
}

[[noreturn]] void refuse_value(const Setting& setting, const std::string& text,
                               const std::string& origin, const std::string& wanted) {
    refuse(std::string(setting.key) + " cannot be '" + text + "'", "wanted: " + wanted,
           "correct it in: " + origin);
}

/// Lists are comma separated in flags and in the environment.
std::vector<std::string> split_list(const std::string& text) {
    std::vector<std::string> items;
    std::istringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) {
        if (!item.empty()) items.push_back(item);
    }
    return items;
}

double parse_number(const Setting& setting, const std::string& text, const std::string& origin,
                    bool is_whole) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    const bool is_number = error == std::errc{} && rest == end && std::isfinite(value);
    if (!is_number || (is_whole && value != std::floor(value)) || value < setting.min ||
        value > setting.max) {
        refuse_value(setting, text, origin,
                     (is_whole ? "a whole number, " : "a number, ") + range_text(setting));
    }
    return value;
}

bool parse_yes_no(const Setting& setting, const std::string& text, const std::string& origin) {
    if (text == "true") return true;
    if (text != "false") refuse_value(setting, text, origin, "true or false");
    return false;
}

void assign(Config& config, const Setting& setting, const std::string& text,
            const std::string& origin) {
    if (const auto* field = std::get_if<std::string Config::*>(&setting.field)) {
        config.*(*field) = text;
    } else if (const auto* whole = std::get_if<int Config::*>(&setting.field)) {
        config.*(*whole) = static_cast<int>(parse_number(setting, text, origin, true));
    } else if (const auto* real = std::get_if<double Config::*>(&setting.field)) {
        config.*(*real) = parse_number(setting, text, origin, false);
    } else if (const auto* yes = std::get_if<bool Config::*>(&setting.field)) {
        config.*(*yes) = parse_yes_no(setting, text, origin);
    } else {
        config.*std::get<std::vector<std::string> Config::*>(setting.field) = split_list(text);
    }
}

/// As it stands in the file, one short line.
std::string text_of(const toml::node& node) {
    if (const auto* plain = node.as_string()) return (**plain).substr(0, 64);
    std::ostringstream text;
    node.visit([&text](const auto& value) { text << value; });
    std::string line = text.str();
    std::ranges::replace(line, '\n', ' ');
    return line.substr(0, 64);
}

/// What was probably meant: 0 and [0] are ["0"].
std::string as_list_of_strings(const toml::node& node) {
    constexpr std::size_t kItemsMost = 4;
    std::string list;
    const auto add = [&list](const toml::node& item) {
        list += (list.empty() ? "\"" : ", \"") + text_of(item) + "\"";
    };
    if (const toml::array* array = node.as_array()) {
        for (std::size_t i = 0; i < std::min(array->size(), kItemsMost); ++i) {
            if ((*array)[i].is_value()) add((*array)[i]);
        }
    } else if (node.is_value()) {
        add(node);
    }
    return "[" + (list.empty() ? "\"a\", \"b\"" : list) + "]";
}

void assign_node(Config& config, const Setting& setting, const toml::node& node,
                 const std::string& origin) {
    if (const auto* list = std::get_if<std::vector<std::string> Config::*>(&setting.field)) {
        const toml::array* array = node.as_array();
        if (array == nullptr || !(array->empty() || array->is_homogeneous<std::string>())) {
            refuse_value(setting, text_of(node), origin,
                         "a list of strings, for example " + std::string(setting.key) + " = " +
                             as_list_of_strings(node));
        }
        std::vector<std::string> items;
        for (const toml::node& item : *array)
            items.push_back(**item.as_string());
        config.*(*list) = std::move(items);
        return;
    }
    if (const auto* yes = std::get_if<bool Config::*>(&setting.field)) {
        const toml::value<bool>* value = node.as_boolean();
        if (value == nullptr) refuse_value(setting, text_of(node), origin, "true or false");
        config.*(*yes) = **value;
        return;
    }
    const bool is_text_wanted = std::holds_alternative<std::string Config::*>(setting.field);
    if (const auto* text = node.as_string(); text != nullptr && is_text_wanted) {
        assign(config, setting, **text, origin);
    } else if (const auto* whole = node.as_integer(); whole != nullptr && !is_text_wanted) {
        assign(config, setting, std::to_string(**whole), origin);
    } else if (const auto* real = node.as_floating_point(); real != nullptr && !is_text_wanted) {
        std::ostringstream text_of_real;
        text_of_real << **real;
        assign(config, setting, text_of_real.str(), origin);
    } else {
        refuse_value(setting, text_of(node), origin,
                     is_text_wanted ? "a string in quotes" : "a number without quotes");
    }
}

[[noreturn]] void refuse_key(std::string_view key, const std::string& origin) {
    std::vector<std::string_view> keys;
    for (const Setting& setting : settings())
        keys.push_back(setting.key);
    const std::string near = did_you_mean(key, keys);
    refuse("unknown key '" + std::string(key.substr(0, 64)) + "' in " + origin,
           near.empty() ? "no key has a name like it" : "did you mean '" + near + "'?",
           "all keys: quadriga check-config");
}

/// Keys of the router become its flags; it knows them and refuses those that it does not know
/// before anything is loaded.
void read_router_table(LoadedConfig& loaded, const toml::table& table, const std::string& path) {
    const auto add = [&loaded](std::string_view key, const std::string& value) {
        std::string flag = "--" + std::string(key);
        std::ranges::replace(flag, '_', '-');
        loaded.config.router_settings.push_back(flag + "=" + value);
    };
    const auto value_of = [&](std::string_view key, const toml::node& node) -> std::string {
        if (const auto* text = node.as_string()) return **text;
        if (const auto* yes = node.as_boolean()) return **yes ? "true" : "false";
        if (const auto* whole = node.as_integer()) return std::to_string(**whole);
        if (const auto* real = node.as_floating_point()) return text_of(*real);
        refuse("router." + std::string(key) + " cannot be " + text_of(node) + " (file " + path +
                   ":" + std::to_string(node.source().begin.line) + ")",
               "wanted: a string, a number, true, false or a list of strings",
               "all keys: quadriga-router --help");
    };
    for (const auto& [key, node] : table) {
        const std::string origin = "file " + path + ":" + std::to_string(node.source().begin.line);
        if (auto owned = owned_by_launcher(ChildProgram::kRouter, key.str())) {
            refuse("the key '" + std::string(key.str()) + "' has no place in [router], " + origin,
                   std::move(owned->why), std::move(owned->fix));
        }
        if (const toml::array* list = node.as_array()) {
            for (const toml::node& item : *list)
                add(key.str(), value_of(key.str(), item));
        } else {
            add(key.str(), value_of(key.str(), node));
        }
        loaded.origins["router." + std::string(key.str())] = origin;
    }
}

void read_file(LoadedConfig& loaded, const std::string& path) {
    const auto text = proto::read_regular_file(path, kConfigBytesMax);
    if (!text) {
        refuse("cannot read the configuration " + path, text.error(),
               "give another file with --config, or none");
    }
    if (const auto deep = proto::toml_depth_error(*text)) {
        refuse("the configuration nests too deeply", "in " + path + ", " + *deep,
               "correct that line");
    }
    toml::table table;
    try {
        table = toml::parse(*text, path);
    } catch (const toml::parse_error& error) {
        refuse("the configuration is not TOML: " + std::string(error.description()),
               "in " + path + ", line " + std::to_string(error.source().begin.line),
               "correct that line");
    }
    loaded.file = path;
    for (const auto& [key, node] : table) {
        const std::string origin = "file " + path + ":" + std::to_string(node.source().begin.line);
        if (key.str() == "router" && node.is_table()) {
            read_router_table(loaded, *node.as_table(), path);
            continue;
        }
        const Setting* setting = find_setting(key.str());
        if (setting == nullptr) refuse_key(key.str(), origin);
        assign_node(loaded.config, *setting, node, origin);
        loaded.origins[std::string(setting->key)] = origin;
    }
}

/// A setting with a list of words has one of them.
void check_word(const Config& config, const Setting& setting) {
    if (setting.words.empty()) return;
    const std::string& value = config.*std::get<std::string Config::*>(setting.field);
    if (std::ranges::find(setting.words, value) != setting.words.end()) return;
    std::string wanted;
    for (const std::string_view word : setting.words) {
        if (!wanted.empty()) wanted += word == setting.words.back() ? " or " : ", ";
        wanted += word;
    }
    refuse(std::string(setting.key) + " cannot be '" + value + "'", "wanted: " + wanted,
           "for example " + setting.flag() + " " + std::string(setting.words[1]));
}

/// More arguments for a child are not those that the launcher gives it.
void check_arguments(const LoadedConfig& loaded, const std::string& list,
                     const std::vector<std::string>& arguments, ChildProgram program) {
    for (const std::string& argument : arguments) {
        const std::string key = key_of_argument(argument);
        if (auto owned = owned_by_launcher(program, key)) {
            refuse(flag_of_key(key) + " has no place in " + list + ", " + loaded.origins.at(list),
                   std::move(owned->why), std::move(owned->fix));
        }
    }
}

/// Checks that concern more than one value, and what follows from them.
void finish(Config& config) {
    for (const Setting& setting : settings())
        check_word(config, setting);
    constexpr int kContextMin = 16;  // as quadriga-replica: its start-up test needs so many
    if (config.context > 0 && config.context < kContextMin) {
        refuse("context cannot be " + std::to_string(config.context),
               "the replica's start-up test needs " + std::to_string(kContextMin) + " tokens",
               "for example --context 8192, or 0 for the model's own");
    }
    if (config.tls_cert.empty() != config.tls_key.empty()) {
        refuse("tls_cert and tls_key go together",
               std::string(config.tls_cert.empty() ? "tls_cert" : "tls_key") + " is missing",
               "give both, or none");
    }
    config.replica_count = replicas_of_layout(config.layout);
    if (config.replica_port_base > 0 && config.replica_port_base + config.replica_count > 65536) {
        refuse("replica_port_base leaves no room for all replicas", "ports end at 65535",
               "use a lower one");
    }
    if (config.served_name.empty() && !config.model.empty()) {
        std::string name = std::filesystem::path(config.model).filename().string();
        if (name.ends_with(".gguf")) name.resize(name.size() - 5);
        config.served_name = name;
    }
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
    const auto distance = [](std::string_view a, std::string_view b) {
        std::vector<std::size_t> row(b.size() + 1);
        std::iota(row.begin(), row.end(), std::size_t{0});
        for (std::size_t i = 1; i <= a.size(); ++i) {
            std::size_t diagonal = row[0];
            row[0] = i;
            for (std::size_t j = 1; j <= b.size(); ++j) {
                const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
                diagonal = row[j];
                row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
            }
        }
        return row.back();
    };
    if (word.size() > 64) return "";
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string_view candidate : candidates) {
        // Half a name is more often meant than another one of similar letters.
        if (word.size() >= 4 && candidate.starts_with(word)) return std::string(candidate);
        const std::size_t d = distance(word, candidate);
        if (d < best_distance) {
            best_distance = d;
            best = candidate;
        }
    }
    return best;
}

bool is_loopback(std::string_view host) {
    return host.starts_with("127.") || host == "::1" || host.starts_with("::ffff:127.");
}

int replicas_of_layout(std::string_view layout) {
    int replicas = 0;
    int devices = 0;
    const char* end = layout.data() + layout.size();
    const auto [x, first_error] = std::from_chars(layout.data(), end, replicas);
    const bool has_x = first_error == std::errc{} && x != end && *x == 'x';
    const auto [rest, second_error] =
        has_x ? std::from_chars(x + 1, end, devices) : std::from_chars_result{x, std::errc{}};
    if (!has_x || second_error != std::errc{} || rest != end || replicas < 1 || devices < 1 ||
        replicas > kReplicasMax) {
        refuse("layout cannot be '" + std::string(layout.substr(0, 64)) + "'",
               "wanted: REPLICASxDEVICES, for example 4x1; at most " +
                   std::to_string(kReplicasMax) + " replicas",
               "use --layout 4x1");
    }
    if (devices != 1) {
        refuse("layout " + std::string(layout) + " is not available yet",
               "a replica over several devices needs tensor parallelism, which this build lacks",
               "use --layout " + std::to_string(replicas) + "x1");
    }
    return replicas;
}

LoadedConfig load_config(const ConfigSources& sources) {
    LoadedConfig loaded;
    loaded.sources = sources;
    for (const Setting& setting : settings())
        loaded.origins[std::string(setting.key)] = "default";
    if (!sources.file.empty()) {
        read_file(loaded, sources.file);
    } else {
        for (const std::string& path : sources.default_files) {
            if (std::filesystem::exists(path)) {
                read_file(loaded, path);
                break;
            }
        }
    }
    for (const Setting& setting : settings()) {
        const std::string name = setting.environment();
        if (const auto found = sources.environment.find(name); found != sources.environment.end()) {
            assign(loaded.config, setting, found->second, "environment " + name);
            loaded.origins[std::string(setting.key)] = "environment " + name;
        }
    }
    for (const auto& [key, text] : sources.flags) {
        const Setting* setting = find_setting(key);
        if (setting == nullptr) refuse_key(key, "the command line");
        assign(loaded.config, *setting, text, "flag " + setting->flag());
        loaded.origins[key] = "flag " + setting->flag();
    }
    finish(loaded.config);
    check_arguments(loaded, "router_args", loaded.config.router_args, ChildProgram::kRouter);
    check_arguments(loaded, "replica_args", loaded.config.replica_args, ChildProgram::kReplica);
    return loaded;
}

std::string scheme_of(const Config& config) {
    return config.tls_cert.empty() ? "http://" : "https://";
}

ConfigSources sources_of_environment() {
    ConfigSources sources;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos || !text.starts_with("QUADRIGA_")) continue;
        sources.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    if (const char* home = std::getenv("XDG_CONFIG_HOME"); home != nullptr && *home != '\0') {
        sources.default_files.push_back(std::string(home) + "/quadriga/quadriga.toml");
    }
    sources.default_files.emplace_back("/etc/quadriga/quadriga.toml");
    return sources;
}

std::string to_text(const LoadedConfig& loaded, const Resolved& resolved) {
    std::string text;
    for (const Setting& setting : settings()) {
        std::string line = std::string(setting.key) + " = " + setting.value_text(loaded.config);
        if (line.size() < 44) line.resize(44, ' ');
        text += line + "  # " + loaded.origins.at(std::string(setting.key));
        const auto found = resolved.find(setting.key);
        if (found != resolved.end()) text += "; here " + found->second;
        text += "\n";
    }
    return text;
}

std::string digest_of(const Config& config) {
    std::string text;
    for (const Setting& setting : settings()) {
        if (setting.key == "runtime_dir") continue;
        text += std::string(setting.key) + " = " + setting.value_text(config) + "\n";
    }
    for (const std::string& flag : config.router_settings)
        text += "router " + flag + "\n";
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    if (EVP_Digest(text.data(), text.size(), bytes.data(), &size, EVP_sha256(), nullptr) != 1) {
        throw std::runtime_error("SHA-256 is not available in this OpenSSL");
    }
    std::ostringstream hex;
    hex << "sha256:" << std::hex << std::setfill('0');
    for (unsigned i = 0; i < size; ++i)
        hex << std::setw(2) << static_cast<int>(bytes[i]);
    return hex.str();
}

}  // namespace deploy
