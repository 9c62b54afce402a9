#include "replica/server/check_config.h"

#include <cstdio>

#include "replica/server/log.h"
#include "replica/server/model_loader.h"

namespace replica::server {

int run_check(const ServerOptions& options) {
    if (options.model_path.empty()) return static_cast<int>(ExitCode::kOk);
    const std::optional<StartFailure> failure = check_model(options);
    if (!failure) return static_cast<int>(ExitCode::kOk);
    std::string text = failure->fatal.id + " " + failure->fatal.what + "\n";
    if (!failure->fatal.why.empty()) text += "  why   " + failure->fatal.why + "\n";
    if (!failure->fatal.fix.empty()) text += "  fix   " + failure->fatal.fix + "\n";
    std::fputs(text.c_str(), stderr);
    return static_cast<int>(failure->exit_code);
}

}  // namespace replica::server
