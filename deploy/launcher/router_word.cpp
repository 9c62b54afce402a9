#include "deploy/launcher/router_word.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deploy/launcher/sockets.h"

namespace deploy {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kAnswerTime{1'500};
constexpr std::size_t kAnswerBytesMax = 4 * 1024 * 1024;
/// A report comes every second at least; one that is older says nothing about now.
constexpr double kReportAgeMsMax = 3'000;

/// The body of a whole 200; null before all of it is there.
json body_of(const std::string& answer) {
    const std::size_t head_end = answer.find("\r\n\r\n");
    if (head_end == std::string::npos || !answer.starts_with("HTTP/1.1 200")) return nullptr;
    json body = json::parse(answer.substr(head_end + 4), nullptr, false);
    return body.is_object() ? body : json(nullptr);
}

json get(const std::string& socket, const std::string& target) {
    const UniqueFd fd = connect_unix(socket);
    const std::string request =
        "GET " + target + " HTTP/1.1\r\nHost: router\r\nConnection: close\r\n\r\n";
    if (!fd || ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
                   static_cast<ssize_t>(request.size())) {
        return nullptr;
    }
    const auto limit = std::chrono::steady_clock::now() + kAnswerTime;
    std::string answer;
    while (answer.size() < kAnswerBytesMax) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            limit - std::chrono::steady_clock::now());
        pollfd readable{.fd = fd.get(), .events = POLLIN, .revents = 0};
        if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) <= 0) break;
        std::array<char, 16 * 1024> chunk;
        const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
        if (got <= 0) break;
        answer.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return body_of(answer);
}

double number(const json& object, const char* key) {
    const auto value = object.find(key);
    return value != object.end() && value->is_number() ? value->get<double>() : 0;
}

std::int64_t whole(const json& object, const char* key) {
    return static_cast<std::int64_t>(number(object, key));
}

std::string text(const json& object, const char* key) {
    const auto value = object.find(key);
    return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

json report_of(const json& replica) {
    const auto report = replica.find("report");
    return report != replica.end() && report->is_object() ? *report : json::object();
}

json word_json(const json& replica) {
    json word{{"state", text(replica, "state")},
              {"since_s", number(replica, "state_ms") / 1000},
              {"breaker", text(replica, "breaker")},
              {"in_flight", whole(replica, "in_flight")}};
    const json report = report_of(replica);
    word["report_age_ms"] = report.contains("age_ms") ? report["age_ms"] : json(nullptr);
    if (replica.contains("not_used")) word["not_used"] = replica["not_used"];
    return word;
}

/// One that was added at the router, in the form of the launcher's own.
json added_json(const json& replica) {
    const json report = report_of(replica);
    json one{
        {"index", whole(replica, "replica")},
        {"device", text(replica, "url")},
        {"url", text(replica, "url")},
        {"state", text(replica, "state")},
        {"since_s", number(replica, "state_ms") / 1000},
        {"note", "added at the router" +
                     std::string(replica.value("drain_asked", false) ? ", drained there" : "")},
        {"router", word_json(replica)}};
    if (!report.empty() && text(replica, "state") != "DOWN") {
        one["work"] = {
            {"running", whole(report, "running")},
            {"waiting", whole(report, "waiting")},
            {"sequences_max", whole(report, "sequences_max")},
            {"kv_blocks_used", whole(report, "kv_blocks_total") - whole(report, "kv_blocks_free")},
            {"kv_blocks_total", whole(report, "kv_blocks_total")},
            {"report_age_ms", whole(report, "age_ms")}};
    }
    return one;
}

bool is_serving(const json& replica) {
    return replica.at("state") == "READY" || replica.at("state") == "DRAINING";
}

}  // namespace

std::optional<RouterWord> ask_router(const std::string& admin_socket) {
    RouterWord word{.replicas = get(admin_socket, "/admin/replicas"), .queue = json(nullptr)};
    if (!word.replicas.is_object() || !word.replicas.contains("replicas")) return std::nullopt;
    word.queue = get(admin_socket, "/admin/queue");
    if (!word.queue.is_object()) return std::nullopt;
    return word;
}

void add_router_word(json& status, const std::optional<RouterWord>& word) {
    status["router"]["answers"] = word.has_value();
    status["added_replicas"] = json::array();
    if (!word) return;
    const int queued = static_cast<int>(whole(word->queue, "requests"));
    status["queue"] = {{"requests", queued},
                       {"requests_max", whole(word->queue, "requests_max")},
                       {"prompt_tokens", whole(word->queue, "prompt_tokens")}};
    int running = status.value("running", 0);
    int waiting = status.value("waiting", 0) + queued;
    for (const json& one : word->replicas.at("replicas")) {
        if (!one.is_object()) continue;
        if (!one.value("announced", false)) {
            json added = added_json(one);
            if (added.contains("work")) {
                running += added["work"]["running"].get<int>();
                waiting += added["work"]["waiting"].get<int>();
            }
            status["added_replicas"].push_back(std::move(added));
            continue;
        }
        const auto same = std::ranges::find_if(status["replicas"], [&](const json& replica) {
            return replica.at("index") == whole(one, "replica");
        });
        if (same != status["replicas"].end()) (*same)["router"] = word_json(one);
    }
    status["running"] = running;
    status["waiting"] = waiting;
}

bool is_doubted(const json& replica) {
    const auto word = replica.find("router");
    return word != replica.end() && is_serving(replica) &&
           (word->at("state") == "SUSPECT" || word->at("state") == "DOWN");
}

std::string shown_state(const json& replica) {
    return (is_doubted(replica) ? replica.at("router") : replica).at("state").get<std::string>();
}

double shown_since_s(const json& replica) {
    return (is_doubted(replica) ? replica.at("router") : replica).at("since_s").get<double>();
}

std::string shown_note(const json& replica) {
    std::string note = replica.at("note").get<std::string>();
    const auto word = replica.find("router");
    if (word == replica.end() || !is_serving(replica)) return note;
    const auto add = [&](const std::string& more) { note += (note.empty() ? "" : "; ") + more; };
    if (is_doubted(replica)) {
        const double age_ms = number(*word, "report_age_ms");
        add(word->contains("not_used") ? word->at("not_used").get<std::string>()
            : age_ms > kReportAgeMsMax ? "the router sends it nothing: no report for " +
                                             std::to_string(std::llround(age_ms / 1000)) + " s"
                                       : "the router sends it nothing: it makes no progress");
    } else if (const std::string breaker = text(*word, "breaker");
               !breaker.empty() && breaker != "closed") {
        add("its breaker at the router is " + breaker);
    }
    return note;
}

}  // namespace deploy
