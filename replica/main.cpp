// quadriga-replica: an OpenAI-compatible server around one engine on one device.
#include <cstdio>
#include <exception>

#include "replica/server/check_config.h"
#include "replica/server/options.h"
#include "replica/server/process.h"

int main(int argc, char** argv) {
    using namespace replica::server;
    CommandLine command = parse_command_line(argc, argv);
    if (!command.options) {
        std::fputs(command.text.c_str(), command.exit_code == 0 ? stdout : stderr);
        return command.exit_code;
    }
    try {
        if (command.options->is_check) return run_check(*command.options);
        return run_replica(std::move(*command.options));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "fatal: Q0100 internal: %s\n", error.what());
        return 1;
    }
}
