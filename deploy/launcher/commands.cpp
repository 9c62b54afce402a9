// Client side: every subcommand but `up`.
#include "deploy/launcher/commands.h"

#include <cstdio>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "deploy/launcher/command_name.h"
#include "deploy/launcher/control.h"
#include "deploy/launcher/router_word.h"
#include "deploy/launcher/runtime_dir.h"
#include "deploy/launcher/view.h"

namespace deploy {
namespace {

using nlohmann::json;

/// After the launcher has said that all is stopped, its own process ends within moments.
constexpr int kEndWaitMs = 10'000;

ControlClient connect(const LoadedConfig& loaded) {
    const std::string folder = choose_runtime_dir(loaded.config.runtime_dir);
    std::optional<ControlClient> client = ControlClient::connect(folder);
    if (!client.has_value()) {
        throw StartError(
            {.kind = FailureClass::kInternal,
             .what = "no launcher is running in " + folder,
             .why = "nobody listens on its control socket",
             .fix = "start one with '" + command_name() + " up MODEL', or give its --runtime-dir"});
    }
    return std::move(*client);
}

/// Prints a refusal; 0 when the answer is good.
int code_of(const json& answer) {
    if (answer.value("ok", false)) return 0;
    std::fprintf(stderr, "quadriga: %s\n", answer.value("error", std::string("no answer")).c_str());
    return answer.value("exit_code", 1);
}

/// The launcher's status with the router's word.
json ask_status(const LoadedConfig& loaded) {
    json answer = connect(loaded).ask({{"command", "status"}});
    if (!answer.value("ok", false)) return answer;
    json& status = answer.at("status");
    const auto folder = status.at("launcher").at("runtime_dir").get<std::string>();
    const bool is_running = status.at("router").at("pid") != 0;
    add_router_word(status, is_running ? ask_router(admin_socket_path(folder)) : std::nullopt);
    return answer;
}

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Says what a stop will wait for, so that a long drain is no silence.
void print_drain_notice(const LoadedConfig& loaded, int pid) {
    const json answer = connect(loaded).ask({{"command", "status"}});
    if (!answer.value("ok", false)) return;
    long long running = 0;
    for (const json& replica : answer.at("status").at("replicas")) {
        if (!replica.contains("work") || !replica.at("work").is_object()) continue;
        running += replica.at("work").value("running", 0) + replica.at("work").value("waiting", 0);
    }
    if (running == 0) return;
    std::fprintf(stderr,
                 "waiting for %lld requests to end, at most drain_deadline_s of the fleet "
                 "(default 600); to cut them short: kill -TERM %d, twice\n",
                 running, pid);
}

}  // namespace

int run_status(const LoadedConfig& loaded, bool is_json) {
    const json answer = ask_status(loaded);
    if (const int code = code_of(answer); code != 0) return code;
    const json& status = answer.at("status");
    print(is_json ? status.dump(1) + "\n" : status_table(status));
    return 0;
}

int run_why(const LoadedConfig& loaded, int replica) {
    const json answer = ask_status(loaded);
    if (const int code = code_of(answer); code != 0) return code;
    for (const json& one : answer.at("status").at("replicas")) {
        if (one.at("index") == replica) {
            print(why_text(one));
            return 0;
        }
    }
    std::fprintf(stderr, "quadriga: there is no replica %d\n", replica);
    return 2;
}

int run_order(const LoadedConfig& loaded, const std::string& command, int replica) {
    const json answer = connect(loaded).ask({{"command", command}, {"replica", replica}});
    const int code = code_of(answer);
    if (code == 0)
        print(command + " of replica " + std::to_string(replica) + " begins; see '" +
              command_name() + " status'\n");
    return code;
}

int run_reload(const LoadedConfig& loaded) {
    const json answer = connect(loaded).ask({{"command", "reload"}});
    for (const json& one : answer.value("done", json::array()))
        print("read again  " + one.get<std::string>() + "\n");
    const int code = code_of(answer);
    if (code == 0 && answer.at("done").empty()) {
        print("nothing to read again: the fleet has no key file and no certificate\n");
    }
    return code;
}

int run_restart_router(const LoadedConfig& loaded) {
    const json before = ask_status(loaded);
    const json answer = connect(loaded).ask({{"command", "restart_router"}});
    if (const int code = code_of(answer); code != 0) return code;
    print("the router serves with its new settings, pid " + std::to_string(answer.value("pid", 0)) +
          "\n");
    if (const int earlier = answer.value("earlier_pid", 0); earlier != 0) {
        print("the earlier one, pid " + std::to_string(earlier) +
              (answer.value("is_alone", true)
                   ? ", finishes what it has accepted\n"
                   : ", has not let go of the port yet and may still take requests\n"));
    }
    for (const json& key : answer.value("not_applied", json::array()))
        print(key.get<std::string>() + " has changed, too: it needs quadriga down and up\n");
    const json status = before.value("status", json::object());
    for (const json& replica : status.value("added_replicas", json::array())) {
        print("the replica at " + replica.value("url", std::string("?")) +
              " was added at the router; the new one does not know it: add it again\n");
    }
    return 0;
}

int run_down(const LoadedConfig& loaded) {
    ControlClient client = connect(loaded);
    const int pid = client.peer_pid();
    print_drain_notice(loaded, pid);
    const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (const int code = code_of(client.ask({{"command", "down"}})); code != 0) return code;
    const json end = client.read();  // when everything has been reaped
    if (pidfd) {
        pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
        ::poll(&ended, 1, kEndWaitMs);
    }
    const int code = end.value("code", 1);
    if (code == 0) print("stopped\n");
    return code;
}

}  // namespace deploy
