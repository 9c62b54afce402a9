// Asks the router and a replica to check what they would be given (--check-config), without a
// start, and finds the place of an error: a key of the launcher, of [router], or an argument list.
#pragma once

#include <optional>
#include <string>

#include "deploy/launcher/config.h"
#include "deploy/launcher/supervisor.h"

namespace deploy {

/// The router's values, a line each: "ping_s = 15". It reads keys and certificates, too. Throws
/// StartError with its words and the place to correct.
std::string check_router(const LoadedConfig& loaded, const LaunchPlan& plan);

/// Options, and the model's file as far as its head tells; no model: the options alone. Returns
/// what the program says (replica_memory.h). Throws StartError; none when it does not answer within
/// ten seconds.
std::optional<std::string> check_replica(const LoadedConfig& loaded, const LaunchPlan& plan);

}  // namespace deploy
