// Requests that need no queue and no charge: /tokenize, /detokenize, /apply-template and /props go
// to any READY replica. They change nothing there and may be repeated on another one. A body is
// read strictly before it is passed on (JSON within its limits); what each field means is the
// replica's to judge. How an attempt ended is told to the replica's breaker and counted as any
// other.
//
// As many as may wait in the queue run at once, counted apart from it (Dispatcher::enter). An
// answer is held up to answer_hold_bytes, so that a replica that breaks off is replaced; what is
// longer is passed on as it comes, no faster than the client takes it.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "router/generation.h"

namespace router {

[[nodiscard]] bool is_pass_through(std::string_view path);

boost::asio::awaitable<void> pass_through(Services& services, proto::HttpExchange& exchange);

}  // namespace router
