// `/metrics` and `/metrics/all`: the router's own series, and with them those of all replicas.
//
// A scrape has no side effect: replicas are asked in parallel, each within `metrics_fetch` (50 ms);
// what is missing is absent. Texts pass through; only the `replica` label is made to be the
// router's number, and samples of one family are put together, as the text format demands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"
#include "router/generation.h"

namespace router {

/// Scrapes of all replicas at once; each holds the texts of all of them.
inline constexpr std::size_t kScrapesMax = 4;

boost::asio::awaitable<void> serve_own_metrics(Services& services, proto::HttpExchange& exchange);
boost::asio::awaitable<void> serve_all_metrics(Services& services, proto::HttpExchange& exchange);

/// Gives every sample the label `replica="label"`, in place of one it may have.
[[nodiscard]] std::string with_replica_label(std::string_view text, std::string_view label);

/// One exposition out of several: each family once, its help and type from its first text.
[[nodiscard]] std::string merge_expositions(const std::vector<std::string>& texts);

}  // namespace router
