// Settings of the router: flags, their defaults and limits. Names are the keys of the table
// `[router]` with hyphens; a number with a unit carries it in the name.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace router {

struct Config {
    // Where it listens. A socket inherited by the LISTEN_FDS convention wins over both.
    std::string host = "127.0.0.1";
    int port = 8080;  // 0: any free port, printed at start

    // Where the replicas are: fixed URLs, or announced by the launcher, or both.
    std::vector<std::string> replica_urls;
    std::optional<int> announce_fd;
    /// Listening sockets that a launcher keeps over this process's life, in place of own ones.
    std::optional<int> admin_socket_fd, admin_listen_fd;
    std::optional<int> death_fd;
    std::string internal_key;  // read from a descriptor or a file; empty: none is sent

    // Queue.
    std::optional<std::size_t> queue_count_max;  // default max(64, 4 x all slots)
    std::size_t bodies_bytes_max = std::size_t{256} << 20;
    std::chrono::milliseconds queue_wait{120'000};
    std::chrono::milliseconds queue_wait_starting{600'000};
    // Above 0 a full replica is sent requests to have at hand; those wait there although another
    // replica may become free first.
    int dispatch_ahead = 0;

    // Choice of a replica: cost in seconds, affinity of prompts, long prompts.
    double cost_decode_weight = 0.25;
    double cost_kv_s = 0.15;
    double cost_decay = 0.5;
    std::chrono::milliseconds affinity_ttl{900'000};
    std::size_t affinity_entries_max = 65536;
    std::chrono::milliseconds affinity_hold{2'000};  // for a better replica than one that is free
    double big_prefill_s = 2;
    int big_prefills_max = 0;  // over all replicas; 0: no cap
    std::chrono::milliseconds big_prefill_stagger{200};
    std::chrono::milliseconds light_hold{10'000};
    std::chrono::milliseconds slow_start{30'000};

    // Replicas: liveness is progress.
    std::chrono::milliseconds connect{1'000};
    std::chrono::milliseconds probe{1'000};
    std::chrono::milliseconds status_silence{3'000};  // then poll once per second
    std::chrono::milliseconds silence_suspect{5'000};
    std::chrono::milliseconds silence_down{10'000};
    std::chrono::milliseconds step_suspect{10'000};
    std::chrono::milliseconds step_stall{60'000};
    int retries_max = 1;

    // Requests; 0: no limit.
    std::chrono::milliseconds ttft_max{0};   // from dispatch
    std::chrono::milliseconds total_max{0};  // from arrival

    // Streams.
    std::chrono::milliseconds ping{15'000};
    std::chrono::milliseconds stream_idle{60'000};
    std::chrono::milliseconds write_stall{30'000};
    std::size_t stream_buffer_bytes = std::size_t{1} << 20;  // also what is held of one event
    std::size_t answer_hold_bytes = std::size_t{1} << 20;    // of an answer that is no stream

    // Clients.
    std::optional<std::size_t> body_bytes_max;  // default max(4 MiB, 8 x context tokens)
    std::size_t unsent_bytes_max = std::size_t{256} << 20;  // of answers, all clients together
    std::size_t connections_max = 8192;
    std::size_t connections_per_address_max = 1024;  // this machine is exempt
    std::size_t requests_per_connection_max = 1000;
    std::chrono::milliseconds header_read{10'000};
    std::size_t header_bytes_max = std::size_t{32} << 10;
    std::size_t header_count_max = 100;
    std::size_t body_rate_min = 1024;  // bytes per second, after ten seconds
    std::chrono::milliseconds keepalive_idle{75'000};
    int parse_threads = 2;                   // for bodies above 64 KiB; 0: on the decision thread
    std::vector<std::string> allowed_hosts;  // beside our own addresses and localhost
    bool decision_header = true;

    // Who may come in.
    std::string keys_file;  // empty: no key is needed
    bool insecure_no_auth = false;
    std::string admin_socket;     // path; empty: no admin listener there
    std::string admin_listen;     // HOST:PORT; empty: no admin listener on TCP
    std::string admin_keys_file;  // who may come in there
    std::string tls_cert;         // PEM; with tls_key: clients speak TLS
    std::string tls_key;
    std::vector<std::string> cors_origins;  // pages of these may call; "*": all
    /// A folder of ours for copies of key files that were good: when a restart finds a bad one, the
    /// copy is used. Empty: a bad file prevents the start.
    std::string last_good_dir;
    bool metrics_open = true;  // for this machine, without a key
    bool affinity_isolate_keys = false;

    // Leaving.
    std::chrono::milliseconds drain_grace{5'000};
    std::chrono::milliseconds drain_deadline{600'000};

    std::string layout;                           // what the launcher runs, for the dashboard
    std::chrono::milliseconds metrics_fetch{50};  // for each replica in /metrics/all
    std::string log_level = "info";

    /// With --check-config: a line per setting, "ping_s = 15". The files are still to be checked.
    std::optional<std::string> values_text;

    /// Short digest over all settings that are not secret, for `config_info`.
    [[nodiscard]] std::string digest() const;
};

/// Reads every file that `config` names, as a start does, and refuses what a start refuses.
/// Throws std::runtime_error with one clear sentence.
void check_files(const Config& config);

/// Reads the command line. Throws CLI::ParseError (help and version included) and
/// std::runtime_error with one clear sentence.
[[nodiscard]] Config parse_command_line(int argc, const char* const* argv);

inline constexpr const char* kVersion = "0.1.0";
/// Short hash of the source's commit when this was configured; "unknown" outside a repository.
extern const char* const kCommit;

}  // namespace router
