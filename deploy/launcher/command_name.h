// The command as the operator called it, so that hints can be copied: "build/cpu/bin/quadriga".
#pragma once

#include <cerrno>
#include <string>

namespace deploy {

inline std::string command_name() {
    const std::string called = program_invocation_name;
    return called == "quadriga" || called.ends_with("/quadriga") ? called : "quadriga";
}

}  // namespace deploy
