#include "deploy/launcher/failure.h"

#include <array>
#include <cassert>
#include <cstring>

#include <sys/wait.h>

namespace deploy {
namespace {

/// Where a log line has its level: behind the time.
constexpr std::size_t kLevelColumnMax = 28;

struct Row {
    FailureClass kind;
    std::string_view name;
    std::string_view id;
    int exit_code;
    bool is_permanent;
};

using enum FailureClass;
constexpr std::array kTable{
    Row{kInternal, "internal", "Q0101", 1, false},
    Row{kConfig, "config", "Q0201", 2, true},
    Row{kModelFile, "model_file", "Q0412", 4, true},
    Row{kDeviceMemory, "device_memory", "Q0501", 5, false},
    Row{kPort, "port", "Q0601", 6, false},
    Row{kKernel, "kernel", "Q0701", 7, true},
    Row{kSelftest, "selftest", "Q0801", 8, false},
    Row{kPlacement, "placement", "Q0901", 9, true},
    Row{kDriver, "driver", "Q1001", 10, false},
    Row{kHostMemory, "host_memory", "Q0502", 5, false},
    Row{kSignal, "signal", "Q0102", 1, false},
    Row{kProtocol, "protocol", "Q0103", 1, false},
    Row{kStalled, "stalled", "Q0104", 1, false},
    Row{kWedged, "wedged", "Q0105", 1, false},
    Row{kBusy, "busy", "Q7501", 75, false},
    Row{kUnkillable, "unkillable", "Q1101", 11, false},
};

const Row& row_of(FailureClass kind) {
    for (const Row& row : kTable) {
        if (row.kind == kind) return row;
    }
    assert(false && "a failure class without a row");
    return kTable.front();
}

FailureClass class_of_exit_code(int code) {
    for (const Row& row : kTable) {
        // Only codes that a child may end with; 11 and 75 are the launcher's own.
        if (row.exit_code == code && code != 1 && code != 11 && code != 75) return row.kind;
    }
    return kInternal;
}

std::string fix_of(FailureClass kind) {
    switch (kind) {
        case kConfig:
            return "correct the option that its last lines name; those of replica_args and "
                   "router_args are passed on as they are";
        case kModelFile:
            return "check the file with: quadriga-gguf verify FILE";
        case kDeviceMemory:
        case kHostMemory:
            return "free memory, or lower --context or --sequences";
        case kKernel:
            return "build the kernel, or take it out of require_kernels";
        case kPlacement:
            return "check the device list of the configuration";
        case kSignal:
            return "if you sent it, nothing is to be done; else 'dmesg -T' names who or what ended "
                   "it";
        default:
            return "look for the cause in the last lines of that process; it is tried again";
    }
}

}  // namespace

std::string_view name_of(FailureClass kind) {
    return row_of(kind).name;
}
std::string_view id_of(FailureClass kind) {
    return row_of(kind).id;
}
int exit_code_of(FailureClass kind) {
    return row_of(kind).exit_code;
}
bool is_permanent(FailureClass kind) {
    return row_of(kind).is_permanent;
}

FailureClass failure_class_of(std::string_view name) {
    for (const Row& row : kTable) {
        if (row.name == name) return row.kind;
    }
    return kInternal;
}

std::string to_text(const Failure& failure) {
    std::string text = std::string(id_of(failure.kind)) + " " + failure.what;
    if (!failure.why.empty()) text += "\n  why   " + failure.why;
    if (!failure.fix.empty()) text += "\n  fix   " + failure.fix;
    return text;
}

namespace {

/// Nobody asks for these from within: whoever sent them is outside, and no line of the process
/// knows of it.
bool is_sent_from_outside(int signal) {
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
           signal == SIGQUIT;
}

/// A log line of the running process ("2026-… info replica …") is no last word.
std::string last_words(const ExitEvidence& evidence) {
    for (const std::string_view routine : {" info ", " debug "}) {
        const std::size_t at = evidence.last_line.find(routine);
        if (at != std::string::npos && at <= kLevelColumnMax) return "";
    }
    return evidence.last_line;
}

}  // namespace

Failure classify(const ExitEvidence& evidence) {
    Failure failure;
    if (WIFSIGNALED(evidence.wait_status)) {
        const int signal = WTERMSIG(evidence.wait_status);
        failure.kind = evidence.is_host_memory && signal == SIGKILL ? kHostMemory : kSignal;
        failure.what = "it was ended by signal " + std::to_string(signal) + " (" +
                       std::string(strsignal(signal)) + ")";
        failure.why = failure.kind == kHostMemory ? "the host ran out of memory"
                      : is_sent_from_outside(signal)
                          ? "another process sent it, or the kernel, and not for lack of memory as "
                            "far as can be seen"
                          : last_words(evidence);
    } else {
        const int code = WIFEXITED(evidence.wait_status) ? WEXITSTATUS(evidence.wait_status) : 1;
        failure.kind = class_of_exit_code(code);
        failure.what = "it ended by itself with exit " + std::to_string(code) + ", " +
                       std::string(name_of(failure.kind));
        failure.why = last_words(evidence);
    }
    failure.fix = fix_of(failure.kind);
    return failure;
}

}  // namespace deploy
