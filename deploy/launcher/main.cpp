// quadriga: the operator's command. Reads the command line, catches what cannot start.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "deploy/launcher/command_name.h"
#include "deploy/launcher/commands.h"

namespace deploy {
namespace {

constexpr std::array<std::string_view, 10> kCommands{"up",     "down",        "status", "why",
                                                     "retry",  "restart",     "drain",  "undrain",
                                                     "reload", "check-config"};

/// A misspelt subcommand is answered with the nearest one.
void check_command_word(int argc, const char* const* argv) {
    if (argc < 2 || argv[1][0] == '-') return;
    const std::string_view word = argv[1];
    for (const std::string_view command : kCommands) {
        if (word == command) return;
    }
    const std::string near = did_you_mean(word, kCommands);
    throw StartError(
        {.kind = FailureClass::kConfig,
         .what = "unknown command '" + std::string(word.substr(0, 64)) + "'",
         .why = near.empty() ? "no command has a name like it" : "did you mean '" + near + "'?",
         .fix = "all commands: " + command_name() + " --help"});
}

/// The library's words, "N is required" and the like, with a way on.
[[noreturn]] void refuse_usage(const CLI::App& app, const CLI::ParseError& error) {
    const std::vector<const CLI::App*> given = app.get_subcommands([](auto*) { return true; });
    const CLI::App* command = nullptr;
    for (const CLI::App* one : given) {
        if (one->parsed()) command = one;
    }
    const std::string name = command == nullptr ? "" : " " + command->get_name();
    std::string what = error.what();
    std::string why;
    const std::string unexpected =
        error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)
            ? what.substr(std::min(what.size(), what.find(": ") + 2))
            : "";
    const std::string word = unexpected.substr(0, unexpected.find_first_of(" ="));
    if (word.starts_with("--") && command != nullptr) {
        std::vector<std::string> flags;
        for (const CLI::Option* option : command->get_options()) {
            for (const std::string& flag : option->get_lnames())
                flags.push_back(flag);
        }
        const std::vector<std::string_view> names(flags.begin(), flags.end());
        const std::string near = did_you_mean(std::string_view(word).substr(2), names);
        why = near.empty() ? "no flag has a name like it" : "did you mean '--" + near + "'?";
        what = "unknown flag '" + word.substr(0, 64) + "'";
    } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
        what = command == nullptr ? "no command is given"
                                  : "'" + command->get_name() + "' needs more: " + error.what();
        why = command == nullptr ? "the first word says what to do, 'up MODEL' for example"
                                 : "the command acts on it; 'quadriga status' shows the numbers";
    }
    throw StartError({.kind = FailureClass::kConfig,
                      .what = std::move(what),
                      .why = std::move(why),
                      .fix = "all that it takes: " + command_name() + name + " --help"});
}

struct CommandLine {
    ConfigSources sources = sources_of_environment();
    bool is_json = false;
    int replica = -1;
    bool is_router = false;  // instead of a replica
    std::function<int(const LoadedConfig&)> run;
};

void add_flag_of(CLI::App& command, CommandLine& line, const Setting& setting) {
    const auto take = [&line, key = std::string(setting.key)](const std::string& text) {
        line.sources.flags[key] = text;
    };
    const std::string help = std::string(setting.help) + " (" + setting.value_text(Config{}) + ")";
    if (std::holds_alternative<bool Config::*>(setting.field)) {
        command.add_flag_callback(
            setting.flag(), [take] { take("true"); }, help);
        return;
    }
    command.add_option_function<std::string>(setting.flag(), take, help)->take_last();
}

CLI::App& add_command(CLI::App& app, CommandLine& line, const std::string& name,
                      const std::string& help, std::function<int(const LoadedConfig&)> run) {
    CLI::App& command = *app.add_subcommand(name, help);
    command.add_option("--config", line.sources.file, "TOML file; see quadriga.example.toml");
    command.callback([&line, run = std::move(run)] { line.run = run; });
    return command;
}

int run(int argc, const char* const* argv) {
    check_command_word(argc, argv);
    CommandLine line;
    CLI::App app("Starts and watches one replica per device and a router in front of them.",
                 "quadriga");
    app.set_version_flag("--version", kVersion);
    app.require_subcommand(1);

    CLI::App& up = add_command(app, line, "up", "Start the fleet and stay", run_up);
    up.add_option_function<std::string>(
        "MODEL", [&line](const std::string& text) { line.sources.flags["model"] = text; },
        "GGUF file");
    CLI::App& check =
        add_command(app, line, "check-config",
                    "Check all settings, the router's too, and print every value with its origin",
                    run_check_config);
    check.add_option_function<std::string>(
        "MODEL", [&line](const std::string& text) { line.sources.flags["model"] = text; },
        "GGUF file");
    for (const Setting& setting : settings()) {
        add_flag_of(up, line, setting);
        add_flag_of(check, line, setting);
    }

    const Setting& folder = *find_setting("runtime_dir");
    CLI::App& status =
        add_command(app, line, "status", "Show the running fleet",
                    [&line](const LoadedConfig& c) { return run_status(c, line.is_json); });
    status.add_flag("--json", line.is_json, "Everything, as JSON");
    CLI::App& down =
        add_command(app, line, "down",
                    "Stop the fleet: waits for what runs, returns when nothing is left", run_down);
    CLI::App& reload =
        add_command(app, line, "reload",
                    "Read API keys and TLS files again, as SIGHUP to `up` does; nothing else: "
                    "other settings of "
                    "the router take effect by 'restart router', the rest at the next start",
                    run_reload);
    add_flag_of(status, line, folder);
    add_flag_of(down, line, folder);
    add_flag_of(reload, line, folder);

    const auto add_replica_command = [&](const std::string& name, const std::string& help,
                                         std::function<int(const LoadedConfig&)> todo) {
        CLI::App& command = add_command(app, line, name, help, std::move(todo));
        command.add_option("N", line.replica, "Number of the replica")->required();
        add_flag_of(command, line, folder);
    };
    add_replica_command("why", "Why a replica is in its state, with its last lines",
                        [&line](const LoadedConfig& c) { return run_why(c, line.replica); });
    for (const auto& [name, help] :
         {std::pair{"retry", "Start a quarantined replica again"},
          std::pair{"drain", "Take a replica out: finish its work, end its process"},
          std::pair{"undrain", "Bring a drained replica back, wherever it was drained"}}) {
        add_replica_command(name, help, [&line, word = std::string(name)](const LoadedConfig& c) {
            return run_order(c, word, line.replica);
        });
    }

    CLI::App& restart = add_command(
        app, line, "restart",
        "Drain, stop and load a replica again. 'restart router': start a router with [router], "
        "keys_file and TLS files as they are now, on the same sockets; no request is cut, and "
        "settings that it cannot run with change nothing",
        [&line](const LoadedConfig& c) {
            return line.is_router ? run_restart_router(c) : run_order(c, "restart", line.replica);
        });
    restart
        .add_option_function<std::string>(
            "N",
            [&line](const std::string& text) {
                line.is_router = text == "router";
                if (line.is_router || CLI::detail::lexical_cast(text, line.replica)) return;
                throw CLI::ConversionError(text, "N");
            },
            "Number of the replica, or 'router'")
        ->required();
    add_flag_of(restart, line, folder);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) refuse_usage(app, error);
        return app.exit(error);
    }
    return line.run(load_config(line.sources));
}

}  // namespace
}  // namespace deploy

int main(int argc, char** argv) {
    // A reload before `up` listens for it means nothing, and must not end it.
    if (std::any_of(argv, argv + argc,
                    [](const char* word) { return std::string_view(word) == "up"; }))
        std::signal(SIGHUP, SIG_IGN);
    try {
        return deploy::run(argc, argv);
    } catch (const deploy::StartError& error) {
        std::fprintf(stderr, "quadriga: %s\n", deploy::to_text(error.failure()).c_str());
        return deploy::exit_code_of(error.failure().kind);
    } catch (const std::exception& error) {
        std::fprintf(
            stderr, "quadriga: %s\n",
            deploy::to_text({.kind = deploy::FailureClass::kInternal, .what = error.what()})
                .c_str());
        return 1;
    }
}
