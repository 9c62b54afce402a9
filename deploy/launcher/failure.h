// Failures: what went wrong, in the words the operator reads, and what the launcher does about it.
// Each kind has an id, an exit code and an answer (retry or not); the table is in failure.cpp.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace deploy {

enum class FailureClass {
    kInternal,      // exit 1, and everything without a better class
    kConfig,        // exit 2
    kModelFile,     // exit 4
    kDeviceMemory,  // exit 5
    kPort,          // exit 6
    kKernel,        // exit 7
    kSelftest,      // exit 8
    kPlacement,     // exit 9
    kDriver,        // exit 10
    kHostMemory,    // the kernel's or the cgroup's OOM counter rose
    kSignal,        // ended by a signal
    kProtocol,      // said something on the ready pipe that it must not say
    kStalled,       // no progress while loading
    kWedged,        // running, but no step; or silent
    kBusy,          // exit 75: somebody else holds the runtime folder
    kUnkillable,    // exit 11: alive after KILL
};

struct Failure {
    FailureClass kind = FailureClass::kInternal;
    std::string what;
    std::string why;
    std::string fix;
};

/// The word in logs and in the metric label `reason`, for example "model_file".
std::string_view name_of(FailureClass kind);
/// "Q0412" and the like: stable, to be looked up in README.md.
std::string_view id_of(FailureClass kind);
/// The exit code of `quadriga` when this failure ends it.
int exit_code_of(FailureClass kind);
/// Whether a retry cannot cure it: QUARANTINED at once.
bool is_permanent(FailureClass kind);

/// "Q0412 what\n  why   ...\n  fix   ..." without a newline at the end.
std::string to_text(const Failure& failure);

/// Cannot start: caught by `main` only, which prints it and exits with its code.
class StartError : public std::runtime_error {
public:
    explicit StartError(Failure failure)
        : std::runtime_error(failure.what), failure_(std::move(failure)) {}
    const Failure& failure() const noexcept { return failure_; }

private:
    Failure failure_;
};

/// What is known about an ended process.
struct ExitEvidence {
    int wait_status = 0;          // as from waitpid
    bool is_host_memory = false;  // the OOM counter rose while it lived
    std::string last_line;        // the last line of its stderr, if any
};

/// Names the cause from the evidence.
Failure classify(const ExitEvidence& evidence);
/// The class that `name`, from a child's `fatal` event, stands for; kInternal when it is unknown.
FailureClass failure_class_of(std::string_view name);

}  // namespace deploy
