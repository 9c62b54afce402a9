#include "router/config.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "proto/regular_file.h"
#include "router/config_flags.h"

namespace router {
namespace {

/// An internal key is 32 random bytes, as hex or base64; more than this is no key.
constexpr std::size_t kKeyBytesMax = 4096;

std::string trimmed(std::string text) {
    const std::size_t end = text.find_last_not_of(" \t\r\n");
    text.erase(end == std::string::npos ? 0 : end + 1);
    return text;
}

/// Reads an inherited descriptor from its start (a memfd is shared with the other children and may
/// stand at its end) and leaves it open.
std::string read_key_fd(int fd) {
    std::string key(kKeyBytesMax, '\0');
    ssize_t got = ::pread(fd, key.data(), key.size(), 0);
    if (got < 0 && errno == ESPIPE) got = ::read(fd, key.data(), key.size());
    if (got < 0) {
        throw std::runtime_error("--internal-key-fd " + std::to_string(fd) + ": " +
                                 std::strerror(errno));
    }
    key.resize(static_cast<std::size_t>(got));
    return key;
}

std::string read_key_file(const std::string& path) {
    auto text = proto::read_regular_file(path, kKeyBytesMax);
    if (!text) {
        throw std::runtime_error("--internal-key-file: cannot read '" + path +
                                 "': " + text.error());
    }
    return *text;
}

std::string checked_key(std::string key) {
    key = trimmed(std::move(key));
    for (const char c : key) {
        if (c < '!' || c > '~') {
            throw std::runtime_error("the internal key must be printable ASCII without spaces");
        }
    }
    if (key.empty()) throw std::runtime_error("the internal key is empty");
    return key;
}

std::string seconds_text(std::chrono::milliseconds time) {
    std::ostringstream text;
    text << static_cast<double>(time.count()) / 1000;
    return text.str();
}

std::uint64_t fnv1a(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : text)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return hash;
}

}  // namespace

namespace {

/// Numbers that `is_good` takes; what is no number it must refuse.
CLI::Validator numbers(const std::string& which, std::function<bool(double)> is_good) {
    return {[which, is_good = std::move(is_good)](std::string& text) -> std::string {
                double number = 0.0;
                if (CLI::detail::lexical_cast(text, number) && is_good(number)) return {};
                return "Value " + text + " is not " + which;
            },
            which};
}

}  // namespace

CLI::Validator from_to(double least, double most) {
    return numbers(fmt::format("{} to {}", least, most),
                   [=](double number) { return number >= least && number <= most; });
}

void add_seconds(CLI::App& app, const std::string& names, std::chrono::milliseconds& value,
                 const std::string& help, Zero zero) {
    constexpr double kLeast = 0.01;  // shorter ones end what they are to guard
    constexpr double kMost = 86400.0;
    const CLI::Validator range =
        zero == Zero::kRefused
            ? from_to(kLeast, kMost)
            : numbers(fmt::format("0, or {} to {}", kLeast, kMost), [=](double number) {
                  return number == 0.0 || (number >= kLeast && number <= kMost);
              });
    app.add_option_function<double>(
           names,
           [&value](double seconds) {
               value = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
           },
           help)
        ->check(range)
        ->default_str(seconds_text(value))
        ->type_name("SECONDS");
}

std::string Config::digest() const {
    std::ostringstream text;
    for (const std::string& url : replica_urls)
        text << url << ' ';
    text << queue_count_max.value_or(0) << ' ' << bodies_bytes_max << ' ' << dispatch_ahead << ' '
         << retries_max << ' ' << stream_buffer_bytes << ' ' << answer_hold_bytes << ' '
         << body_bytes_max.value_or(0) << ' ' << unsent_bytes_max << ' ' << connections_max << ' '
         << decision_header << ' ' << cost_decode_weight << ' ' << cost_kv_s << ' ' << cost_decay
         << ' ' << affinity_entries_max << ' ' << big_prefill_s << ' ' << big_prefills_max << ' '
         << connections_per_address_max << ' ' << requests_per_connection_max << ' '
         << header_bytes_max << ' ' << header_count_max << ' ' << body_rate_min << ' '
         << parse_threads << ' ' << host << ' ' << port << ' ' << insecure_no_auth << ' '
         << metrics_open << ' ' << affinity_isolate_keys << ' ' << keys_file << ' ' << admin_socket
         << ' ' << admin_listen << ' ' << admin_keys_file << ' ' << tls_cert << ' ' << tls_key
         << ' ' << log_level;
    for (const auto* list : {&allowed_hosts, &cors_origins}) {
        text << " |";
        for (const std::string& name : *list)
            text << ' ' << name;
    }
    for (const std::chrono::milliseconds time : {queue_wait,     queue_wait_starting,
                                                 connect,        probe,
                                                 status_silence, silence_suspect,
                                                 silence_down,   step_suspect,
                                                 step_stall,     ping,
                                                 stream_idle,    write_stall,
                                                 drain_grace,    drain_deadline,
                                                 metrics_fetch,  affinity_ttl,
                                                 affinity_hold,  big_prefill_stagger,
                                                 light_hold,     slow_start,
                                                 header_read,    keepalive_idle,
                                                 ttft_max,       total_max}) {
        text << ' ' << time.count();
    }
    std::array<char, 17> hex{};
    std::snprintf(hex.data(), hex.size(), "%016llx",
                  static_cast<unsigned long long>(fnv1a(text.str())));
    return hex.data();
}

Config parse_command_line(int argc, const char* const* argv) {
    Config config;
    std::optional<int> key_fd;
    std::string key_file;
    CLI::App app("OpenAI-compatible front of a set of replicas: queues, chooses, relays.",
                 "quadriga-router");
    // A later flag wins, so that a launcher's extra arguments can override its own.
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.set_version_flag("--version", kVersion);
    app.add_option("--host", config.host, "Address to listen on")->capture_default_str();
    app.add_option("--port", config.port, "Port to listen on; 0 takes any")
        ->check(CLI::Range(0, 65535))
        ->capture_default_str();
    app.add_option("--replica", config.replica_urls, "http://HOST:PORT of a replica; repeatable")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--announce-fd", config.announce_fd,
                   "Descriptor with the launcher's announcements");
    app.add_option("--death-fd", config.death_fd, "Descriptor whose end of file means: exit");
    auto* fd_option =
        app.add_option("--internal-key-fd", key_fd, "Descriptor with the internal key");
    app.add_option("--internal-key-file", key_file, "File with the internal key")
        ->excludes(fd_option);

    app.add_option("--queue-count-max", config.queue_count_max, "Requests that may wait")
        ->default_str("max(64, 4 x slots)");
    app.add_option("--bodies-bytes-max", config.bodies_bytes_max, "Bytes of all bodies held")
        ->capture_default_str();
    app.add_option(
           "--dispatch-ahead", config.dispatch_ahead,
           "Requests beyond its slots that a full replica gets; they wait there even when another "
           "replica becomes free first")
        ->check(CLI::Range(0, 64))
        ->capture_default_str();
    add_seconds(app, "--queue-wait-s", config.queue_wait, "Longest wait in the queue",
                Zero::kAllowed);
    add_seconds(app, "--queue-wait-starting-s", config.queue_wait_starting,
                "The same while replicas start", Zero::kAllowed);
    app.add_option("--cost-decode-weight", config.cost_decode_weight,
                   "Weight of the decode load in a replica's cost")
        ->check(from_to(0.0, 100.0))
        ->capture_default_str();
    app.add_option("--cost-kv-s", config.cost_kv_s, "Cost of KV memory half full, in seconds")
        ->check(from_to(0.0, 100.0))
        ->capture_default_str();
    app.add_option("--cost-decay", config.cost_decay,
                   "How fast a prefix counts less as its replica falls behind")
        ->check(from_to(0.0, 100.0))
        ->capture_default_str();
    add_seconds(app, "--affinity-ttl-s", config.affinity_ttl,
                "A prefix is forgotten this long after its last use", Zero::kAllowed);
    add_seconds(app, "--affinity-hold-s", config.affinity_hold,
                "The most a request waits for a better replica than one that is free",
                Zero::kAllowed);
    app.add_option("--affinity-entries-max", config.affinity_entries_max,
                   "Message boundaries remembered")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 24))
        ->capture_default_str();
    app.add_option("--big-prefill-s", config.big_prefill_s,
                   "A prompt that takes a replica longer than this is long")
        ->check(from_to(0.0, 86400.0))
        ->capture_default_str();
    app.add_option("--big-prefills-max", config.big_prefills_max,
                   "Long prompts prefilled at once over all replicas; 0 is no cap")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    app.add_option_function<int>(
           "--big-prefill-stagger-ms",
           [&config](int ms) { config.big_prefill_stagger = std::chrono::milliseconds(ms); },
           "Between the starts of two long prompts on idle replicas")
        ->check(CLI::Range(0, 60000))
        ->default_str("200");
    add_seconds(app, "--light-hold-s", config.light_hold,
                "A long prompt may use the replica kept for short ones after this", Zero::kAllowed);
    add_seconds(app, "--slow-start-s", config.slow_start,
                "A new replica rises to all its slots over this time", Zero::kAllowed);
    add_seconds(app, "--connect-s", config.connect, "Connecting to a replica");
    add_seconds(app, "--probe-s", config.probe, "A status poll");
    add_seconds(app, "--silence-down-s", config.silence_down, "Silent for this long is DOWN");
    add_seconds(app, "--step-suspect-s", config.step_suspect, "No step for this long is SUSPECT");
    add_seconds(app, "--step-stall-s", config.step_stall, "No step for this long is DOWN");
    app.add_option("--retries-max", config.retries_max, "Second attempts after a lost one")
        ->check(CLI::Range(0, 8))
        ->capture_default_str();
    add_seconds(app, "--ttft-max-s", config.ttft_max,
                "A request without a first byte this long after its dispatch ends; 0 is off (0)",
                Zero::kAllowed);
    add_seconds(app, "--total-max-s", config.total_max,
                "A request ends this long after its arrival; 0 is off (0)", Zero::kAllowed);
    add_seconds(app, "--ping-s", config.ping, "Comment after this much silence in a stream");
    add_seconds(app, "--stream-idle-s", config.stream_idle,
                "A stream without bytes from a replica without reports ends after this");
    add_seconds(app, "--write-stall-s", config.write_stall,
                "A client that reads nothing is cut, and a replica that does not end the head it "
                "has begun");
    app.add_option("--unsent-bytes-max", config.unsent_bytes_max,
                   "Bytes of answers that clients have not taken, all together; beyond it the one "
                   "that has read nothing for the longest time is cut")
        ->check(CLI::Range(std::size_t{1} << 20, std::size_t{1} << 40))
        ->capture_default_str();
    app.add_option("--stream-buffer-bytes", config.stream_buffer_bytes, "Longest event held back")
        ->check(CLI::Range(std::size_t{4096}, std::size_t{64} << 20))
        ->capture_default_str();
    app.add_option("--body-bytes-max", config.body_bytes_max, "Longest request body")
        ->default_str("max(4 MiB, 8 x context tokens)");
    app.add_option("--allowed-hosts,--allowed-host", config.allowed_hosts,
                   "Host name clients may use for this server; repeatable")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    add_surface_flags(app, config);
    app.add_flag("--decision-header,!--no-decision-header", config.decision_header,
                 "Answer with x-quadriga-decision")
        ->default_str("true");
    add_seconds(app, "--drain-grace-s,--drain-grace", config.drain_grace,
                "Still accepting after TERM, /ready says no", Zero::kAllowed);
    add_seconds(app, "--drain-deadline-s,--drain-deadline", config.drain_deadline,
                "Running requests may take this long after TERM", Zero::kAllowed);
    app.add_option("--log-level", config.log_level, "debug, info, warn or error")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
        ->capture_default_str();
    bool is_check = false;
    app.add_flag("--check-config", is_check,
                 "Check the flags and the files that they name, print every value, and end");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        throw CLI::CallForHelp(app.help(), CLI::ExitCodes::Success);
    }

    check_surface(config);
    // The silent replica becomes suspect at half the time after which it counts as down.
    config.silence_suspect = std::min(config.silence_suspect, config.silence_down / 2);
    config.status_silence = std::min(config.status_silence, config.silence_suspect);
    if (key_fd) config.internal_key = checked_key(read_key_fd(*key_fd));
    if (!key_file.empty()) config.internal_key = checked_key(read_key_file(key_file));
    if (is_check) config.values_text = values_text(app);
    return config;
}

}  // namespace router
