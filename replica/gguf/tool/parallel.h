// Independent pieces of work on a few threads, ending at the first error.
#pragma once

#include <cstdint>
#include <functional>

#include "replica/gguf/error.h"

namespace replica {

/// Calls work(0) ... work(count - 1), each once, from `threads` threads; returns the first error,
/// or nothing. After an error no new piece begins. The pieces share nothing but what they lock.
GgufResult<void> run_pieces(std::uint64_t count, int threads,
                            const std::function<GgufResult<void>(std::uint64_t)>& work);

/// Number of threads for 0 = "as many as the machine has".
int thread_count(int wanted);

}  // namespace replica
