// Flags of the surface: who may come in, over what, and what operators get to see.
#include <algorithm>
#include <stdexcept>

#include "router/admin.h"
#include "router/config_flags.h"
#include "router/cors.h"

namespace router {
namespace {

constexpr std::size_t kConnectionsMost = std::size_t{1} << 20;
constexpr int kParseThreadsMost = 64;

/// Connections, heads and bodies: what one client may take before its request is understood.
void add_connection_flags(CLI::App& app, Config& config) {
    const auto add_count = [&app](const std::string& name, std::size_t& value, std::size_t least,
                                  std::size_t most, const std::string& help) {
        app.add_option(name, value, help)->check(CLI::Range(least, most))->capture_default_str();
    };
    add_count("--connections-max", config.connections_max, 1, kConnectionsMost,
              "Client connections");
    add_count("--connections-per-address-max", config.connections_per_address_max, 1,
              kConnectionsMost, "Connections of one address; this machine is exempt");
    add_count("--requests-per-connection-max", config.requests_per_connection_max, 1,
              std::size_t{1} << 30,
              "Requests of one connection; the last is answered with Connection: close");
    add_seconds(app, "--header-read-s", config.header_read,
                "Reading a request's head, or a TLS handshake");
    add_count("--header-bytes-max", config.header_bytes_max, 1024, std::size_t{1} << 20,
              "Longest head of a request, in bytes");
    add_count("--header-count-max", config.header_count_max, 1, 10'000, "Fields of a head");
    add_count("--body-rate-min", config.body_rate_min, 0, std::size_t{1} << 30,
              "Slowest body in bytes per second, over each 10 s; 0 is no limit");
    add_seconds(app, "--keepalive-idle-s", config.keepalive_idle,
                "A kept connection waits this long for its next request");
    app.add_option("--parse-threads", config.parse_threads,
                   "Threads that read bodies above 64 KiB; 0 reads them beside the relay")
        ->check(CLI::Range(0, kParseThreadsMost))
        ->capture_default_str();
}

}  // namespace

void add_surface_flags(CLI::App& app, Config& config) {
    add_connection_flags(app, config);
    app.add_option("--keys-file", config.keys_file,
                   "TOML file of API keys (name, sha256, ...); without it no key is needed");
    app.add_flag("--insecure-no-auth", config.insecure_no_auth,
                 "Serve others than this machine without keys");
    app.add_option("--last-good-dir", config.last_good_dir,
                   "Folder for copies of key files that were good, used when a restart finds a bad "
                   "one; without it a bad file prevents the start");
    app.add_option("--tls-cert", config.tls_cert,
                   "PEM file: the server's certificate, then its issuers; read again on SIGHUP");
    app.add_option("--tls-key", config.tls_key, "PEM file: its key, without a passphrase");
    app.add_option("--cors-origins,--cors-origin", config.cors_origins,
                   "Origin whose pages may call, as https://example.com, or *; repeatable; "
                   "without it none")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--admin-socket", config.admin_socket,
                   "Path of the Unix socket of the admin interface, mode 0660; none without it");
    app.add_option("--admin-listen", config.admin_listen,
                   "HOST:PORT where the admin interface also listens; needs --admin-keys-file, and "
                   "TLS for others than this machine");
    app.add_option("--admin-keys-file", config.admin_keys_file,
                   "TOML file of the keys for --admin-listen, as --keys-file");
    app.add_option("--admin-socket-fd", config.admin_socket_fd,
                   "Descriptor of a listening socket in place of an own one at --admin-socket");
    app.add_option("--admin-listen-fd", config.admin_listen_fd,
                   "Descriptor of a listening socket in place of an own one at --admin-listen");
    app.add_option("--layout", config.layout, "Replicas x devices each, shown on the dashboard");
    app.add_flag("--metrics-open,!--no-metrics-open", config.metrics_open,
                 "With keys: this machine reads metrics without one")
        ->default_str("true");
    app.add_flag("--affinity-isolate-keys", config.affinity_isolate_keys,
                 "A key's prompts are matched with its own earlier ones only");
}

void check_surface(const Config& config) {
    if (config.tls_cert.empty() != config.tls_key.empty()) {
        throw std::runtime_error("--tls-cert and --tls-key go together: one of them is missing");
    }
    for (const std::string& origin : config.cors_origins) {
        if (!is_origin(origin)) {
            throw std::runtime_error("--cors-origin: '" + origin +
                                     "' is neither * nor an origin such as https://example.com");
        }
    }
    if (config.admin_listen.empty()) {
        if (config.admin_listen_fd) {
            throw std::runtime_error("--admin-listen-fd needs --admin-listen");
        }
        if (config.admin_keys_file.empty()) return;
        throw std::runtime_error("--admin-keys-file is for --admin-listen, which is missing");
    }
    const auto address = parse_admin_address(config.admin_listen);
    if (!address) {
        throw std::runtime_error("--admin-listen: '" + config.admin_listen +
                                 "' is not HOST:PORT with an address as host");
    }
    if (config.admin_keys_file.empty()) {
        throw std::runtime_error(
            "--admin-listen needs --admin-keys-file: whoever can connect could take replicas away");
    }
    if (config.tls_cert.empty() && !is_loopback_address(address->host)) {
        throw std::runtime_error("--admin-listen on " + address->host +
                                 " needs TLS: give --tls-cert and --tls-key, or 127.0.0.1");
    }
}

}  // namespace router
