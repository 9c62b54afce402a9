#include "deploy/launcher/router_change.h"

#include <algorithm>
#include <array>

namespace deploy {
namespace {

constexpr std::array<std::string_view, 5> kOfRouter{"keys_file", "insecure_no_auth", "tls_cert",
                                                    "tls_key", "router_args"};

}  // namespace

RouterChange router_change(const Config& in_use, const Config& fresh) {
    RouterChange change{.config = in_use, .not_applied = {}};
    change.config.router_settings = fresh.router_settings;
    for (const Setting& setting : settings()) {
        if (std::ranges::find(kOfRouter, setting.key) != kOfRouter.end()) {
            std::visit([&](auto field) { change.config.*field = fresh.*field; }, setting.field);
        } else if (setting.value_text(in_use) != setting.value_text(fresh)) {
            change.not_applied.emplace_back(setting.key);
        }
    }
    return change;
}

}  // namespace deploy
