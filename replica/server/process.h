// The life of the process: sockets first, then the model, then requests, then an orderly end.
//
//   I/O thread      accepts from the first instant; death pipe, signals, all requests
//   loading thread  model ─▶ warm-up ─▶ self-test, then it ends
//   engine thread   from the end of loading on
//   workers         parse, render, tokenise
#pragma once

#include "replica/server/options.h"

namespace replica::server {

/// Returns the exit code. Failures that no orderly end can follow exit from inside.
int run_replica(ServerOptions options);

}  // namespace replica::server
