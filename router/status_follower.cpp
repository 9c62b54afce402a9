#include "router/status_follower.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "proto/json_reader.h"
#include "proto/sse.h"
#include "router/upstream.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kReconnectFirst{100};
constexpr std::chrono::milliseconds kReconnectMax{1'000};
constexpr std::chrono::milliseconds kPollInterval{1'000};
constexpr std::size_t kStatusBytesMax = std::size_t{64} << 10;
constexpr std::size_t kInfoBytesMax = std::size_t{1} << 20;
// /info that does not come is asked for again ever more rarely: a replica without it still serves.
constexpr std::chrono::milliseconds kInfoPauseFirst{50};
constexpr std::chrono::milliseconds kInfoPauseMax{30'000};

}  // namespace

/// One followed replica. `wake` ends a pause early; `cancel` ends a request.
struct StatusFollower::Watch {
    Watch(const asio::any_io_executor& executor, int index_of) : index(index_of), wake(executor) {}

    int index;
    asio::steady_timer wake;
    std::shared_ptr<proto::CancelHandle> cancel;
    std::string stream_instance;  // whose stream is open
    std::string info_instance;    // whose /info was asked for last
    Clock::time_point info_due;   // and not again before this
    std::chrono::milliseconds info_pause{0};
    bool is_forgotten = false;
};

StatusFollower::StatusFollower(asio::any_io_executor executor, const Config& config,
                               ReplicaSet& set, proto::HttpClient& client, Metrics& metrics)
    : executor_(std::move(executor)),
      config_(config),
      set_(set),
      client_(client),
      metrics_(metrics) {}

StatusFollower::~StatusFollower() {
    stop();
}

void StatusFollower::follow(int index) {
    if (is_stopping_ || set_.find(index) == nullptr) return;
    std::shared_ptr<Watch>& watch = watches_[index];
    if (watch == nullptr) {
        watch = std::make_shared<Watch>(executor_, index);
        asio::co_spawn(executor_, run(watch), [index](std::exception_ptr failure) {
            if (!failure) return;
            try {
                std::rethrow_exception(failure);
            } catch (const std::exception& error) {
                spdlog::error("event=follower_failed replica={} error=\"{}\"", index, error.what());
            }
        });
        return;
    }
    const Replica* replica = set_.find(index);
    const bool is_stream_stale =
        !watch->stream_instance.empty() &&
        (!is_wanted(index) || watch->stream_instance != replica->instance());
    if (is_stream_stale && watch->cancel) watch->cancel->cancel();
    watch->wake.cancel();
}

void StatusFollower::stop() {
    is_stopping_ = true;
    for (auto& [index, watch] : watches_) {
        if (watch->cancel) watch->cancel->cancel();
        watch->wake.cancel();
    }
}

void StatusFollower::forget(int index) {
    const auto at = watches_.find(index);
    if (at == watches_.end()) return;
    const std::shared_ptr<Watch> watch = std::move(at->second);
    watches_.erase(at);
    watch->is_forgotten = true;
    if (watch->cancel) watch->cancel->cancel();
    watch->wake.cancel();
}

bool StatusFollower::is_over(const Watch& watch) const {
    return is_stopping_ || watch.is_forgotten;
}

bool StatusFollower::is_wanted(int index) {
    const Replica* replica = set_.find(index);
    if (replica == nullptr) return false;
    // Before READY the launcher speaks for the replica; afterwards its own reports do.
    return !replica->is_announced || replica->announced == proto::ReplicaState::kReady ||
           replica->announced == proto::ReplicaState::kDraining;
}

asio::awaitable<void> StatusFollower::run(std::shared_ptr<Watch> watch) {
    std::chrono::milliseconds pause = kReconnectFirst;
    while (!is_over(*watch)) {
        if (is_wanted(watch->index)) {
            const bool had_report = co_await follow_stream(*watch);
            watch->stream_instance.clear();
            set_.on_stream_closed(watch->index);
            if (is_over(*watch)) break;
            if (had_report) pause = kReconnectFirst;
            // The stream ended or never began: one look tells a restart from a hiccup.
            if (is_wanted(watch->index)) {
                const bool is_heard = co_await poll(*watch);
                if (is_heard && !is_over(*watch)) co_await read_info(*watch);
            }
            watch->wake.expires_after(pause);
            pause = std::min(2 * pause, kReconnectMax);
        } else {
            pause = kReconnectFirst;
            watch->wake.expires_at(Clock::time_point::max());
        }
        if (is_over(*watch)) break;
        (void)co_await watch->wake.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

proto::HttpClientRequest StatusFollower::get(const Watch& watch, std::string target) const {
    proto::HttpClientRequest request;
    request.target = std::move(target);
    request.headers = internal_headers(config_);
    request.timeouts.connect = config_.connect;
    request.timeouts.head = config_.probe;
    request.timeouts.body_idle = config_.probe;
    request.cancel = watch.cancel;
    return request;
}

/// True when at least one report arrived. Returns when the stream has ended.
asio::awaitable<bool> StatusFollower::follow_stream(Watch& watch) {
    watch.cancel = std::make_shared<proto::CancelHandle>();
    const Replica* replica = set_.find(watch.index);
    const proto::Endpoint endpoint = replica->endpoint;
    auto response = co_await client_.request(endpoint, get(watch, "/internal/status/stream"));
    if (!response) {
        // Closed without a byte, the poll that follows decides: one broken connection is no death.
        if (response.error().kind == proto::ClientErrorKind::kRefused) {
            set_.on_gone(watch.index, Clock::now());
        }
        co_return false;
    }
    if (response->status != 200) {
        spdlog::warn("event=status_stream_refused replica={} status={}", watch.index,
                     response->status);
        co_return false;
    }
    set_.on_stream_opened(watch.index);
    proto::SseDecoder decoder(kStatusBytesMax);
    bool had_report = false;
    auto heard_at = Clock::now();
    auto timeout = config_.status_silence;
    while (!is_over(watch)) {
        const proto::ReadResult read = co_await response->read_some(timeout);
        if (is_over(watch)) co_return had_report;
        if (read.status == proto::ReadStatus::kTimeout) {
            // The stream is open and silent. A replica that still answers polls is alive; the
            // stream itself gets until silence_down, then it is opened anew.
            if (Clock::now() - heard_at >= config_.silence_down) co_return had_report;
            (void)co_await poll(watch);
            timeout = kPollInterval;
            continue;
        }
        if (read.status != proto::ReadStatus::kData) co_return had_report;
        heard_at = Clock::now();
        timeout = config_.status_silence;
        decoder.feed(read.data);
        while (const std::optional<proto::SseEvent> event = decoder.next()) {
            if (event->name == "done") {
                const auto done = proto::parse_done_event(event->data);
                if (done && on_done) on_done(watch.index, *done);
            } else if (event->name == "status" || event->name.empty()) {
                if (!take_report(watch, event->data)) co_return had_report;
                had_report = true;
            }
        }
        if (decoder.is_failed()) co_return had_report;
        co_await read_info(watch);
    }
    co_return had_report;
}

/// False: this is not the process we were told to talk to, or it does not speak our language.
bool StatusFollower::take_report(Watch& watch, const std::string& json) {
    const auto status = proto::parse_replica_status(json);
    if (!status) {
        spdlog::warn("event=bad_status replica={} error=\"{}\"", watch.index,
                     proto::printable(status.error().message));
        return false;
    }
    const ReplicaSet::Report report = set_.on_report(watch.index, *status, Clock::now());
    watch.stream_instance = status->instance;
    return report == ReplicaSet::Report::kAccepted || report == ReplicaSet::Report::kStale;
}

asio::awaitable<bool> StatusFollower::poll(Watch& watch) {
    const Replica* replica = set_.find(watch.index);
    const proto::Endpoint endpoint = replica->endpoint;
    metrics_.replica(watch.index).status_fallback->Increment();
    proto::HttpClientRequest request = get(watch, "/internal/status");
    request.cancel = nullptr;
    auto response = co_await client_.request(endpoint, std::move(request));
    if (!response) {
        if (is_gone(response.error().kind)) set_.on_gone(watch.index, Clock::now());
        co_return false;
    }
    if (response->status != 200) co_return false;
    const auto body = co_await response->read_all(kStatusBytesMax);
    if (!body) co_return false;
    const std::string stream_instance = watch.stream_instance;
    const bool is_good = take_report(watch, *body);
    watch.stream_instance = stream_instance;
    co_return is_good;
}

asio::awaitable<void> StatusFollower::read_info(Watch& watch) {
    const Replica* replica = set_.find(watch.index);
    if (replica == nullptr) co_return;
    const std::string instance = replica->instance();
    if (replica->state != ReplicaState::kReady) co_return;
    if (replica->info && replica->info->instance == instance) co_return;
    const bool is_new = std::exchange(watch.info_instance, instance) != instance;
    const auto now = Clock::now();
    if (!is_new && now < watch.info_due) co_return;
    watch.info_pause = is_new ? kInfoPauseFirst : std::min(2 * watch.info_pause, kInfoPauseMax);
    watch.info_due = now + watch.info_pause;
    const proto::Endpoint endpoint = replica->endpoint;
    std::string texts[2];
    const char* targets[2] = {"/info", "/v1/models"};
    for (std::size_t i = 0; i < 2; ++i) {
        proto::HttpClientRequest request = get(watch, targets[i]);
        request.cancel = nullptr;
        auto response = co_await client_.request(endpoint, std::move(request));
        const bool is_there = response && response->status == 200;
        if (!is_there) {
            set_.on_info_missing(watch.index, instance);
            co_return;
        }
        auto body = co_await response->read_all(kInfoBytesMax);
        if (!body) {
            set_.on_info_missing(watch.index, instance);
            co_return;
        }
        texts[i] = std::move(*body);
    }
    set_.on_info(watch.index, parse_info(instance, texts[0], texts[1]));
}

ReplicaInfo parse_info(std::string instance, const std::string& info_json,
                       const std::string& models_json) {
    ReplicaInfo info{.instance = std::move(instance)};
    const auto add_name = [&info](const proto::Json& value) {
        if (!value.is_string()) return;
        const auto& name = value.get_ref<const std::string&>();
        const auto end = info.model_names.end();
        if (std::find(info.model_names.begin(), end, name) == end) info.model_names.push_back(name);
    };
    if (const auto tree = proto::read_json_object(info_json)) {
        info.info_json = info_json;
        if (const auto model = tree->find("model"); model != tree->end() && model->is_object()) {
            if (model->contains("name")) add_name((*model)["name"]);
            if (model->contains("aliases") && (*model)["aliases"].is_array()) {
                for (const proto::Json& alias : (*model)["aliases"])
                    add_name(alias);
            }
        }
    }
    if (const auto tree = proto::read_json_object(models_json)) {
        if (const auto list = tree->find("data"); list != tree->end() && list->is_array()) {
            for (const proto::Json& entry : *list) {
                if (!entry.is_object()) continue;
                const auto id = entry.find("id");
                if (id == entry.end() || !id->is_string()) continue;
                add_name(*id);
                info.model_entries.emplace_back(id->get<std::string>(), proto::json_text(entry));
            }
        }
    }
    return info;
}

}  // namespace router
