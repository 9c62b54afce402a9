// Kinds of flags that the standard ones do not have. Inside the reading of the command line only.
#pragma once

#include <chrono>
#include <string>

#include <CLI/CLI.hpp>

#include "router/config.h"

namespace router {

/// A number from `least` to `most`; what is no number is refused too.
CLI::Validator from_to(double least, double most);

/// What a duration may be: 0 as well, where waiting not at all, or off, makes sense.
enum class Zero { kRefused, kAllowed };
/// A duration flag in seconds; fractions are allowed, tests use them.
void add_seconds(CLI::App& app, const std::string& names, std::chrono::milliseconds& value,
                 const std::string& help, Zero zero = Zero::kRefused);

/// Flags of what clients and operators see: keys, TLS, CORS, admin, connections, logs.
void add_surface_flags(CLI::App& app, Config& config);
/// A line per flag that is a setting: "ping_s = 15"; as given, or the default.
[[nodiscard]] std::string values_text(const CLI::App& app);
/// Refuses combinations that make no sense. Throws std::runtime_error with one sentence.
void check_surface(const Config& config);

}  // namespace router
