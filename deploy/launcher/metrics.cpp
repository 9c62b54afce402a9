#include "deploy/launcher/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "proto/process_families.h"

namespace deploy {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;

constexpr std::array kPhases{"LOADING", "WARMING", "SELFTEST"};
constexpr std::array kRouterRestarts{"serves", "refused", "failed"};  // in RouterRestart's order

}  // namespace

struct Metrics::Series {
    prometheus::Registry registry;
    Family<Counter>* restarts = nullptr;
    Family<Gauge>* progress_age = nullptr;
    Gauge* lock_held = nullptr;
    std::array<Counter*, kRouterRestarts.size()> router_restarts{};
    Gauge* routers_earlier = nullptr;
    struct PerReplica {
        std::array<Gauge*, proto::kReplicaStateCount> states{};
        std::array<Gauge*, kPhases.size()> load{};
        Gauge* progress_age = nullptr;  // exists only while it loads
    };
    std::vector<PerReplica> replicas;

    static constexpr std::size_t kAllStates = proto::kReplicaStateCount;
};

Metrics::Metrics(int replica_count, const std::string& version)
    : series_(std::make_unique<Series>()) {
    prometheus::Registry& registry = series_->registry;
    Family<Gauge>& state = BuildGauge()
                               .Name("quadriga_launcher_replica_state")
                               .Help("1 for the state the replica is in, 0 for the others")
                               .Register(registry);
    Family<Gauge>& load = BuildGauge()
                              .Name("quadriga_launcher_load_seconds")
                              .Help("Duration of each phase of the replica's last load")
                              .Register(registry);
    series_->restarts =
        &BuildCounter()
             .Name("quadriga_launcher_replica_restarts_total")
             .Help("Ends of a replica that were followed by a restart or quarantine")
             .Register(registry);
    series_->progress_age =
        &BuildGauge()
             .Name("quadriga_launcher_load_progress_age_seconds")
             .Help("Time since a loading replica made progress; absent unless one loads")
             .Register(registry);
    series_->lock_held = &BuildGauge()
                              .Name("quadriga_launcher_load_lock_held_seconds")
                              .Help("How long the load lock has been held, 0 when it is free")
                              .Register(registry)
                              .Add({});
    Family<Counter>& router_restarts =
        BuildCounter()
            .Name("quadriga_launcher_router_restart_orders_total")
            .Help("Orders to restart the router with new settings, by what came of them")
            .Register(registry);
    for (std::size_t i = 0; i < kRouterRestarts.size(); ++i)
        series_->router_restarts[i] = &router_restarts.Add({{"outcome", kRouterRestarts[i]}});
    series_->routers_earlier =
        &BuildGauge()
             .Name("quadriga_launcher_routers_earlier")
             .Help("Routers that have a successor and finish what they have accepted")
             .Register(registry)
             .Add({});
    BuildGauge()
        .Name("quadriga_launcher_build_info")
        .Help("Always 1; the version is a label")
        .Register(registry)
        .Add({{"version", version}})
        .Set(1);
    for (int i = 0; i < replica_count; ++i) {
        const std::string index = std::to_string(i);
        Series::PerReplica per_replica;
        for (std::size_t s = 0; s < Series::kAllStates; ++s) {
            const std::string name(name_of(static_cast<ReplicaState>(s)));
            per_replica.states[s] = &state.Add({{"replica", index}, {"state", name}});
        }
        for (std::size_t p = 0; p < kPhases.size(); ++p) {
            per_replica.load[p] = &load.Add({{"replica", index}, {"phase", kPhases[p]}});
        }
        series_->replicas.push_back(per_replica);
    }
}

Metrics::~Metrics() = default;

void Metrics::count_router_restart(RouterRestart outcome) {
    series_->router_restarts.at(static_cast<std::size_t>(outcome))->Increment();
}

void Metrics::count_restart(int replica, const std::string& reason) {
    series_->restarts->Add({{"replica", std::to_string(replica)}, {"reason", reason}}).Increment();
}

namespace {

/// Families of the cards, made anew at each scrape: a card that does not answer has no series.
void append_gpus(const FleetFacts& facts, std::vector<prometheus::MetricFamily>& families) {
    std::map<std::string, const ReplicaFacts*> cards;  // several replicas may share one
    for (const ReplicaFacts& replica : facts.replicas) {
        if (!replica.gpu_uuid.empty()) cards.emplace(replica.gpu_uuid, &replica);
    }
    if (cards.empty()) return;
    const auto add = [&](const char* name, const char* help, prometheus::MetricType type,
                         auto value_of) {
        prometheus::MetricFamily family;
        family.name = std::string("quadriga_launcher_") + name;
        family.help = help;
        family.type = type;
        for (const auto& [uuid, replica] : cards) {
            if (!replica->gpu) continue;
            const std::optional<double> value = value_of(*replica->gpu);
            if (!value) continue;
            prometheus::ClientMetric metric;
            metric.label.push_back({"gpu_uuid", uuid});
            metric.gauge.value = metric.counter.value = *value;
            family.metric.push_back(std::move(metric));
        }
        if (!family.metric.empty()) families.push_back(std::move(family));
    };
    using Reading = const GpuReading&;
    using Value = std::optional<double>;
    const auto kGauge = prometheus::MetricType::Gauge;
    add("gpu_power_watts", "Average power over about a second", kGauge,
        [](Reading gpu) { return gpu.watts; });
    add("gpu_power_cap_watts", "Enforced power limit", kGauge,
        [](Reading gpu) { return gpu.watts_cap; });
    add("gpu_temperature_celsius", "Temperature of the chip", kGauge,
        [](Reading gpu) { return gpu.celsius; });
    add("gpu_memory_used_bytes", "Device memory in use, by anybody", kGauge,
        [](Reading gpu) { return Value(static_cast<double>(gpu.memory_used_bytes)); });
    add("gpu_memory_total_bytes", "Device memory", kGauge,
        [](Reading gpu) { return Value(static_cast<double>(gpu.memory_total_bytes)); });
    add("gpu_energy_joules_total", "Energy since the driver was loaded",
        prometheus::MetricType::Counter, [](Reading gpu) { return gpu.joules_total; });
    add("gpu_persistence_enabled", "1 when the driver keeps the card initialised", kGauge,
        [](Reading gpu) {
            return gpu.is_persistent ? Value(*gpu.is_persistent ? 1 : 0) : std::nullopt;
        });
    prometheus::MetricFamily up;
    up.name = "quadriga_launcher_nvml_up";
    up.help = "1 when every card of ours answers";
    up.type = kGauge;
    up.metric.emplace_back().gauge.value =
        std::ranges::all_of(cards, [](const auto& card) { return card.second->gpu.has_value(); });
    families.push_back(std::move(up));
}

}  // namespace

std::string Metrics::scrape(const Fleet& fleet, const FleetFacts& facts, TimePoint now) {
    const auto seconds = [now](TimePoint since) {
        return std::chrono::duration<double>(now - since).count();
    };
    series_->routers_earlier->Set(static_cast<double>(fleet.retired_routers.size()));
    series_->lock_held->Set(fleet.lock.is_file_locked ? seconds(fleet.lock.locked_at) : 0);
    for (const Replica& replica : fleet.replicas) {
        Series::PerReplica& per_replica =
            series_->replicas.at(static_cast<std::size_t>(replica.index));
        for (std::size_t s = 0; s < Series::kAllStates; ++s) {
            per_replica.states[s]->Set(replica.state == static_cast<ReplicaState>(s) ? 1 : 0);
        }
        for (std::size_t p = 0; p < kPhases.size(); ++p) {
            per_replica.load[p]->Set(std::chrono::duration<double>(replica.phase_times[p]).count());
        }
        if (is_loading(replica.state)) {
            if (per_replica.progress_age == nullptr) {
                per_replica.progress_age =
                    &series_->progress_age->Add({{"replica", std::to_string(replica.index)}});
            }
            per_replica.progress_age->Set(seconds(replica.progress_at));
        } else if (per_replica.progress_age != nullptr) {
            series_->progress_age->Remove(per_replica.progress_age);
            per_replica.progress_age = nullptr;
        }
    }
    std::vector<prometheus::MetricFamily> families = series_->registry.Collect();
    append_gpus(facts, families);
    proto::append_process_families(families);
    return prometheus::TextSerializer().Serialize(families);
}

}  // namespace deploy
