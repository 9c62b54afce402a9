#include "deploy/launcher/metrics.h"

#include <array>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace deploy {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;

constexpr std::array kPhases{"LOADING", "WARMING", "SELFTEST"};

}  // namespace

struct Metrics::Series {
    prometheus::Registry registry;
    Family<Counter>* restarts = nullptr;
    Family<Gauge>* progress_age = nullptr;
    Gauge* lock_held = nullptr;
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

void Metrics::count_restart(int replica, const std::string& reason) {
    series_->restarts->Add({{"replica", std::to_string(replica)}, {"reason", reason}}).Increment();
}

std::string Metrics::scrape(const Fleet& fleet, TimePoint now) {
    const auto seconds = [now](TimePoint since) {
        return std::chrono::duration<double>(now - since).count();
    };
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
    return prometheus::TextSerializer().Serialize(series_->registry.Collect());
}

}  // namespace deploy
