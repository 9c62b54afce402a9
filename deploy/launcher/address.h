// The router's address as people can use it. An address that means "every one" is none to connect
// to, and a certificate vouches for its names alone.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/launcher/config.h"

namespace deploy {

struct ShownAddress {
    std::string url;  // "https://fleet.example:8443", without a path
    std::string
        resolve;  // for curl where the name need not lead here: "fleet.example:8443:127.0.0.1"
    std::string elsewhere;  // the same for other machines, where `url` is this machine's alone
};

/// The first name that the certificate in `path` vouches for, if it is a name and no pattern; else
/// empty.
std::string certificate_name(const std::string& path);

/// `port` as bound. A certificate that cannot be read counts as none: the router refuses it itself.
ShownAddress shown_address(const Config& config, std::uint16_t port);

}  // namespace deploy
