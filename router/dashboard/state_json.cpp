#include "router/dashboard/state_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "proto/http_message.h"
#include "proto/json_reader.h"
#include "router/certificate.h"

namespace router {
namespace {

using proto::Json;

/// A decision's count of generated tokens may come this long after its end; until then it is sent
/// again with every poll.
constexpr std::chrono::seconds kDecisionSettles{3};
constexpr std::string_view kArmed = "armed";

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

/// Three digits after the point are more than a page shows.
double rounded(double value) {
    return std::round(value * 1e3) / 1e3;
}

Json age_or_null(const std::optional<Clock::time_point>& at, Clock::time_point now) {
    return at ? Json(rounded(seconds_between(*at, now))) : Json();
}

Json milliseconds_or_null(const std::optional<double>& seconds) {
    return seconds ? Json(rounded(1e3 * *seconds)) : Json();
}

Json milliseconds_or_null(const std::optional<Clock::duration>& time) {
    return time ? Json(rounded(std::chrono::duration<double, std::milli>(*time).count())) : Json();
}

/// Cuts at a byte that begins a character.
std::string cut(std::string text) {
    if (text.size() <= kFactBytesMax) return text;
    std::size_t end = kFactBytesMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U)
        --end;
    text.resize(end);
    return text + "…";
}

std::string text_of(const Json& object, const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_string() ? cut(at->get<std::string>()) : std::string();
}

std::string text_or(const std::string& text, const char* otherwise) {
    return text.empty() ? otherwise : text;
}

Json string_or_null(const std::string& text) {
    return text.empty() ? Json() : Json(text);
}

std::string_view name_of_mode(FleetMode mode) {
    switch (mode) {
        case FleetMode::kServing:
            return "serving";
        case FleetMode::kStarting:
            return "starting";
        case FleetMode::kUncertain:
            return "uncertain";
        case FleetMode::kNone:
            break;
    }
    return "none";
}

Json kernels_json(const ReplicaFacts& facts) {
    std::size_t armed = 0;
    Json list = Json::array();
    for (const proto::KernelState& kernel : facts.kernels) {
        if (kernel.state == kArmed) ++armed;
        list.push_back({{"name", kernel.name}, {"state", kernel.state}, {"reason", kernel.reason}});
    }
    return {{"armed", armed}, {"count", facts.kernels.size()}, {"list", std::move(list)}};
}

/// What the last report says of load and speed; nulls without one.
void add_load(const Replica& replica, Clock::time_point now, Json& json) {
    // What one that is DOWN said last is no rate of now.
    if (!replica.status || replica.state == ReplicaState::kDown) {
        for (const char* name : {"running", "waiting", "slots", "queued_tokens", "kv_used_blocks",
                                 "kv_total_blocks", "prefill_tokens_per_s", "decode_tokens_per_s",
                                 "step", "step_age_s", "longest_step_ms", "status_age_s", "eta_s"})
            json[name] = nullptr;
        if (replica.eta_s > 0) json["eta_s"] = rounded(replica.eta_s);
        return;
    }
    const proto::ReplicaStatus& status = *replica.status;
    const double status_age_s = seconds_between(replica.status_at, now);
    json["running"] = status.running;
    json["waiting"] = status.waiting;
    json["slots"] = status.sequences_max;
    json["queued_tokens"] = status.queued_tokens;
    const bool has_kv = status.kv_blocks_total > 0;
    json["kv_used_blocks"] = has_kv ? Json(status.kv_blocks_total - status.kv_blocks_free) : Json();
    json["kv_total_blocks"] = has_kv ? Json(status.kv_blocks_total) : Json();
    json["prefill_tokens_per_s"] = rounded(status.prefill_tokens_per_s);
    json["decode_tokens_per_s"] = rounded(status.decode_tokens_per_s);
    json["step"] = status.step;
    // The report's own age counts: a replica that fell silent makes no steps that we know of.
    json["step_age_s"] = rounded(static_cast<double>(status.step_age_ms) / 1e3 + status_age_s);
    json["longest_step_ms"] = status.longest_step_ms;
    json["status_age_s"] = rounded(status_age_s);
    const double eta_s = status.eta_s > 0 ? status.eta_s : replica.eta_s;
    json["eta_s"] = eta_s > 0 ? Json(rounded(eta_s)) : Json();
}

struct Column {
    std::string name;
    Json (*value)(const Sample&, std::size_t index);
    std::size_t index = 0;
};

/// The columns of a sample after `number` and `age_s`; rates per second, times in milliseconds.
std::vector<Column> columns() {
    std::vector<Column> all;
    for (std::size_t i = 0; i < kOutcomeCount; ++i) {
        all.push_back({std::string(name_of(static_cast<Outcome>(i))),
                       [](const Sample& s, std::size_t at) { return Json(s.requests.at(at)); }, i});
    }
    for (std::size_t i = 0; i < kPhaseCount; ++i) {
        all.push_back({"inflight_" + std::string(name_of(static_cast<Phase>(i))),
                       [](const Sample& s, std::size_t at) { return Json(s.inflight.at(at)); }, i});
    }
    for (std::size_t i = 0; i < kStageCount; ++i) {
        all.push_back({"overhead_" + std::string(name_of(static_cast<Stage>(i))) + "_p99_ms",
                       [](const Sample& s, std::size_t at) {
                           return milliseconds_or_null(s.overhead_p99_s.at(at));
                       },
                       i});
    }
    using S = const Sample&;
    using I = std::size_t;
    all.push_back({"ttft_p50_ms", [](S s, I) { return milliseconds_or_null(s.ttft_p50_s); }});
    all.push_back({"ttft_p95_ms", [](S s, I) { return milliseconds_or_null(s.ttft_p95_s); }});
    all.push_back({"gap_p50_ms", [](S s, I) { return milliseconds_or_null(s.event_gap_p50_s); }});
    all.push_back({"gap_p95_ms", [](S s, I) { return milliseconds_or_null(s.event_gap_p95_s); }});
    all.push_back({"prompt_tokens", [](S s, I) { return Json(rounded(s.prompt_tokens)); }});
    all.push_back({"generated_tokens", [](S s, I) { return Json(rounded(s.generated_tokens)); }});
    all.push_back(
        {"prefix_predicted", [](S s, I) { return Json(rounded(s.prefix_predicted_tokens)); }});
    all.push_back(
        {"prefix_confirmed", [](S s, I) { return Json(rounded(s.prefix_confirmed_tokens)); }});
    all.push_back({"aborts", [](S s, I) { return Json(rounded(s.aborts)); }});
    all.push_back({"retries", [](S s, I) { return Json(rounded(s.retries)); }});
    all.push_back({"breakers", [](S s, I) { return Json(rounded(s.breaker_openings)); }});
    return all;
}

Json decision_row(const DecisionRecord& record, std::chrono::system_clock::time_point now) {
    const RequestRecord& request = record.request;
    const double age_s = std::chrono::duration<double>(now - record.ended_at).count();
    Json row{{"number", record.number},
             {"age_s", rounded(std::max(0.0, age_s))},
             {"request_id", record.request_id},
             {"status", record.status},
             {"outcome", std::string(name_of(request.outcome))},
             {"error", string_or_null(request.error)},
             {"class", std::string(name_of(request.priority_class))},
             {"stream", request.is_stream},
             {"replica", request.replica ? Json(*request.replica) : Json()},
             {"reason", std::string(request.reason)},
             {"attempts", request.attempts},
             {"queue_ms", milliseconds_or_null(request.queued)},
             {"total_ms", milliseconds_or_null(std::optional(record.total))},
             {"ttft_ms", milliseconds_or_null(request.ttft)},
             {"prompt", request.prompt_tokens},
             {"predicted", request.matched_tokens},
             {"cached", request.cached_tokens}};
    row["expected_ttft_ms"] =
        request.decision ? Json(rounded(1e3 * request.expected_ttft_s)) : Json();
    row["generated"] = request.generated_tokens ? Json(*request.generated_tokens) : Json();
    return row;
}

std::string join(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words)
        text += (text.empty() ? "" : ", ") + word;
    return text;
}

/// A sentence when replicas differ in one of their facts.
void warn_of_drift(const FactsByReplica& facts, std::string ReplicaFacts::*fact, const char* what,
                   std::vector<std::string>& out) {
    std::set<std::string> values;
    std::vector<std::string> words;
    for (const auto& [index, one] : facts) {
        if ((one.*fact).empty()) continue;
        values.insert(one.*fact);
        words.push_back(std::to_string(index) + " has " + one.*fact);
    }
    if (values.size() > 1)
        out.push_back(std::string(what) + " differ: replica " + join(words) + ".");
}

void warn_of_states(const ReplicaSet& set, std::vector<std::string>& out) {
    std::map<ReplicaState, std::vector<std::string>> by_state;
    for (const auto& [index, replica] : set.replicas()) {
        // What an operator has taken out on purpose is no alarm; its tile says so.
        if (replica.state != ReplicaState::kReady && !replica.drain_asked_at) {
            by_state[replica.state].push_back(std::to_string(index));
        }
    }
    for (const auto& [state, indexes] : by_state) {
        out.push_back((indexes.size() == 1 ? "Replica " : "Replicas ") + join(indexes) +
                      (indexes.size() == 1 ? " is " : " are ") + std::string(name_of(state)) + ".");
    }
}

void warn_of_kernels(const ReplicaSet& set, const FactsByReplica& all,
                     std::vector<std::string>& out) {
    for (const auto& [index, replica] : set.replicas()) {
        if (!replica.status || !replica.status->degraded) continue;
        std::vector<std::string> missing;
        if (const auto facts = all.find(index); facts != all.end()) {
            for (const proto::KernelState& kernel : facts->second.kernels) {
                if (kernel.state == kArmed) continue;
                missing.push_back(kernel.name + " (" +
                                  text_or(kernel.reason, kernel.state.c_str()) + ")");
            }
        }
        out.push_back("Replica " + std::to_string(index) +
                      " is degraded: a kernel that its plan wants is not armed" +
                      (missing.empty() ? "." : ": " + join(missing) + "."));
    }
}

std::uint64_t number_of(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

}  // namespace

ReplicaFacts parse_facts(const std::string& instance, const std::string& info_json) {
    ReplicaFacts facts{.instance = instance};
    const proto::Result<Json> info = proto::read_json_object(info_json);
    if (!info) return facts;
    facts.version = text_of(*info, "version");
    facts.config_digest = text_of(*info, "config_digest");
    if (const auto model = info->find("model"); model != info->end() && model->is_object()) {
        facts.arch = text_of(*model, "arch");
        facts.quant = text_of(*model, "quant");
    }
    const auto kernels = info->find("kernels");
    if (kernels == info->end() || !kernels->is_array()) return facts;
    for (const Json& kernel : *kernels) {
        if (!kernel.is_object() || facts.kernels.size() == kKernelsShown) continue;
        facts.kernels.push_back({.name = text_of(kernel, "name"),
                                 .state = text_of(kernel, "state"),
                                 .reason = text_of(kernel, "reason")});
    }
    return facts;
}

StateCursor parse_cursor(std::string_view query) {
    return {
        .samples_after = number_of(proto::query_value(query, "samples_after").value_or("")),
        .decisions_after = number_of(proto::query_value(query, "decisions_after").value_or(""))};
}

Json fleet_json(const FleetView& fleet, const ReplicaSet& set, Clock::time_point now) {
    std::size_t ready = 0;
    for (const auto& [index, replica] : set.replicas())
        ready += replica.state == ReplicaState::kReady ? 1 : 0;
    return {{"id", fleet.id},
            {"version", fleet.version},
            {"commit", fleet.commit},
            {"layout", string_or_null(fleet.layout)},
            {"config_digest", fleet.config_digest},
            {"keys_digest", string_or_null(fleet.keys_digest)},
            {"drifted", fleet.drifted},
            {"uptime_s", rounded(seconds_between(fleet.started_at, now))},
            {"mode", std::string(name_of_mode(fleet.mode))},
            {"is_draining", fleet.is_draining},
            {"is_affinity_suspended", fleet.is_affinity_suspended},
            {"models", set.model_names()},
            {"replicas", set.replicas().size()},
            {"replicas_ready", ready}};
}

Json replica_json(const Replica& replica, const ReplicaFacts* facts, Clock::time_point now) {
    Json json{{"index", replica.index},
              {"url", replica.url},
              {"state", std::string(name_of(replica.state))},
              {"since_s", rounded(seconds_between(replica.state_since, now))},
              {"instance", string_or_null(replica.instance())},
              {"died_s", age_or_null(replica.died_at, now)},
              {"is_degraded", replica.status && replica.status->degraded},
              {"is_drained", replica.drain_asked_at.has_value()},
              {"in_flight", replica.account ? replica.account->sequences() : 0}};
    // What the launcher is doing with it, in its own words, where there is a launcher.
    json["launcher_state"] =
        replica.is_announced ? Json(proto::replica_state_name(replica.announced)) : Json();
    add_load(replica, now, json);
    const bool is_known = facts != nullptr;
    json["version"] = is_known ? string_or_null(facts->version) : Json();
    json["config_digest"] = is_known ? string_or_null(facts->config_digest) : Json();
    json["arch"] = is_known ? string_or_null(facts->arch) : Json();
    json["quant"] = is_known ? string_or_null(facts->quant) : Json();
    json["kernels"] = is_known ? kernels_json(*facts) : Json();
    json["watts"] = replica.watts > 0 ? Json(rounded(replica.watts)) : Json();
    json["celsius"] = replica.celsius > 0 ? Json(rounded(replica.celsius)) : Json();
    return json;
}

Json queue_json(const QueueView& queue, Clock::time_point now) {
    Json classes = Json::array();
    std::size_t count = 0;
    for (std::size_t i = 0; i < queue.classes.size(); ++i) {
        const QueueView::Class& one = queue.classes.at(i);
        count += one.count;
        classes.push_back({{"name", std::string(name_of(static_cast<PriorityClass>(i)))},
                           {"count", one.count},
                           {"oldest_wait_s", age_or_null(one.oldest, now)}});
    }
    return {{"classes", std::move(classes)},
            {"count", count},
            {"count_max", queue.count_max},
            {"body_bytes", queue.body_bytes},
            {"body_bytes_max", queue.body_bytes_max},
            {"retry_after_s_min", queue.retry_after_s_min},
            {"retry_after_s_max", queue.retry_after_s_max}};
}

Json samples_json(const SampleRing& ring, std::uint64_t after, Clock::time_point now) {
    const std::vector<Column> all = columns();
    Json names = Json::array({"number", "age_s"});
    for (const Column& column : all)
        names.push_back(column.name);
    Json rows = Json::array();
    for (const Sample* sample : ring.after(after)) {
        Json row = Json::array({sample->number, rounded(seconds_between(sample->at, now))});
        for (const Column& column : all)
            row.push_back(column.value(*sample, column.index));
        rows.push_back(std::move(row));
    }
    return {{"columns", std::move(names)}, {"rows", std::move(rows)}};
}

Json decisions_json(const DecisionRing& ring, std::uint64_t after,
                    std::chrono::system_clock::time_point now) {
    Json rows = Json::array();
    for (const DecisionRecord* record : ring.find({}, kDecisionsShown)) {
        const bool may_change = now - record->ended_at < kDecisionSettles;
        if (record->number > after || may_change) rows.push_back(decision_row(*record, now));
    }
    return rows;
}

std::vector<std::string> warnings(const FleetView& fleet, const ReplicaSet& set,
                                  const FactsByReplica& facts) {
    std::vector<std::string> out;
    if (fleet.is_draining) out.emplace_back("The router is draining: it takes no new requests.");
    for (const std::string& file : fleet.drifted) {
        out.emplace_back("The " + file +
                         " on disk is another one than what is in use: a reload "
                         "(SIGHUP) reads it.");
    }
    if (fleet.certificate_days_left) {
        if (auto warning = certificate_warning(*fleet.certificate_days_left)) {
            out.push_back(std::move(*warning));
        }
    }
    if (set.replicas().empty()) out.emplace_back("There is no replica.");
    warn_of_states(set, out);
    warn_of_kernels(set, facts, out);
    warn_of_drift(facts, &ReplicaFacts::config_digest, "Settings of replicas", out);
    warn_of_drift(facts, &ReplicaFacts::version, "Versions of replicas", out);
    if (fleet.is_affinity_suspended) {
        out.emplace_back("Prefix affinity is off for a minute: lately it did not pay.");
    }
    return out;
}

}  // namespace router
