// --check-config: what a start would refuse, found without one. No device is opened and no weight
// is read, so that it takes a moment even for a large model.
#pragma once

#include "replica/server/options.h"

namespace replica::server {

/// Says on stdout what a good model takes beside its weights, where its file tells:
///   {"memory":{"context":32768,"sequences":8,"kv_tokens_least":32768,"kv_bytes_least":…,
///              "kv_tokens_most":262144,"kv_bytes_most":…,"state_bytes":…}}
/// Says on stderr what is wrong, why and what to do, as the launcher reads it; returns the exit
/// code of the start. A model "" is none: the options alone are checked.
int run_check(const ServerOptions& options);

}  // namespace replica::server
