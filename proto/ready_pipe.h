// ready_pipe: the JSON lines a replica writes to its launcher over the inherited ready pipe, and
// the lines by which the launcher announces replicas to the router and hears of its drains.
//
//   hello ─▶ phase LOADING … WARMING … SELFTEST ─▶ kernels ─▶ selftest ─▶ ready          (or fatal)
//
// Every line carries the instance id of the spawn, so that a late line of a predecessor is known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/error.h"
#include "proto/status.h"

namespace proto {

struct HelloEvent {
    std::int64_t pid = 0;
    std::string build;   // "1.4.0-3c3a74e"
    std::string config;  // "sha256:…" of the snapshot
    bool operator==(const HelloEvent&) const = default;
};

/// Progress: bytes while LOADING, then layers warmed, then self-test steps.
struct PhaseEvent {
    ReplicaState phase = ReplicaState::kLoading;
    std::uint64_t done = 0, total = 0;
    bool operator==(const PhaseEvent&) const = default;
};

struct KernelState {
    std::string name;
    std::string state;   // armed, not_built, wrong_arch, disabled, failed
    std::string reason;  // empty when armed
    bool operator==(const KernelState&) const = default;
};
struct KernelsEvent {
    std::vector<KernelState> kernels;
    bool operator==(const KernelsEvent&) const = default;
};

struct SelftestEvent {
    bool passed = false;
    std::string tokens_sha256;
    double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
    bool operator==(const SelftestEvent&) const = default;
};

struct ReadyEvent {
    std::vector<std::string> gpu_uuids;  // "GPU-5a1c…", "CPU-0"
    bool operator==(const ReadyEvent&) const = default;
};

/// Why the process will end now. `error_class` is the wire's "class": config, model_file,
/// device_memory, port, kernel, selftest, placement, driver, internal.
struct FatalEvent {
    std::string id;  // "Q0412"
    std::string error_class;
    std::string what, why, fix;
    bool operator==(const FatalEvent&) const = default;
};

struct PipeEvent {
    std::string instance;  // 16 hex digits
    std::variant<HelloEvent, PhaseEvent, KernelsEvent, SelftestEvent, ReadyEvent, FatalEvent> event;
    bool operator==(const PipeEvent&) const = default;
};

/// One line, LF included, at most kEventLineBytesMax.
std::string to_json_line(const PipeEvent& event);
/// `line` without its LF. Anything but a known event with a valid instance id is an error.
Result<PipeEvent> parse_pipe_event(std::string_view line);

/// Launcher to router, one line per change of a replica's state.
struct ReplicaAnnouncement {
    int index = 0;
    std::string url;       // "http://127.0.0.1:8101"
    std::string instance;  // empty while no process runs
    ReplicaState state = ReplicaState::kAbsent;
    double eta_s = 0;               // until READY, 0 = unknown
    double watts = 0, celsius = 0;  // of its GPU, 0 = not known
    bool is_drained = false;        // "drained" on the wire: an operator wants no new work there
    bool operator==(const ReplicaAnnouncement&) const = default;
};
std::string to_json_line(const ReplicaAnnouncement& announcement);
Result<ReplicaAnnouncement> parse_announcement(std::string_view line);

/// Router to launcher, over the same socket: an operator drained an announced replica at the router
/// or wants it back. The launcher's announcements then say the same, so that both know of it.
struct DrainOrder {
    int index = 0;
    bool is_drained = false;
    bool operator==(const DrainOrder&) const = default;
};
std::string to_json_line(const DrainOrder& order);
Result<DrainOrder> parse_drain_order(std::string_view line);

/// Router to launcher: what a reload of keys and certificates came to.
struct ReloadReport {
    std::vector<std::string> done;    // "keys: 2", "tls"
    std::vector<std::string> errors;  // each a sentence; what is wrong stays as it was
    bool operator==(const ReloadReport&) const = default;
};
std::string to_json_line(const ReloadReport& report);
Result<ReloadReport> parse_reload_report(std::string_view line);

/// Router to launcher: where it stands. The second follows a SIGUSR1: its listening sockets are
/// closed, what it has accepted it still finishes, and a successor may begin.
enum class RouterNews { kServing, kLetGo };
std::string to_json_line(RouterNews word);  // {"router":"serving"}, {"router":"let_go"}
Result<RouterNews> parse_router_news(std::string_view line);

/// Cuts a byte stream into lines; a line beyond kEventLineBytesMax sets it to failed.
class LineReader {
public:
    void feed(std::string_view bytes);
    /// The next complete line, without its LF.
    std::optional<std::string> next();
    [[nodiscard]] bool is_failed() const { return is_failed_; }

private:
    std::string buffer_;
    std::size_t begin_ = 0;
    bool is_failed_ = false;
};

}  // namespace proto
