// Flags of the surface: who may come in, over what, and what operators get to see.
#include <stdexcept>

#include "proto/http_client.h"
#include "router/config_flags.h"

namespace router {

void add_surface_flags(CLI::App& app, Config& config) {
    app.add_option("--keys-file", config.keys_file,
                   "TOML file of API keys (name, sha256, ...); without it no key is needed");
    app.add_flag("--insecure-no-auth", config.insecure_no_auth,
                 "Serve others than this machine without keys");
    app.add_option("--admin-socket", config.admin_socket,
                   "Path of the Unix socket of the admin interface, mode 0660; none without it");
    app.add_flag("--metrics-open,!--no-metrics-open", config.metrics_open,
                 "With keys: this machine reads metrics without one (on)");
    app.add_flag("--affinity-isolate-keys", config.affinity_isolate_keys,
                 "A key's prompts are matched with its own earlier ones only");
}

void check_surface(const Config&) {}

}  // namespace router
