// quadriga-router: reads its flags, runs the app, turns what prevents a start into one clear line.
// Exit codes: 0 ended as asked, 1 internal error, 2 bad flags, 6 port in use.
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
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

constexpr int kExitInternal = 1;
constexpr int kExitUsage = 2;
constexpr int kExitPortInUse = 6;

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

}  // namespace

int main(int argc, char** argv) {
    raise_descriptor_limit();
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
        std::fprintf(stderr, "quadriga-router: %s\n", error.what());
        return kExitUsage;
    } catch (const std::system_error& error) {
        std::fprintf(stderr, "quadriga-router: %s\n", error.what());
        return error.code() == std::errc::address_in_use ? kExitPortInUse : kExitInternal;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "quadriga-router: %s\n", error.what());
        return kExitUsage;
    }
}
