// The router's admin interface over TCP (`admin_listen` in [router]): its socket is the launcher's,
// as that of the clients' port is, so that it stays when routers change.
#pragma once

#include <string>

#include "deploy/launcher/config.h"
#include "deploy/launcher/unique_fd.h"

namespace deploy {

struct AdminListen {
    std::string address;  // as it is written; empty: not wanted
    UniqueFd fd;
};

/// The address that the router would heed: router_args come after [router], and the last one wins.
std::string admin_listen_of(const Config& config);

/// `address` has been checked by the router, or is empty. Throws StartError when it is taken.
AdminListen listen_for_admin(const std::string& address);

}  // namespace deploy
