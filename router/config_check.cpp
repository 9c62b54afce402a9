// --check-config: what a start would refuse, found without one, and every value as it is in effect.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "proto/http_client.h"
#include "proto/tls.h"
#include "router/config_flags.h"
#include "router/handlers.h"
#include "router/key_file.h"

namespace router {
namespace {

/// What one process hands to another, and what only asks for something.
constexpr std::array<std::string_view, 9> kNoSettings{
    "help",           "version",         "check-config",      "announce-fd",
    "death-fd",       "internal-key-fd", "internal-key-file", "admin-socket-fd",
    "admin-listen-fd"};

void check_keys(const std::string& path) {
    if (path.empty()) return;
    const auto text = read_key_text(path);
    if (!text) throw std::runtime_error(text.error());
    if (const auto entries = parse_key_file(*text); !entries) {
        throw std::runtime_error("the key file '" + path + "' is wrong: " + entries.error());
    }
}

}  // namespace

std::string values_text(const CLI::App& app) {
    std::string text;
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_lnames().empty()) continue;
        std::string name = option->get_lnames().front();
        if (std::ranges::find(kNoSettings, name) != kNoSettings.end()) continue;
        std::ranges::replace(name, '-', '_');
        std::string value = option->get_default_str();
        const auto& given = option->results();
        if (!given.empty()) {
            value.clear();
            for (const std::string& one : given)
                value += (value.empty() ? "" : ", ") + one;
        } else if (value.empty() && option->get_items_expected_max() == 0) {
            value = "false";
        }
        text += name + " = " + (value.empty() ? "none" : value) + "\n";
    }
    return text;
}

void check_files(const Config& config) {
    check_keys(config.keys_file);
    check_keys(config.admin_keys_file);
    if (!config.tls_cert.empty()) {
        const auto context = proto::TlsContext::load(config.tls_cert, config.tls_key);
        if (!context) throw std::runtime_error(context.error());
    }
    for (const std::string& url : config.replica_urls) {
        if (!proto::parse_http_url(url)) {
            throw std::runtime_error("--replica: '" + url + "' is not http://HOST:PORT");
        }
    }
}

}  // namespace router
