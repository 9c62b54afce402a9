#include "router/metrics_endpoint.h"

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace router {
namespace {

namespace asio = boost::asio;

constexpr std::string_view kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::size_t kReplicaTextMax = std::size_t{1} << 20;

/// Counters that are kept elsewhere as plain numbers, which only rise.
void follow(prometheus::Counter& counter, std::uint64_t total) {
    counter.Increment(static_cast<double>(total) - counter.Value());
}

void refresh_server(Metrics& metrics, const proto::HttpServerStats& stats) {
    metrics.connections->Set(static_cast<double>(stats.connections));
    const std::array<std::uint64_t, kConnectionRejectCount> rejected = {
        stats.rejected_count_total, stats.rejected_address_total, stats.rejected_descriptors_total,
        stats.tls_failures_total};
    for (std::size_t i = 0; i < rejected.size(); ++i)
        follow(*metrics.connections_rejected.at(i), rejected.at(i));
    metrics.unsent_bytes->Set(static_cast<double>(stats.unsent_bytes));
    for (std::size_t i = 0; i < stats.gate_rejected_total.size(); ++i)
        follow(*metrics.gate_rejected.at(i), stats.gate_rejected_total.at(i));
    follow(*metrics.slow_client_aborts, stats.write_stalls_total);
}

/// Numbers that are read from state at a scrape instead of being kept up to date.
void refresh_gauges(Services& services) {
    const auto now = Clock::now();
    for (const auto& [index, replica] : services.set.replicas()) {
        ReplicaSeries& series = services.metrics.replica(index);
        for (std::size_t i = 0; i < series.state.size(); ++i) {
            series.state.at(i)->Set(replica.state == static_cast<ReplicaState>(i) ? 1 : 0);
        }
        const bool is_up = replica.state == ReplicaState::kReady ||
                           replica.state == ReplicaState::kSuspect ||
                           replica.state == ReplicaState::kDraining;
        series.up->Set(is_up ? 1 : 0);
        series.breaker_state->Set(static_cast<double>(replica.breaker.state()));
        for (std::size_t i = 0; i < series.breaker_transitions.size(); ++i) {
            follow(*series.breaker_transitions.at(i),
                   replica.breaker.transitions(static_cast<BreakerState>(i)));
        }
        series.upstream_inflight->Set(replica.account ? replica.account->sequences() : 0);
        const proto::HttpClientStats upstream = services.client.stats(replica.endpoint);
        series.upstream_connections.at(0)->Set(static_cast<double>(upstream.connections_busy));
        series.upstream_connections.at(1)->Set(static_cast<double>(upstream.connections_idle));
        series.status_age_seconds->Set(
            replica.status ? std::chrono::duration<double>(now - replica.status_at).count() : -1);
    }
    refresh_server(services.metrics, services.server.stats());
    services.metrics.passes_inflight->Set(static_cast<double>(services.dispatcher.passes()));
    services.metrics.body_bytes->Set(static_cast<double>(services.dispatcher.bodies().used()));
}

/// Texts of all replicas that answered in time. Shared with the fetches, which may outlive the
/// caller by one turn of the loop.
struct Gathering {
    explicit Gathering(const asio::any_io_executor& executor) : done(executor) {}

    std::map<int, std::string> texts;
    std::vector<int> asked;
    std::list<std::shared_ptr<proto::CancelHandle>> cancels;
    std::size_t pending = 0;
    asio::steady_timer done;  // the limit; cancelled when nothing is pending
};

asio::awaitable<void> fetch(Services& services, std::shared_ptr<Gathering> gathering, int index,
                            proto::Endpoint endpoint, std::shared_ptr<proto::CancelHandle> cancel) {
    proto::HttpClientRequest request;
    request.target = "/metrics";
    request.headers = internal_headers(services.config);
    request.timeouts.connect = services.config.metrics_fetch;
    request.timeouts.head = services.config.metrics_fetch;
    request.timeouts.body_idle = services.config.metrics_fetch;
    request.cancel = std::move(cancel);
    auto response = co_await services.client.request(std::move(endpoint), std::move(request));
    if (response && response->status == 200) {
        auto text = co_await response->read_all(kReplicaTextMax);
        if (text) gathering->texts[index] = with_replica_label(*text, std::to_string(index));
    }
    if (--gathering->pending == 0) gathering->done.cancel();
}

/// Name of the family a `# HELP` or `# TYPE` line speaks of; empty for any other line.
std::string_view family_of_comment(std::string_view line) {
    const std::string_view keyword = line.substr(0, 7);
    if (keyword != "# HELP " && keyword != "# TYPE ") return {};
    const std::string_view rest = line.substr(7);
    return rest.substr(0, rest.find(' '));
}

/// Calls `take` with each line, without its line feed.
template <class Take>
void for_each_line(std::string_view text, Take take) {
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        take(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
}

}  // namespace

asio::awaitable<void> serve_own_metrics(Services& services, proto::HttpExchange& exchange) {
    refresh_gauges(services);
    (void)co_await exchange.send(proto::text_response(services.metrics.text(), 200, kTextFormat));
}

asio::awaitable<void> serve_all_metrics(Services& services, proto::HttpExchange& exchange) {
    const auto executor = co_await asio::this_coro::executor;
    // Each asks every replica and holds what they say.
    const std::optional<KeyBudget::Share> place = services.scrapes.take(1);
    if (!place) {
        proto::HttpResponse refusal =
            proto::error_response({proto::ErrorCode::kQueueFull,
                                   "Too many scrapes of all replicas run at once.",
                                   {},
                                   {},
                                   1});
        (void)co_await exchange.send(std::move(refusal));
        co_return;
    }
    const auto gathering = std::make_shared<Gathering>(executor);
    for (const auto& [index, replica] : services.set.replicas()) {
        if (replica.state == ReplicaState::kDown) continue;
        const auto& cancel =
            gathering->cancels.emplace_back(std::make_shared<proto::CancelHandle>());
        ++gathering->pending;
        gathering->asked.push_back(index);
        asio::co_spawn(executor, fetch(services, gathering, index, replica.endpoint, cancel),
                       [](std::exception_ptr) {});  // a text that fails is absent
    }
    if (gathering->pending > 0) {
        gathering->done.expires_after(services.config.metrics_fetch);
        (void)co_await gathering->done.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    for (const auto& cancel : gathering->cancels)
        cancel->cancel();
    refresh_gauges(services);
    for (const int index : gathering->asked) {
        // What is absent below is not up, whatever its last report said.
        const bool is_known = services.set.find(index) != nullptr;
        if (is_known && !gathering->texts.contains(index))
            services.metrics.replica(index).up->Set(0);
    }
    std::vector<std::string> texts = {services.metrics.text()};
    for (auto& [index, text] : gathering->texts)
        texts.push_back(std::move(text));
    gathering->texts.clear();
    (void)co_await exchange.send(proto::text_response(merge_expositions(texts), 200, kTextFormat));
}

std::string with_replica_label(std::string_view text, std::string_view label) {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for_each_line(text, [&](std::string_view line) {
        const std::size_t name_end = line.find_first_of("{ ");
        const bool is_sample =
            !line.empty() && line[0] != '#' && name_end != std::string_view::npos;
        if (!is_sample) {
            out += line;
        } else if (line[name_end] == ' ') {
            out += line.substr(0, name_end);
            out += "{replica=\"";
            out += label;
            out += "\"}";
            out += line.substr(name_end);
        } else {
            const std::string_view labels = line.substr(name_end + 1);
            // Standalone replicas may all call themselves 0; here the router's number counts.
            constexpr std::string_view kLabel = "replica=\"";
            std::size_t value =
                labels.substr(0, kLabel.size()) == kLabel ? 0 : labels.find(",replica=\"");
            out += line.substr(0, name_end + 1);
            if (value == std::string_view::npos) {
                out += kLabel;
                out += label;
                out += labels.substr(0, 1) == "}" ? "\"" : "\",";
                out += labels;
            } else {
                value += kLabel.size() + (value == 0 ? 0 : 1);
                out += labels.substr(0, value);
                out += label;
                out += labels.substr(std::min(labels.find('"', value), labels.size()));
            }
        }
        out += '\n';
    });
    return out;
}

std::string merge_expositions(const std::vector<std::string>& texts) {
    struct Family {
        std::string comments;
        std::string samples;
        std::size_t first_text = 0;
    };
    std::vector<std::string> order;
    std::map<std::string, Family, std::less<>> families;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        Family* family = nullptr;
        for_each_line(texts[i], [&](std::string_view line) {
            if (line.empty()) return;
            if (line[0] == '#') {
                const std::string_view name = family_of_comment(line);
                if (name.empty()) return;  // a free comment belongs to nothing
                const auto [at, is_new] = families.try_emplace(std::string(name));
                if (is_new) {
                    order.push_back(at->first);
                    at->second.first_text = i;
                }
                family = &at->second;
                if (family->first_text == i) family->comments.append(line).append("\n");
                return;
            }
            if (family == nullptr) {  // samples before any comment: an untyped family of no name
                const auto [at, is_new] = families.try_emplace("");
                if (is_new) order.insert(order.begin(), "");
                family = &at->second;
            }
            family->samples.append(line).append("\n");
        });
    }
    std::string out;
    for (const std::string& name : order) {
        const Family& family = families.find(name)->second;
        out += family.comments;
        out += family.samples;
    }
    return out;
}

}  // namespace router
