// Why the process ends: the documented exit codes and the fatal event that goes with each.
#pragma once

#include <string>

#include "proto/ready_pipe.h"

namespace replica::server {

enum class ExitCode : int {
    kOk = 0,
    kInternal = 1,
    kUsage = 2,
    kModelFile = 4,
    kDeviceMemory = 5,
    kPortInUse = 6,
    kKernelRequired = 7,
    kSelftest = 8,
    kDriver = 10,
};

/// A start that failed: what to tell the launcher and the person, and how to exit.
struct StartFailure {
    ExitCode exit_code = ExitCode::kInternal;
    proto::FatalEvent fatal;

    /// "Q0400 model_file: WHAT: WHY; FIX"
    std::string text() const {
        std::string line = fatal.id + " " + fatal.error_class + ": " + fatal.what;
        if (!fatal.why.empty()) line += ": " + fatal.why;
        if (!fatal.fix.empty()) line += "; " + fatal.fix;
        return line;
    }
};

}  // namespace replica::server
