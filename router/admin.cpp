#include "router/admin.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/json.h"
#include "router/replica_url.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kBodyBytesMax = 16 * 1024;
constexpr std::size_t kConnectionsMax = 32;
constexpr std::size_t kConnectionsOfAddressMax = 8;  // so that one alone keeps nobody out
constexpr int kAccepted = 202;
constexpr int kConflict = 409;

double milliseconds(Clock::duration time) {
    return std::round(std::chrono::duration<double, std::milli>(time).count() * 10) / 10;
}

/// A whole number that is all of `text`.
std::optional<int> whole_number(std::string_view text) {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || value < 0) return std::nullopt;
    return value;
}

proto::Json replica_json(const Replica& replica, Clock::time_point now) {
    proto::Json json{{"replica", replica.index},
                     {"url", replica.url},
                     {"instance", replica.instance()},
                     {"announced", replica.is_announced},
                     {"state", std::string(name_of(replica.state))},
                     {"state_ms", milliseconds(now - replica.state_since)},
                     {"drain_asked", replica.drain_asked_at.has_value()},
                     {"leaving", replica.is_leaving},
                     {"breaker", std::string(name_of(replica.breaker.state()))},
                     {"in_flight", replica.account ? replica.account->sequences() : 0},
                     {"eta_s", replica.eta_s}};
    if (replica.same_as) {
        json["not_used"] = "it is replica " + std::to_string(*replica.same_as) +
                           ", which is known by another address";
    }
    json["report"] = proto::Json();
    if (const auto& status = replica.status) {
        json["report"] = {{"age_ms", milliseconds(now - replica.status_at)},
                          {"step", status->step},
                          {"running", status->running},
                          {"waiting", status->waiting},
                          {"sequences_max", status->sequences_max},
                          {"queued_tokens", status->queued_tokens},
                          {"kv_blocks_free", status->kv_blocks_free},
                          {"kv_blocks_total", status->kv_blocks_total},
                          {"prefill_tokens_per_s", status->prefill_tokens_per_s},
                          {"decode_tokens_per_s", status->decode_tokens_per_s}};
    }
    return json;
}

tl::unexpected<proto::ApiError> not_found(const std::string& name) {
    return proto::fail(proto::ErrorCode::kUnknownUrl,
                       "There is no replica '" + proto::printable(name, 32) + "'.");
}

asio::awaitable<void> send(proto::HttpExchange& exchange, proto::HttpResponse response) {
    (void)co_await exchange.send(std::move(response));
}

}  // namespace

proto::Result<DecisionQuery> parse_decision_query(std::string_view query) {
    DecisionQuery wanted;
    wanted.request_id = proto::query_value(query, "request_id").value_or("");
    const auto limit = proto::query_value(query, "limit");
    if (!limit || limit->empty()) return wanted;
    const std::optional<int> number = whole_number(*limit);
    if (!number || *number < 1 || static_cast<std::size_t>(*number) > DecisionRing::kRecordsMax) {
        return proto::fail(proto::ErrorCode::kInvalidValue,
                           "limit is a whole number from 1 to 1024.", "limit");
    }
    wanted.limit = static_cast<std::size_t>(*number);
    return wanted;
}

std::optional<AdminAddress> parse_admin_address(std::string_view text) {
    const auto parts = proto::parse_http_url("http://" + std::string(text));
    const bool has_port = !text.empty() && text.find(':') != std::string_view::npos &&
                          text.back() != ']' && text.find('/') == std::string_view::npos;
    if (!parts || !has_port) return std::nullopt;
    return AdminAddress{parts->endpoint.host, parts->endpoint.port};
}

Admin::Admin(asio::any_io_executor executor, Services& services)
    : executor_(std::move(executor)), services_(services), keys_(unused_shares_) {
    add_route("GET", "/admin/replicas", &Admin::list_replicas);
    add_route("POST", "/admin/replicas", &Admin::add_replica);
    add_route("POST", "/admin/replicas/{order}", &Admin::order);
    add_route("DELETE", "/admin/replicas/{n}", &Admin::remove_replica);
    add_route("GET", "/admin/queue", &Admin::show_queue);
    add_route("GET", "/admin/decisions", &Admin::show_decisions);
    add_route("GET", "/admin/keys", &Admin::show_keys);
}

Admin::~Admin() = default;

void Admin::add_route(const std::string& method, const std::string& path, Answer answer) {
    routes_.add(method, path,
                [this, answer](proto::HttpExchange& exchange, const std::string& rest) {
                    return send(exchange, (this->*answer)(exchange.request(), rest));
                });
}

proto::HttpServerOptions Admin::server_options() {
    proto::HttpServerOptions options;
    options.body_bytes_max = kBodyBytesMax;
    options.connections_max = kConnectionsMax;
    options.admit = [this](proto::HttpRequestHead& head) {
        return routes_.refuse(head.method, head.path);
    };
    // When clients have taken every descriptor, whoever is to mend that still comes in.
    options.reserve_for = [](const proto::HttpRequestHead&) { return true; };
    options.reserve_after = std::chrono::milliseconds(0);
    return options;
}

void Admin::listen_unix(const std::string& path) {
    socket_ = std::make_unique<AdminSocket>(path);
    listen_unix(socket_->release());
}

void Admin::listen_unix(int fd) {
    proto::HttpServerOptions options = server_options();
    options.listen_fd = fd;
    unix_server_ = std::make_unique<proto::HttpServer>(
        executor_, std::move(options),
        [this](proto::HttpExchange& exchange) { return routes_.serve(exchange); });
}

void Admin::listen_tcp(const AdminAddress& address, std::optional<int> fd,
                       std::shared_ptr<const proto::TlsContext> tls) {
    proto::HttpServerOptions options = server_options();
    options.listen_fd = fd;
    options.address = address.host;
    options.port = address.port;
    options.tls = std::move(tls);
    options.connections_per_address_max = kConnectionsOfAddressMax;
    options.admit = [this](proto::HttpRequestHead& head) -> std::optional<proto::HttpResponse> {
        if (auto refusal = refuse_stranger(head)) return refusal;
        return routes_.refuse(head.method, head.path);
    };
    tcp_server_ = std::make_unique<proto::HttpServer>(
        executor_, std::move(options),
        [this](proto::HttpExchange& exchange) { return routes_.serve(exchange); });
}

std::optional<proto::HttpResponse> Admin::refuse_stranger(const proto::HttpRequestHead& head) {
    const auto now = Clock::now();
    if (const auto wait_s = guesses_.wait_s(head.peer, now)) {
        services_.metrics.admin_shut_out->Increment();
        proto::ApiError error{proto::ErrorCode::kQueueFull,
                              "Too many wrong keys came from this address. Try again in " +
                                  std::to_string(*wait_s) + " seconds."};
        error.retry_after_s = wait_s;
        return proto::error_response(error);
    }
    if (keys_.is_needed() && keys_.find(head.headers)) return std::nullopt;
    if (proto::api_key(head.headers)) {
        services_.metrics.admin_wrong_keys->Increment();
        if (guesses_.note_wrong(head.peer, now)) {
            spdlog::warn("event=admin_shut_out address={} wrong_keys={} for_s={}", head.peer,
                         GuessGuard::kWrongMax, GuessGuard::kWindow.count());
        }
    }
    return unauthorized_response();
}

void Admin::start() {
    if (unix_server_) unix_server_->start();
    if (!tcp_server_) return;
    tcp_server_->start();
    spdlog::info("event=admin_listening address={} port={}", tcp_server_->address(),
                 tcp_server_->port());
}

std::size_t Admin::connections() const {
    const auto of = [](const auto& server) { return server ? server->stats().connections : 0; };
    return of(unix_server_) + of(tcp_server_);
}

std::size_t Admin::connections_busy() const {
    const auto of = [](const auto& server) { return server ? server->connections_busy() : 0; };
    return of(unix_server_) + of(tcp_server_);
}

void Admin::hand_over() {
    if (socket_) socket_->free_path();
    if (unix_server_) unix_server_->hand_over();
    if (tcp_server_) tcp_server_->hand_over();
}

asio::awaitable<void> Admin::stop(std::chrono::milliseconds deadline) {
    if (unix_server_) co_await unix_server_->stop(deadline);
    if (tcp_server_) co_await tcp_server_->stop(deadline);
}

void Admin::set_tls(std::shared_ptr<const proto::TlsContext> tls) {
    if (tcp_server_) tcp_server_->set_tls(std::move(tls));
}

proto::HttpResponse Admin::list_replicas(const proto::HttpRequest&, const std::string&) {
    const auto now = Clock::now();
    proto::Json list = proto::Json::array();
    for (const auto& [index, replica] : services_.set.replicas())
        list.push_back(replica_json(replica, now));
    const proto::Json body{{"replicas", list}};
    return proto::json_response(proto::json_text(body));
}

proto::Result<Admin::Added> Admin::add(const std::string& body) {
    const proto::Result<proto::Json> read = proto::read_json_object(body);
    if (!read) return tl::unexpected(read.error());
    const proto::Json& json = *read;
    if (json.size() != 1 || !json.contains("url") || !json.at("url").is_string()) {
        return proto::fail(proto::ErrorCode::kInvalidValue,
                           R"(The body is {"url": "http://HOST:PORT"}.)", "url");
    }
    const std::string url = json.at("url").get<std::string>();
    const proto::Result<proto::Endpoint> endpoint = parse_replica_url(url);
    if (!endpoint) return tl::unexpected(endpoint.error());
    if (is_own_endpoint(*endpoint, services_.server.address(), services_.server.port())) {
        return proto::fail(proto::ErrorCode::kInvalidValue,
                           "'" + proto::printable(url) + "' is this router itself.", "url");
    }
    for (const auto& [index, replica] : services_.set.replicas()) {
        if (replica.endpoint.text() != endpoint->text()) continue;
        if (replica.is_leaving) {  // it is wanted again
            const int back = index;
            (void)services_.set.set_drain(back, false, Clock::now());
            spdlog::info("event=admin action=keep replica={}", back);
            return Added{.index = back, .was_known = true};
        }
        return Added{.index = index, .was_known = true};
    }
    if (services_.set.replicas().size() >= kReplicasMax) {
        return proto::fail(proto::ErrorCode::kInvalidValue, "There are 256 replicas already.",
                           "url");
    }
    const int index = services_.set.add_fixed(url, *endpoint, Clock::now()).index;
    spdlog::info("event=admin action=add replica={} url={}", index, proto::printable(url));
    services_.on_suspicion(index);  // look at it
    return Added{.index = index, .was_known = false};
}

proto::HttpResponse Admin::add_replica(const proto::HttpRequest& request, const std::string&) {
    const proto::Result<Added> added = add(request.body);
    if (!added) return proto::error_response(added.error());
    proto::Json json = replica_json(*services_.set.find(added->index), Clock::now());
    json["was_known"] = added->was_known;
    return proto::json_response(proto::json_text(json));
}

/// `rest` is "2/drain" or "2/undrain".
proto::Result<int> Admin::carry_out(const std::string& rest) {
    const std::size_t slash = rest.find('/');
    const std::string name = rest.substr(0, slash);
    const std::string action = slash == std::string::npos ? "" : rest.substr(slash + 1);
    const std::optional<int> index = whole_number(name);
    if (!index || services_.set.find(*index) == nullptr) return not_found(name);
    if (action != "drain" && action != "undrain") {
        return proto::fail(proto::ErrorCode::kUnknownUrl,
                           "The end of the path is drain or undrain.");
    }
    if (services_.set.set_drain(*index, action == "drain", Clock::now())) {
        spdlog::info("event=admin action={} replica={}", action, *index);
        const bool is_launchers = services_.set.find(*index)->is_announced;
        if (is_launchers) services_.on_drain(*index, action == "drain");
    }
    return *index;
}

proto::HttpResponse Admin::order(const proto::HttpRequest&, const std::string& rest) {
    return one_replica(carry_out(rest));
}

proto::HttpResponse Admin::one_replica(const proto::Result<int>& index) {
    if (!index) return proto::error_response(index.error());
    const Replica& replica = *services_.set.find(*index);
    return proto::json_response(proto::json_text(replica_json(replica, Clock::now())));
}

proto::Result<int> Admin::ask_removal(const std::string& name, bool now) {
    const std::optional<int> index = whole_number(name);
    if (!index) return not_found(name);
    const Replica* replica = services_.set.find(*index);
    if (replica == nullptr) {
        if (services_.set.was_there(*index)) return *index;  // done before
        return not_found(name);
    }
    if (replica->is_announced) {
        return tl::unexpected(proto::ApiError(
            proto::ErrorCode::kInvalidValue,
            "Replica " + name + " is the launcher's, which would bring it back: 'quadriga drain " +
                name + "' ends its process until 'quadriga undrain " + name +
                "'; POST /admin/replicas/" + name + "/drain only keeps new work from it.",
            "", kConflict));
    }
    if (services_.set.ask_removal(*index, Clock::now())) {
        spdlog::info("event=admin action=remove replica={} now={}", *index, now);
    }
    if (now) evict_from(*index);
    tick(Clock::now());
    return *index;
}

proto::HttpResponse Admin::remove_replica(const proto::HttpRequest& request,
                                          const std::string& name) {
    const bool now = proto::query_value(request.query, "now") == "1";
    const proto::Result<int> index = ask_removal(name, now);
    if (index && services_.set.find(*index) == nullptr) {
        const proto::Json gone{{"replica", *index}, {"removed", true}};
        return proto::json_response(proto::json_text(gone));
    }
    proto::HttpResponse response = one_replica(index);
    if (index) response.status = kAccepted;  // it still has work
    return response;
}

bool Admin::is_running_on(int index) const {
    return std::ranges::any_of(services_.generations, [index](const Generation* generation) {
        return generation->running_on() == index;
    });
}

void Admin::evict_from(int index) {
    int count = 0;
    for (Generation* generation : services_.generations) {
        if (generation->running_on() == index && generation->evict()) ++count;
    }
    if (count > 0) spdlog::warn("event=evicted replica={} requests={}", index, count);
}

void Admin::tick(Clock::time_point now) {
    std::vector<int> free;
    for (const auto& [index, replica] : services_.set.replicas()) {
        if (!replica.drain_asked_at) continue;
        const bool is_running = is_running_on(index);
        if (is_running && now - *replica.drain_asked_at >= services_.config.drain_deadline) {
            evict_from(index);
        }
        if (!is_running && replica.is_leaving) free.push_back(index);
    }
    for (const int index : free) {
        services_.set.remove(index, now);
        services_.on_removal(index);
        spdlog::info("event=admin action=removed replica={}", index);
    }
}

proto::HttpResponse Admin::show_queue(const proto::HttpRequest&, const std::string&) {
    const auto now = Clock::now();
    const WaitQueue& queue = services_.dispatcher.queue();
    proto::Json classes;
    for (int i = 0; i < kPriorityClassCount; ++i) {
        const auto priority_class = static_cast<PriorityClass>(i);
        classes[std::string(name_of(priority_class))] = queue.count_of(priority_class);
    }
    const auto callers = services_.keys.callers();
    proto::Json waiting = proto::Json::array();
    for (const WaitQueue::Entry* entry : queue.first(kQueueEntriesMax)) {
        proto::Json one{{"priority", entry->priority},
                        {"class", std::string(name_of(class_of(entry->priority)))},
                        {"in_front", entry->in_front},
                        {"waited_ms", milliseconds(now - entry->arrival)},
                        {"prompt_tokens", entry->prompt_tokens},
                        {"output_tokens", entry->output_tokens},
                        {"body_bytes", entry->body_bytes}};
        for (const auto& caller : callers) {
            if (caller->key == entry->key) one["key"] = caller->name;
        }
        waiting.push_back(std::move(one));
    }
    const proto::Json body{{"requests", queue.size()},
                           {"requests_max", queue.count_max()},
                           {"body_bytes", queue.body_bytes()},
                           {"prompt_tokens", queue.prompt_tokens()},
                           {"output_tokens", queue.output_tokens()},
                           {"draining", services_.dispatcher.is_draining()},
                           {"classes", classes},
                           {"waiting", waiting}};
    return proto::json_response(proto::json_text(body));
}

proto::HttpResponse Admin::show_decisions(const proto::HttpRequest& request, const std::string&) {
    const proto::Result<DecisionQuery> wanted = parse_decision_query(request.query);
    if (!wanted) return proto::error_response(wanted.error());
    std::string body = R"({"decisions":[)";
    for (const DecisionRecord* record :
         services_.decisions.find(wanted->request_id, wanted->limit)) {
        if (body.back() == '}') body += ',';
        body += decision_record_json(*record);
    }
    return proto::json_response(body + "]}");
}

proto::HttpResponse Admin::show_keys(const proto::HttpRequest&, const std::string&) {
    const auto now = Clock::now();
    const FairShare& shares = services_.dispatcher.memory().fair_share();
    const auto callers = services_.keys.callers();
    const std::vector<KeyEntry>& entries = services_.keys.entries();
    proto::Json list = proto::Json::array();
    for (std::size_t i = 0; i < callers.size(); ++i) {
        const KeyEntry& entry = entries.at(i);
        const double tokens = shares.attained(callers[i]->key, now) * entry.weight;
        proto::Json one{{"name", entry.name},
                        {"priority_min", entry.priority_min},
                        {"weight", entry.weight},
                        {"running", shares.running(callers[i]->key)},
                        {"attained_tokens", std::round(tokens)}};
        one["requests_max"] = entry.requests_max ? proto::Json(*entry.requests_max) : proto::Json();
        list.push_back(std::move(one));
    }
    const proto::Json body{{"keys", list}};
    return proto::json_response(proto::json_text(body));
}

}  // namespace router
