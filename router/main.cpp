// quadriga-router: reads its flags, runs the app, turns what prevents a start into one clear line.
// Exit codes: 0 ended as asked, 1 internal error, 2 bad flags or files, 6 port in use.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>
#include <system_error>

#include <CLI/CLI.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/log_level_name.h"
#include "router/app.h"
#include "router/config.h"
#include "router/log_sink.h"

namespace {

/// Why the process cannot go on. The ids are those of the replica and of the launcher, which has a
/// table of them in its README.
struct Ending {
    int exit_code;
    const char* id;
    const char* name;
    const char* fix;
};
constexpr Ending kInternal{1, "Q0100", "internal",
                           "start it again; if it ends like this once more, report this line"};
constexpr Ending kUsage{2, "Q0200", "config",
                        "correct the flag or the file that this names; --help has all flags"};
constexpr Ending kPortInUse{6, "Q0600", "port",
                            "give another --port, or end what listens there (ss -ltnp shows it)"};

/// One line: id, what and why, fix. The check of a configuration says the first two only, since
/// whoever asked for it knows better where the value came from.
int end(const Ending& ending, const char* what, bool is_check) {
    if (is_check) {
        std::fprintf(stderr, "quadriga-router: %s %s\n", ending.id, what);
    } else {
        std::fprintf(stderr, "quadriga-router: %s %s: %s; fix: %s\n", ending.id, ending.name, what,
                     ending.fix);
    }
    return ending.exit_code;
}

bool is_check_asked(int argc, char** argv) {
    return std::any_of(argv, argv + argc, [](const char* argument) {
        return std::string_view(argument) == "--check-config";
    });
}

std::shared_ptr<router::LogSink> set_up_log(const std::string& level) {
    // One thread logs, so the sink needs no lock; stderr is the launcher's to read.
    auto sink = std::make_shared<router::LogSink>(STDERR_FILENO);
    auto logger = std::make_shared<spdlog::logger>("router", sink);
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    formatter->add_flag<proto::LogLevelName>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %* router %v");
    logger->set_formatter(std::move(formatter));
    logger->set_level(spdlog::level::from_str(level));
    spdlog::set_default_logger(std::move(logger));
    return sink;
}

/// A connection is two descriptors, one on each side; the soft limit is often only 1024.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A core would hold prompts and keys. Under the launcher this is so already.
void forbid_core_dumps() {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    (void)::setrlimit(RLIMIT_CORE, &none);
}

}  // namespace

int main(int argc, char** argv) {
    raise_descriptor_limit();
    forbid_core_dumps();
    const bool is_check = is_check_asked(argc, argv);
    std::signal(SIGPIPE, SIG_IGN);  // a closed peer is an error code of the write
    try {
        const router::Config config = router::parse_command_line(argc, argv);
        if (config.values_text) {
            router::check_files(config);
            std::fputs(config.values_text->c_str(), stdout);
            return 0;
        }
        const auto log_sink = set_up_log(config.log_level);
        router::App app(config);
        const router::LogBatching batching(*log_sink, app.executor(), [&app](std::uint64_t count) {
            app.count_dropped_lines(count);
        });
        return app.run();
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // --help, --version
            std::puts(error.what());
            return 0;
        }
        return end(kUsage, error.what(), is_check);
    } catch (const std::system_error& error) {
        const bool is_taken = error.code() == std::errc::address_in_use;
        return end(is_taken ? kPortInUse : kInternal, error.what(), is_check);
    } catch (const std::exception& error) {
        return end(kUsage, error.what(), is_check);
    }
}
