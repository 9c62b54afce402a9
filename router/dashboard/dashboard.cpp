#include "router/dashboard/dashboard.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

#include "proto/http_message.h"
#include "router/dashboard/page_files.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr std::string_view kPage = "index.html";
constexpr std::string_view kPagePath = "/dashboard";
/// Other spellings of the page's address and where they lead. Relative, so that they also hold
/// behind a proxy that serves us under a path of its own.
struct OtherSpelling {
    std::string_view path, location;
};
constexpr std::array<OtherSpelling, 3> kOtherSpellings{{{"/", "dashboard"},
                                                        {"/dashboard/", "../dashboard"},
                                                        {"/dashboard/index.html", "../dashboard"}}};
constexpr int kTemporaryRedirect = 307;
/// Nothing but our own files and our own API; no inline code, no frames around us.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type(std::string_view name) {
    if (name.ends_with(".html")) return "text/html; charset=utf-8";
    if (name.ends_with(".css")) return "text/css; charset=utf-8";
    if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
    assert(name.ends_with(".svg") && "every kind of file has a type");
    return "image/svg+xml";
}

std::string path_of(const PageFile& file) {
    const std::string path(kPagePath);
    return file.name == kPage ? path : path + "/" + std::string(file.name);
}

proto::HttpResponse file_response(const PageFile& file) {
    proto::HttpResponse response =
        proto::text_response(std::string(file.text), 200, content_type(file.name));
    proto::Headers& headers = response.headers;
    // A new build must not meet the old page in somebody's cache.
    headers.set("cache-control", "no-cache");
    headers.set("content-security-policy", std::string(kContentSecurityPolicy));
    headers.set("x-content-type-options", "nosniff");
    headers.set("referrer-policy", "no-referrer");
    return response;
}

template <std::size_t kCount>
double sum(const std::array<prometheus::Counter*, kCount>& counters) {
    double total = 0;
    for (const prometheus::Counter* counter : counters)
        total += counter->Value();
    return total;
}

bool is_generation(Endpoint endpoint) {
    return endpoint == Endpoint::kChatCompletions || endpoint == Endpoint::kCompletions;
}

}  // namespace

bool is_page_path(std::string_view path) {
    if (path != "/" && !path.starts_with(kPagePath)) return false;  // as nearly all do
    if (std::ranges::find(kOtherSpellings, path, &OtherSpelling::path) != kOtherSpellings.end()) {
        return true;
    }
    const std::span<const PageFile> files = page_files();
    return std::any_of(files.begin(), files.end(),
                       [path](const PageFile& file) { return path_of(file) == path; });
}

Dashboard::Dashboard(Services& services)
    : services_(services),
      id_(proto::make_instance_id()),
      started_at_(Clock::now()),
      sample_due_(started_at_) {}

void Dashboard::add_routes(proto::RouteTable& routes) {
    for (const PageFile& file : page_files()) {
        routes.add("GET", path_of(file),
                   [&file](proto::HttpExchange& exchange, std::string) -> asio::awaitable<void> {
                       proto::HttpResponse response = file_response(file);
                       (void)co_await exchange.send(std::move(response));
                   });
    }
    for (const OtherSpelling& spelling : kOtherSpellings) {
        routes.add(
            "GET", std::string(spelling.path),
            [&spelling](proto::HttpExchange& exchange, std::string) -> asio::awaitable<void> {
                proto::HttpResponse response = proto::text_response("", kTemporaryRedirect);
                response.headers.set("location", std::string(spelling.location));
                (void)co_await exchange.send(std::move(response));
            });
    }
    routes.add("GET", "/dashboard/state",
               [this](proto::HttpExchange& exchange, std::string) -> asio::awaitable<void> {
                   const StateCursor cursor = parse_cursor(exchange.request().query);
                   proto::HttpResponse response = proto::json_response(state(cursor, Clock::now()));
                   response.headers.set("cache-control", "no-store");
                   (void)co_await exchange.send(std::move(response));
               });
}

void Dashboard::tick(Clock::time_point now) {
    if (now < sample_due_) return;
    sample_due_ += kSampleInterval;
    // After a stop of the process the seconds that were lost are not made up.
    if (sample_due_ <= now) sample_due_ = now + kSampleInterval;
    if (std::optional<Sample> sample = sampler_.take(read(now))) {
        samples_.push(std::move(*sample));
    }
}

Reading Dashboard::read(Clock::time_point now) {
    Metrics& metrics = services_.metrics;
    Reading reading{.at = now};
    for (std::size_t e = 0; e < kEndpointCount; ++e) {
        const auto endpoint = static_cast<Endpoint>(e);
        if (!is_generation(endpoint)) continue;
        for (std::size_t i = 0; i < kOutcomeCount; ++i) {
            reading.requests.at(i) += metrics.requests_total(endpoint, static_cast<Outcome>(i));
        }
    }
    reading.aborts = sum(metrics.client_aborts);
    reading.retries = sum(metrics.retries);
    for (const auto& series : metrics.replicas()) {
        if (series == nullptr || series->is_forgotten) continue;
        reading.prefix_predicted_tokens += series->affinity_predicted->Value();
        reading.prefix_confirmed_tokens += series->affinity_confirmed->Value();
        reading.breaker_openings +=
            series->breaker_transitions.at(static_cast<std::size_t>(BreakerState::kOpen))->Value();
    }
    for (std::size_t i = 0; i < kPhaseCount; ++i)
        reading.inflight.at(i) = metrics.requests_inflight.at(i)->Value();
    for (const auto& [index, replica] : services_.set.replicas()) {
        if (!replica.status) continue;
        reading.tokens[index] = {.instance = replica.status->instance,
                                 .prompt_tokens = replica.status->prompt_tokens_total,
                                 .generated_tokens = replica.status->generated_tokens_total};
    }
    reading.ttft = metrics.time_to_first_token_seconds->take_recent();
    reading.event_gap = metrics.event_gap_seconds->take_recent();
    for (std::size_t i = 0; i < kStageCount; ++i)
        reading.overhead.at(i) = metrics.overhead_seconds.at(i)->take_recent();
    return reading;
}

/// /info is read once per instance, so it is taken apart once per instance.
void Dashboard::learn_facts() {
    const std::map<int, Replica>& replicas = services_.set.replicas();
    std::erase_if(facts_, [&](const auto& one) {
        const auto replica = replicas.find(one.first);
        return replica == replicas.end() || replica->second.instance() != one.second.instance;
    });
    for (const auto& [index, replica] : replicas) {
        if (!replica.info || replica.info->instance != replica.instance()) continue;
        if (facts_.contains(index)) continue;
        facts_[index] = parse_facts(replica.info->instance, replica.info->info_json);
    }
}

QueueView Dashboard::queue_view() const {
    const WaitQueue& queue = services_.dispatcher.queue();
    QueueView view{.count_max = services_.dispatcher.queue_count_max()};
    for (std::size_t i = 0; i < view.classes.size(); ++i) {
        const auto priority_class = static_cast<PriorityClass>(i);
        view.classes.at(i) = {.count = queue.count_of(priority_class),
                              .oldest = queue.oldest_of(priority_class)};
    }
    view.body_bytes = services_.dispatcher.bodies().used();
    view.body_bytes_max = services_.dispatcher.bodies().most();
    std::tie(view.retry_after_s_min, view.retry_after_s_max) =
        services_.dispatcher.retry_after_range_s();
    return view;
}

std::vector<std::string> Dashboard::drifted() {
    std::vector<std::string> files;
    if (services_.key_source.has_drifted()) files.emplace_back("key file");
    if (services_.admin_key_source.has_drifted()) files.emplace_back("file of admin keys");
    return files;
}

FleetView Dashboard::fleet_view(Clock::time_point now) {
    std::optional<int> certificate_days_left;
    if (services_.tls != nullptr) {
        certificate_days_left = services_.tls->days_left(std::chrono::system_clock::now());
    }
    return {.id = id_,
            .version = kVersion,
            .commit = kCommit,
            .layout = services_.config.layout,
            .config_digest = services_.config.digest(),
            .keys_digest = services_.key_source.digest(),
            .drifted = drifted(),
            .started_at = started_at_,
            .is_draining = services_.dispatcher.is_draining(),
            .is_affinity_suspended = services_.dispatcher.memory().is_affinity_suspended(now),
            .certificate_days_left = certificate_days_left,
            .mode = services_.set.mode(now)};
}

std::string Dashboard::state(const StateCursor& cursor, Clock::time_point now) {
    learn_facts();
    const FleetView fleet = fleet_view(now);
    proto::Json json{{"v", 1}};
    json["router"] = fleet_json(fleet, services_.set, now);
    json["warnings"] = warnings(fleet, services_.set, facts_);
    json["replicas"] = proto::Json::array();
    for (const auto& [index, replica] : services_.set.replicas()) {
        const auto facts = facts_.find(index);
        json["replicas"].push_back(
            replica_json(replica, facts == facts_.end() ? nullptr : &facts->second, now));
    }
    json["queue"] = queue_json(queue_view(), now);
    json["samples"] = samples_json(samples_, cursor.samples_after, now);
    json["decisions"] = decisions_json(services_.decisions, cursor.decisions_after,
                                       std::chrono::system_clock::now());
    return proto::json_text(json);
}

}  // namespace router
