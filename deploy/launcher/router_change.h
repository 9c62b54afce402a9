// What a restart of the router takes over from a configuration that was read again.
#pragma once

#include <string>
#include <vector>

#include "deploy/launcher/config.h"

namespace deploy {

struct RouterChange {
    /// That in use, with the router's part of the fresh one: the table [router], keys_file,
    /// insecure_no_auth, tls_cert, tls_key and router_args.
    Config config;
    /// Other keys that differ, too: they take effect at the next `up`.
    std::vector<std::string> not_applied;
};

/// Both with absolute paths.
RouterChange router_change(const Config& in_use, const Config& fresh);

}  // namespace deploy
