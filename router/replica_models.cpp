// Which replica serves which model: the part of ReplicaSet that reads names.
//
// A replica's own /info has its names, read once per instance. Until then its reports name the
// served model, and what it was called before its restart counts where that is still the same.
#include <algorithm>

#include "router/replica_set.h"

namespace router {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

/// Whether a process is there, or on its way, that has not told its models yet.
bool is_coming(const Replica& replica) {
    if (replica.state == ReplicaState::kDown) return false;
    if (!replica.is_announced) return true;
    switch (replica.announced) {
        case proto::ReplicaState::kLoading:
        case proto::ReplicaState::kWarming:
        case proto::ReplicaState::kSelftest:
        case proto::ReplicaState::kReady:
            return true;
        default:
            return false;
    }
}

}  // namespace

std::vector<std::string> ReplicaSet::model_names() const {
    std::vector<std::string> names;
    const auto add = [&names](const std::string& name) {
        if (!name.empty() && !contains(names, name)) names.push_back(name);
    };
    for (const auto& [index, replica] : replicas_) {
        if (!replica.info) continue;
        for (const std::string& name : replica.info->model_names)
            add(name);
    }
    return names;
}

const std::string& ServedNames::of(const std::string& name) const {
    if (name.empty()) return first;
    const auto at = by_name.find(name);
    return at == by_name.end() ? name : at->second;
}

void ReplicaSet::on_models_changed() {
    ++models_version_;
    const auto names = std::make_shared<ServedNames>();
    for (const auto& [index, replica] : replicas_) {
        if (!replica.info || replica.info->model_names.empty()) continue;
        const std::string& served = replica.info->model_names.front();
        if (names->first.empty()) names->first = served;
        for (const std::string& name : replica.info->model_names)
            names->by_name.emplace(name, served);  // the first replica's word counts
    }
    served_names_ = names;
}

bool ReplicaSet::is_model_known(const std::string& name) const {
    if (name.empty()) return true;
    bool is_anything_known = false;
    for (const auto& [index, replica] : replicas_) {
        if (serving(replica, name) != Serving::kNo) return true;
        is_anything_known =
            is_anything_known || (replica.info && !replica.info->model_names.empty());
    }
    return !is_anything_known;
}

Serving ReplicaSet::serving(const Replica& replica, const std::string& name) const {
    if (name.empty()) return Serving::kYes;
    const bool is_in_info = replica.info && contains(replica.info->model_names, name);
    if (replica.info && replica.info->instance == replica.instance()) {
        const bool names_none = replica.info->model_names.empty();
        return is_in_info || names_none ? Serving::kYes : Serving::kNo;
    }
    if (replica.status) {
        const std::string& served = replica.status->model;
        if (!served.empty() && served == name) return Serving::kYes;
        // The same model as before its restart, so its other names are those it had.
        const bool is_same = is_in_info && replica.info->model_names.front() == served;
        if (is_same || replica.is_info_missing) return Serving::kYes;
    } else if (!is_coming(replica)) {
        return is_in_info ? Serving::kYes : Serving::kNo;  // as far as it is ever back
    }
    return Serving::kUnknown;
}

std::vector<InstanceRef> ReplicaSet::not_serving(const std::string& name) const {
    std::vector<InstanceRef> others;
    if (name.empty()) return others;
    for (const auto& [index, replica] : replicas_) {
        if (serving(replica, name) == Serving::kYes) continue;
        others.push_back({index, replica.life});
    }
    return others;
}

std::vector<std::string> ReplicaSet::model_entries() const {
    std::vector<std::string> ids;
    std::vector<std::string> entries;
    for (const auto& [index, replica] : replicas_) {
        if (!replica.info) continue;
        for (const auto& [id, entry] : replica.info->model_entries) {
            if (contains(ids, id)) continue;
            ids.push_back(id);
            entries.push_back(entry);
        }
    }
    return entries;
}

std::optional<std::string> ReplicaSet::model_entry(const std::string& id) const {
    for (const auto& [index, replica] : replicas_) {
        if (!replica.info) continue;
        for (const auto& [entry_id, entry] : replica.info->model_entries) {
            if (entry_id == id) return entry;
        }
    }
    return std::nullopt;
}

proto::ApiError unknown_model(const ReplicaSet& set, const std::string& name) {
    std::string names;
    for (const std::string& one : set.model_names())
        names += (names.empty() ? "" : ", ") + one;
    return {proto::ErrorCode::kModelNotFound,
            "The model '" + proto::printable(name) + "' does not exist. Available: " + names + ".",
            "model"};
}

}  // namespace router
