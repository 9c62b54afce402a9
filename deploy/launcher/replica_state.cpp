#include "deploy/launcher/replica_state.h"

#include <cstdint>

namespace deploy {
namespace {

using enum ReplicaState;

constexpr std::uint32_t set_of() {
    return 0;
}
template <class... Rest>
constexpr std::uint32_t set_of(ReplicaState first, Rest... rest) {
    return (1U << static_cast<unsigned>(first)) | set_of(rest...);
}

/// Where a replica may go next. Every state with a process may fail; the kill that follows a
/// failure passes through STOPPING, so that the router hears of it before the process is reaped.
constexpr std::uint32_t next_of(ReplicaState from) {
    switch (from) {
        case kAbsent:
            return set_of(kWaitVram);
        case kWaitVram:
            return set_of(kWaitLock, kBackoff, kAbsent);
        case kWaitLock:
            return set_of(kLoading, kWaitVram, kBackoff, kQuarantined, kAbsent);
        case kLoading:
            return set_of(kWarming, kStopping, kBackoff, kQuarantined);
        case kWarming:
            return set_of(kSelftest, kStopping, kBackoff, kQuarantined);
        case kSelftest:
            return set_of(kReady, kStopping, kBackoff, kQuarantined);
        case kReady:
            return set_of(kDraining, kStopping, kBackoff, kQuarantined);
        case kDraining:
            return set_of(kReady, kStopping, kBackoff, kQuarantined);
        case kStopping:
            return set_of(kAbsent, kBackoff, kQuarantined, kUnkillable);
        case kBackoff:
            return set_of(kWaitVram, kAbsent);
        case kQuarantined:
            return set_of(kWaitVram, kAbsent);
        case kUnkillable:
            return set_of(kAbsent, kBackoff, kQuarantined);
    }
    return 0;
}

}  // namespace

bool is_allowed(ReplicaState from, ReplicaState to) {
    return (next_of(from) & set_of(to)) != 0;
}

bool is_loading(ReplicaState state) {
    return state == kLoading || state == kWarming || state == kSelftest;
}

bool has_process(ReplicaState state) {
    return is_loading(state) || state == kReady || state == kDraining || state == kStopping ||
           state == kUnkillable;
}

}  // namespace deploy
