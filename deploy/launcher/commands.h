// The subcommands of `quadriga`. Each returns its exit code; StartError ends in main.
#pragma once

#include <string>

#include "deploy/launcher/config.h"

namespace deploy {

inline constexpr const char* kVersion = "0.1.0";

/// Starts the fleet and stays until it has ended.
int run_up(const LoadedConfig& loaded);

/// The others ask the running launcher of the configured runtime folder.
int run_status(const LoadedConfig& loaded, bool is_json);
int run_down(const LoadedConfig& loaded);
int run_why(const LoadedConfig& loaded, int replica);
int run_order(const LoadedConfig& loaded, const std::string& command, int replica);
int run_reload(const LoadedConfig& loaded);
int run_restart_router(const LoadedConfig& loaded);
int run_check_config(const LoadedConfig& loaded);

}  // namespace deploy
