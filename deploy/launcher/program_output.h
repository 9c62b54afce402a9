// Asks a program one thing: runs it to its end and reads what it says.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace deploy {

struct ProgramOutput {
    int exit_code = 0;
    std::string text;  // both of its outputs, at most 64 KiB
};

/// None when it cannot be started, ends by a signal, says nothing for ten seconds, or says more.
std::optional<ProgramOutput> output_of(const std::string& program,
                                       const std::vector<std::string>& argv);

}  // namespace deploy
