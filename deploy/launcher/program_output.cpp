#include "deploy/launcher/program_output.h"

#include <csignal>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/launcher/spawn.h"
#include "deploy/launcher/unique_fd.h"

namespace deploy {
namespace {

constexpr int kAnswerWaitMs = 10'000;
constexpr std::size_t kAnswerBytesMax = 64 * 1024;

}  // namespace

std::optional<ProgramOutput> output_of(const std::string& program,
                                       const std::vector<std::string>& argv) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    const UniqueFd read_end(ends[0]);
    UniqueFd write_end(ends[1]);
    SpawnRequest request{.program = program, .argv = argv};
    request.output_fd = write_end.get();
    ProgramOutput output;
    try {
        const SpawnedProcess process = spawn(request);
        write_end.reset();
        pollfd wanted{.fd = read_end.get(), .events = POLLIN, .revents = 0};
        char bytes[4096];
        bool is_complete = false;
        while (output.text.size() < kAnswerBytesMax && ::poll(&wanted, 1, kAnswerWaitMs) > 0) {
            const ssize_t got = ::read(read_end.get(), bytes, sizeof bytes);
            is_complete = got == 0;
            if (got <= 0) break;
            output.text.append(bytes, static_cast<std::size_t>(got));
        }
        if (!is_complete) send_signal(process, SIGKILL);
        int status = 0;
        ::waitpid(process.pid, &status, 0);
        if (!is_complete || !WIFEXITED(status)) return std::nullopt;
        output.exit_code = WEXITSTATUS(status);
        return output;
    } catch (const std::system_error&) {
        return std::nullopt;
    }
}

}  // namespace deploy
