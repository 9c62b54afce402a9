// The URL of a replica, as an operator gives it.
#pragma once

#include <string_view>

#include "proto/error.h"
#include "proto/http_client.h"

namespace router {

/// "http://HOST:PORT", HOST a name, an IPv4 address or an IPv6 address in brackets. Everything that
/// this router would not use (a path, a user, another scheme) is refused, with the reason.
[[nodiscard]] proto::Result<proto::Endpoint> parse_replica_url(std::string_view url);

/// Whether `endpoint` is this process itself, which listens on `address`:`port`. Names but
/// "localhost" are not looked up.
[[nodiscard]] bool is_own_endpoint(const proto::Endpoint& endpoint, std::string_view address,
                                   int port);

}  // namespace router
