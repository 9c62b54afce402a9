#include "router/admin.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/json.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr mode_t kNotForOthers = 0117;  // leaves 0660
constexpr int kBacklog = 16;
constexpr std::size_t kBodyBytesMax = 16 * 1024;
constexpr std::size_t kConnectionsMax = 32;

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

[[noreturn]] void refuse_socket(const std::string& path, int error) {
    throw std::system_error(error, std::generic_category(), "cannot listen on " + path);
}

/// Whether `path` is free after what a process that has ended left there is gone. Nothing but a
/// dead socket is ever removed.
void make_room(const std::string& path, const sockaddr_un& address) {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return;
    if (!S_ISSOCK(found.st_mode)) refuse_socket(path, EEXIST);
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool is_alive =
        ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
        errno == EAGAIN;
    ::close(probe);
    if (is_alive) refuse_socket(path, EADDRINUSE);
    ::unlink(path.c_str());
}

int listen_on(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) refuse_socket(path, ENAMETOOLONG);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    make_room(path, address);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t old_mask = ::umask(kNotForOthers);
    const bool is_bound =
        ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const int error = errno;
    ::umask(old_mask);
    if (!is_bound || ::listen(fd, kBacklog) != 0) {
        ::close(fd);
        refuse_socket(path, is_bound ? errno : error);
    }
    return fd;
}

proto::Json replica_json(const Replica& replica, Clock::time_point now) {
    proto::Json json{{"replica", replica.index},
                     {"url", replica.url},
                     {"instance", replica.instance()},
                     {"announced", replica.is_announced},
                     {"state", std::string(name_of(replica.state))},
                     {"state_ms", milliseconds(now - replica.state_since)},
                     {"drain_asked", replica.drain_asked_at.has_value()},
                     {"breaker", std::string(name_of(replica.breaker.state()))},
                     {"in_flight", replica.account ? replica.account->sequences() : 0},
                     {"eta_s", replica.eta_s}};
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

Admin::Admin(asio::any_io_executor executor, Services& services, std::string path)
    : services_(services),
      path_(std::move(path)),
      server_(std::move(executor), server_options(),
              [this](proto::HttpExchange& exchange) { return routes_.serve(exchange); }) {
    add_route("GET", "/admin/replicas", &Admin::list_replicas);
    add_route("POST", "/admin/replicas", &Admin::add_replica);
    add_route("POST", "/admin/replicas/{order}", &Admin::order);
    add_route("GET", "/admin/queue", &Admin::show_queue);
    add_route("GET", "/admin/decisions", &Admin::show_decisions);
    add_route("GET", "/admin/keys", &Admin::show_keys);
}

void Admin::add_route(const std::string& method, const std::string& path, Answer answer) {
    routes_.add(method, path,
                [this, answer](proto::HttpExchange& exchange, const std::string& rest) {
                    return send(exchange, (this->*answer)(exchange.request(), rest));
                });
}

Admin::~Admin() {
    ::unlink(path_.c_str());
}

proto::HttpServerOptions Admin::server_options() {
    proto::HttpServerOptions options;
    options.listen_fd = listen_on(path_);
    options.body_bytes_max = kBodyBytesMax;
    options.connections_max = kConnectionsMax;
    options.admit = [this](proto::HttpRequestHead& head) {
        return routes_.refuse(head.method, head.path);
    };
    return options;
}

proto::HttpResponse Admin::list_replicas(const proto::HttpRequest&, const std::string&) {
    const auto now = Clock::now();
    proto::Json list = proto::Json::array();
    for (const auto& [index, replica] : services_.set.replicas())
        list.push_back(replica_json(replica, now));
    const proto::Json body{{"replicas", list}};
    return proto::json_response(proto::json_text(body));
}

proto::Result<int> Admin::add(const std::string& body) {
    const proto::Json json = proto::Json::parse(body, nullptr, false);
    const bool is_good =
        json.is_object() && json.size() == 1 && json.contains("url") && json.at("url").is_string();
    const std::string url = is_good ? json.at("url").get<std::string>() : "";
    const std::optional<proto::UrlParts> parts = proto::parse_http_url(url);
    if (!parts) {
        return proto::fail(proto::ErrorCode::kInvalidValue,
                           R"(The body is {"url": "http://HOST:PORT"}.)", "url");
    }
    for (const auto& [index, replica] : services_.set.replicas()) {
        if (replica.endpoint.text() == parts->endpoint.text()) return index;
    }
    if (services_.set.replicas().size() >= kReplicasMax) {
        return proto::fail(proto::ErrorCode::kInvalidValue, "There are 256 replicas already.",
                           "url");
    }
    const int index = services_.set.add_fixed(url, parts->endpoint, Clock::now()).index;
    spdlog::info("event=admin action=add replica={} url={}", index, proto::printable(url));
    services_.on_suspicion(index);  // look at it
    return index;
}

proto::HttpResponse Admin::add_replica(const proto::HttpRequest& request, const std::string&) {
    return one_replica(add(request.body));
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

void Admin::end_overdue_drains(Clock::time_point now) {
    for (const auto& [index, replica] : services_.set.replicas()) {
        if (!replica.drain_asked_at ||
            now - *replica.drain_asked_at < services_.config.drain_deadline) {
            continue;
        }
        for (Generation* generation : services_.generations) {
            if (generation->running_on() != index || generation->is_expired()) continue;
            spdlog::warn("event=drain_deadline replica={}", index);
            generation->expire();
        }
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
