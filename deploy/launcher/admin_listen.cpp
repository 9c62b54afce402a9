#include "deploy/launcher/admin_listen.h"

#include <string_view>

#include "deploy/launcher/sockets.h"
#include "proto/http_client.h"

namespace deploy {

std::string admin_listen_of(const Config& config) {
    constexpr std::string_view kFlag = "--admin-listen";
    std::string address;
    for (const auto* arguments : {&config.router_settings, &config.router_args}) {
        bool is_next = false;
        for (const std::string& argument : *arguments) {
            if (is_next) address = argument;
            is_next = argument == kFlag;
            if (argument.starts_with(std::string(kFlag) + "=")) {
                address = argument.substr(kFlag.size() + 1);
            }
        }
    }
    return address;
}

AdminListen listen_for_admin(const std::string& address) {
    if (address.empty()) return {};
    const auto url = proto::parse_http_url("http://" + address);
    const std::string host = url ? url->endpoint.host : address;
    const std::uint16_t port = url ? url->endpoint.port : 0;
    try {
        return {.address = address, .fd = listen_tcp(host, port, "admin_listen").fd};
    } catch (const StartError& error) {
        Failure failure = error.failure();
        failure.fix = "correct admin_listen in [router]";
        throw StartError(failure);
    }
}

}  // namespace deploy
