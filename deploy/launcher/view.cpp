#include "deploy/launcher/view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <unistd.h>

#include "deploy/launcher/command_name.h"
#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/planner.h"
#include "deploy/launcher/router_word.h"

namespace deploy {
namespace {

using nlohmann::json;

double seconds_between(TimePoint from, TimePoint to) {
    return std::chrono::duration<double>(to - from).count();
}

std::int64_t ms_between(TimePoint from, TimePoint to) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(to - from).count();
}

/// It is asked every second; with an answer older than this, its numbers say nothing about now.
constexpr std::chrono::milliseconds kAnswerAgeMax{3'000};

std::string_view name_of(RouterState state) {
    switch (state) {
        case RouterState::kAbsent:
            return "ABSENT";
        case RouterState::kRunning:
            return "RUNNING";
        case RouterState::kDraining:
            return "DRAINING";
        case RouterState::kBackoff:
            return "BACKOFF";
    }
    return "?";
}

json failure_json(const Failure& failure) {
    return {{"id", id_of(failure.kind)},
            {"class", name_of(failure.kind)},
            {"exit_code", exit_code_of(failure.kind)},
            {"what", failure.what},
            {"why", failure.why},
            {"fix", failure.fix}};
}

/// What a card does not tell is null.
json gpu_json(const ReplicaFacts& facts) {
    const auto number = [](const std::optional<double>& value) {
        return value ? json(*value) : json(nullptr);
    };
    json gpu{{"uuid", facts.gpu_uuid}, {"name", facts.device_note}};
    if (!facts.gpu) return gpu;
    gpu["watts"] = number(facts.gpu->watts);
    gpu["watts_cap"] = number(facts.gpu->watts_cap);
    gpu["celsius"] = number(facts.gpu->celsius);
    gpu["memory_used_bytes"] = facts.gpu->memory_used_bytes;
    gpu["memory_total_bytes"] = facts.gpu->memory_total_bytes;
    gpu["load_watts_max"] = facts.load_watts_max;
    return gpu;
}

/// "212 W 61 C 48/80 GiB"
std::string gpu_text(const json& gpu) {
    std::string text;
    const auto add = [&](const char* key, const char* unit) {
        const auto value = gpu.find(key);
        if (value == gpu.end() || !value->is_number()) return;
        text += std::to_string(std::llround(value->get<double>())) + unit;
    };
    add("watts", " W ");
    add("celsius", " C ");
    if (const auto used = gpu.find("memory_used_bytes"); used != gpu.end()) {
        text += bytes_text(used->get<std::uint64_t>()) + " of " +
                bytes_text(gpu.at("memory_total_bytes").get<std::uint64_t>());
    }
    return text;
}

json replica_json(const Fleet& fleet, const Replica& replica, const ReplicaFacts& facts,
                  TimePoint now) {
    json out{{"index", replica.index},
             {"device", facts.device},
             {"device_note", facts.device_note},
             {"state", deploy::name_of(replica.state)},
             {"since_s", seconds_between(replica.since, now)},
             {"url", facts.url},
             {"port", facts.port},
             {"pid", replica.pid},
             {"instance", has_process(replica.state) ? replica.instance : ""},
             {"restarts", replica.restarts},
             {"degraded", replica.degraded},
             {"drained", is_drained(replica)},
             {"eta_s", eta_s(fleet, replica.index, now)},
             {"holds_load_lock", fleet.lock.holder == replica.index && fleet.lock.is_file_locked},
             {"load_s", std::chrono::duration<double>(replica.load_time).count()},
             {"note", note_of(fleet, replica.index, now)},
             {"last_lines", facts.last_lines}};
    if (!facts.gpu_uuid.empty()) out["gpu"] = gpu_json(facts);
    if (is_loading(replica.state)) {
        out["progress"] = {{"done", replica.done}, {"total", replica.total}};
    }
    if (replica.last_failure.has_value()) {
        out["last_failure"] = failure_json(*replica.last_failure);
        out["last_failure"]["last_lines"] = facts.failure_lines;
    }
    if (facts.status.has_value() &&
        (replica.state == ReplicaState::kReady || replica.state == ReplicaState::kDraining)) {
        const proto::ReplicaStatus& status = *facts.status;
        const std::int64_t used = status.kv_blocks_total - status.kv_blocks_free;
        out["work"] = {{"running", status.running},
                       {"waiting", status.waiting},
                       {"sequences_max", status.sequences_max},
                       {"step", status.step},
                       {"step_age_ms", status.step_age_ms},
                       {"report_age_ms", ms_between(replica.answered_at, now)},
                       {"queued_tokens", status.queued_tokens},
                       {"kv_blocks_used", used},
                       {"kv_blocks_total", status.kv_blocks_total},
                       {"prefill_tokens_per_s", status.prefill_tokens_per_s},
                       {"decode_tokens_per_s", status.decode_tokens_per_s}};
    }
    return out;
}

std::string percent_text(std::int64_t part, std::int64_t whole) {
    return whole <= 0 ? "-" : std::to_string((100 * part + whole / 2) / whole) + "%";
}

/// "3f9ac1" of "sha256:3f9ac1…"
std::string short_digest(const std::string& digest) {
    constexpr std::size_t kDigits = 6;
    const std::size_t colon = digest.find(':');
    return colon == std::string::npos ? "-" : digest.substr(colon + 1, kDigits);
}

/// Without work there is no step to wait for, and the age of the last one says nothing; neither
/// does what a replica said that is silent since.
std::string step_age_text(const json& work) {
    constexpr std::int64_t kMsMax = 10'000;
    const auto report_age_ms = work.at("report_age_ms").get<std::int64_t>();
    if (report_age_ms > kAnswerAgeMax.count()) {
        return "silent " + std::to_string(report_age_ms / 1000) + " s";
    }
    if (work.at("running") == 0) return "idle";
    if (!work.contains("step_age_ms")) return "-";
    const auto age_ms = work.at("step_age_ms").get<std::int64_t>();
    return age_ms < kMsMax ? std::to_string(age_ms) + " ms" : std::to_string(age_ms / 1000) + " s";
}

/// Columns as wide as their widest cell, two blanks between.
std::string table_text(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

/// "1.2 s", "12 s": the same in the log and the tables.
std::string short_seconds(double seconds) {
    std::array<char, 32> text{};
    const double whole = std::max(0.0, seconds);
    std::snprintf(text.data(), text.size(), whole < 9.95 ? "%.1f s" : "%.0f s", whole);
    return text.data();
}

std::string span_text(double seconds) {
    return seconds < 1 ? "a moment" : clock_text(seconds);
}

}  // namespace

std::string clock_text(double seconds) {
    const auto whole = static_cast<long long>(std::max(0.0, seconds));
    std::array<char, 32> text{};
    if (whole < 3600) {
        std::snprintf(text.data(), text.size(), "%02lld:%02lld", whole / 60, whole % 60);
    } else {
        std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                      whole % 60);
    }
    return text.data();
}

std::string note_of(const Fleet& fleet, int index, TimePoint now) {
    const Replica& replica = fleet.replicas.at(static_cast<std::size_t>(index));
    const std::string failed =
        replica.last_failure.has_value()
            ? std::string(id_of(replica.last_failure->kind)) + " " + replica.last_failure->what
            : "";
    switch (replica.state) {
        case ReplicaState::kWaitVram:
            return replica.memory_note.empty() ? "" : "waits for memory: " + replica.memory_note;
        case ReplicaState::kWaitLock:
            if (fleet.lock.holder == index) {
                return fleet.lock.waits_for.empty()
                           ? "gets the load lock"
                           : "the load lock is held by " + fleet.lock.waits_for;
            }
            return fleet.lock.holder.has_value()
                       ? "replica " + std::to_string(*fleet.lock.holder) + " holds the load lock"
                       : "";
        case ReplicaState::kLoading:
            if (replica.total == 0) return "holds the load lock";
            return bytes_text(replica.done) + " of " + bytes_text(replica.total) +
                   ", holds the load lock";
        case ReplicaState::kWarming:
        case ReplicaState::kSelftest:
            return "step " + std::to_string(replica.done) + " of " + std::to_string(replica.total) +
                   ", holds the load lock";
        case ReplicaState::kReady:
            if (now - replica.answered_at > kAnswerAgeMax) {
                return "no answer for " + short_seconds(seconds_between(replica.answered_at, now)) +
                       "; after " +
                       short_seconds(std::chrono::duration<double>(fleet.limits.silence).count()) +
                       " (silence_s) it is killed and loaded again";
            }
            return replica.degraded.empty() ? "" : "DEGRADED: " + replica.degraded;
        case ReplicaState::kDraining:
            if (replica.goal == Goal::kServe) {
                return "drained at the router, gets no new requests: '" + command_name() +
                       " undrain " + std::to_string(index) + "'";
            }
            return "no new requests, running ones finish";
        case ReplicaState::kStopping:
            return replica.condemned.has_value() ? "killed: " + replica.condemned->what : "";
        case ReplicaState::kBackoff:
            return "again in " + short_seconds(seconds_between(now, replica.retry_at)) + "; " +
                   failed;
        case ReplicaState::kQuarantined:
            return failed + ": '" + command_name() + " why " + std::to_string(index) + "'";
        case ReplicaState::kUnkillable:
            return "pid " + std::to_string(replica.pid) + " survives KILL; reboot the machine";
        case ReplicaState::kAbsent:
            return replica.goal == Goal::kHold ? "drained: '" + command_name() + " undrain " +
                                                     std::to_string(index) + "' loads it again"
                                               : "";
    }
    return "";
}

json status_json(const Fleet& fleet, const FleetFacts& facts, const Config& config, TimePoint now) {
    json out;
    out["launcher"] = {
        {"pid", ::getpid()},
        {"up_s", seconds_between(facts.started_at, now)},
        {"runtime_dir", facts.runtime_dir},
        {"metrics_url", "http://127.0.0.1:" + std::to_string(facts.metrics_port) + "/metrics"}};
    out["url"] = facts.url + "/v1";
    out["model"] = config.served_name;
    out["model_file"] = config.model;
    out["layout"] = config.layout;
    out["config_digest"] = facts.config_digest;
    out["is_stopping"] = fleet.phase >= FleetPhase::kDraining;
    out["router"] = {{"state", name_of(fleet.router.state)},
                     {"pid", fleet.router.pid},
                     {"port", facts.router_port},
                     {"since_s", seconds_between(fleet.router.since, now)},
                     {"restarts", fleet.router.restarts}};
    out["router"]["successor_pid"] = fleet.successor.has_value() ? fleet.successor->pid : 0;
    out["earlier_routers"] = json::array();
    for (const RetiredRouter& router : fleet.retired_routers) {
        out["earlier_routers"].push_back({{"pid", router.pid},
                                          {"since_s", seconds_between(router.since, now)},
                                          {"has_let_go", router.has_let_go}});
    }
    out["replicas"] = json::array();
    int running = 0;
    int waiting = 0;
    for (const Replica& replica : fleet.replicas) {
        out["replicas"].push_back(replica_json(
            fleet, replica, facts.replicas.at(static_cast<std::size_t>(replica.index)), now));
        running += replica.running;
        waiting += replica.waiting;
    }
    out["running"] = running;
    out["waiting"] = waiting;
    return out;
}

std::string status_table(const json& status) {
    const json& router = status.at("router");
    std::string text =
        "router " + std::to_string(router.at("port").get<int>()) + " " +
        (router.at("state") == "RUNNING" ? "up" : router.at("state").get<std::string>()) + " " +
        clock_text(router.at("since_s").get<double>()) + "   layout " +
        status.at("layout").get<std::string>() + "   model " +
        status.at("model").get<std::string>() + "   running " +
        std::to_string(status.at("running").get<int>()) + "   waiting " +
        std::to_string(status.at("waiting").get<int>()) + "   config " +
        short_digest(status.value("config_digest", std::string())) +
        (status.at("is_stopping").get<bool>() ? "   STOPPING" : "") + "\n";
    for (const json& earlier : status.value("earlier_routers", json::array())) {
        text += "earlier router, pid " + std::to_string(earlier.at("pid").get<int>()) +
                ", finishes its requests " + clock_text(earlier.at("since_s").get<double>()) + "\n";
    }
    std::vector<std::vector<std::string>> rows{
        {"REPLICA", "DEVICE", "STATE", "SINCE", "RUN/SLOTS", "KV", "STEP AGE", "NOTE"}};
    const bool has_gpus = std::ranges::any_of(
        status.at("replicas"), [](const json& replica) { return replica.contains("gpu"); });
    if (has_gpus) rows.front().insert(rows.front().end() - 1, "GPU NOW");
    const auto add_row = [&](const json& replica) {
        std::vector<std::string> row{std::to_string(replica.at("index").get<int>()),
                                     replica.at("device").get<std::string>(), shown_state(replica),
                                     clock_text(shown_since_s(replica))};
        if (const auto work = replica.find("work"); work != replica.end()) {
            row.push_back(std::to_string(work->at("running").get<int>()) + "/" +
                          std::to_string(work->at("sequences_max").get<int>()));
            row.push_back(percent_text(work->at("kv_blocks_used").get<std::int64_t>(),
                                       work->at("kv_blocks_total").get<std::int64_t>()));
            row.push_back(step_age_text(*work));
        } else {
            row.insert(row.end(), {"-", "-", "-"});
        }
        if (has_gpus) row.push_back(replica.contains("gpu") ? gpu_text(replica.at("gpu")) : "-");
        row.push_back(shown_note(replica));
        rows.push_back(std::move(row));
    };
    for (const json& replica : status.at("replicas"))
        add_row(replica);
    for (const json& replica : status.value("added_replicas", json::array()))
        add_row(replica);
    if (router.at("state") == "RUNNING" && !router.value("answers", true)) {
        text +=
            "the router does not answer on its admin socket: what waits in its queue, and what it "
            "says of replicas, is not in here\n";
    }
    return text + table_text(rows);
}

std::string why_text(const json& replica) {
    const std::string number = std::to_string(replica.at("index").get<int>());
    std::string text = "Replica " + number + " is " + shown_state(replica) + " for " +
                       span_text(shown_since_s(replica));
    const std::string note = shown_note(replica);
    text += (note.empty() ? "" : ": " + note) + "\n";
    const auto add_lines = [&text](const char* title, const json& lines) {
        if (lines.empty()) return;
        text += std::string(title) + "\n";
        for (const json& line : lines)
            text += "  | " + line.get<std::string>() + "\n";
    };
    if (const auto failure = replica.find("last_failure"); failure != replica.end()) {
        text += "last failure\n";
        text += "  what  " + failure->at("id").get<std::string>() + " " +
                failure->at("class").get<std::string>() + ": " +
                failure->at("what").get<std::string>() + "\n";
        text += "  why   " + failure->at("why").get<std::string>() + "\n";
        text += "  fix   " + failure->at("fix").get<std::string>() + "\n";
        if (replica.at("state") == "QUARANTINED") {
            text += "        then run: " + command_name() + " retry " + number + "\n";
        }
        add_lines("last lines of the process that failed", failure->at("last_lines"));
    } else {
        text += is_doubted(replica) ? "Its process has not ended since the launcher started.\n"
                                    : "It has not failed since the launcher started.\n";
    }
    // While nothing runs, its lines are those of the one that failed.
    const bool has_failed_lines =
        replica.contains("last_failure") &&
        replica.at("last_failure").at("last_lines") == replica.at("last_lines");
    if (!has_failed_lines) add_lines("last lines of its output", replica.at("last_lines"));
    return text;
}

}  // namespace deploy
