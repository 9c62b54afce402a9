// The states of one replica, one word each, the same in the CLI, the metrics, the log and the
// router's announcements.
//
//   ABSENT -> WAIT_VRAM -> WAIT_LOCK -> LOADING -> WARMING -> SELFTEST -> READY -> DRAINING ->
//   STOPPING
//      ^         |  ^---------'             any failure or death |                              |
//      |         |            BACKOFF <-------------------------'- crash loop -> QUARANTINED    |
//      '---------'------------------------------------------------------------------------------'
//                                                  KILL had no effect -> UNKILLABLE
#pragma once

#include "proto/status.h"

namespace deploy {

using proto::ReplicaState;

/// Whether a replica may go from `from` to `to` in one step. Anything else is a bug of ours.
bool is_allowed(ReplicaState from, ReplicaState to);

/// LOADING, WARMING or SELFTEST: the time between spawn and READY, in which the load lock is held.
bool is_loading(ReplicaState state);

/// States in which a process of the replica exists.
bool has_process(ReplicaState state);

/// "READY"
inline std::string_view name_of(ReplicaState state) {
    return proto::replica_state_name(state);
}

}  // namespace deploy
