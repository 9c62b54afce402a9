// What is decided from a request's head alone, before its body is read: keys, the right instance,
// media type, unknown paths, whether the replica takes requests, and a place in the queue.
#pragma once

#include <optional>

#include "proto/http_message.h"
#include "proto/route_table.h"
#include "replica/server/app_state.h"

namespace replica::server {

/// The admit hook of the HTTP server. A generation request leaves with its place as ticket.
std::optional<proto::HttpResponse> admit(AppState& state, const proto::RouteTable& routes,
                                         proto::HttpRequestHead& head);

}  // namespace replica::server
