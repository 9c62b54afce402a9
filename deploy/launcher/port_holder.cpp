#include "deploy/launcher/port_holder.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include <dirent.h>
#include <unistd.h>

#include "deploy/launcher/spawn.h"

namespace deploy {
namespace {

constexpr std::size_t kCommandBytesMax = 128;
constexpr std::string_view kStateListen = "0A";

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct DirCloser {
    void operator()(DIR* dir) const { ::closedir(dir); }
};

std::vector<std::string> names_in(const std::string& path) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, DirCloser> dir(::opendir(path.c_str()));
    if (!dir) return names;
    while (const dirent* entry = ::readdir(dir.get()))
        names.emplace_back(entry->d_name);
    return names;
}

bool holds_socket(const std::string& fd_folder, const std::vector<std::uint64_t>& inodes) {
    for (const std::string& name : names_in(fd_folder)) {
        std::array<char, 64> link{};
        const ssize_t length =
            ::readlink((fd_folder + "/" + name).c_str(), link.data(), link.size() - 1);
        if (length <= 0) continue;
        const std::string_view target(link.data(), static_cast<std::size_t>(length));
        for (const std::uint64_t inode : inodes) {
            if (target == "socket:[" + std::to_string(inode) + "]") return true;
        }
    }
    return false;
}

/// Seconds since the epoch at which the machine started.
std::time_t boot_time() {
    std::istringstream lines(read_file("/proc/stat"));
    std::string line;
    while (std::getline(lines, line)) {
        if (line.rfind("btime ", 0) == 0) return std::strtoll(line.c_str() + 6, nullptr, 10);
    }
    return 0;
}

}  // namespace

std::vector<std::uint64_t> listening_inodes(std::string_view proc_net_tcp, std::uint16_t port) {
    std::vector<std::uint64_t> inodes;
    std::istringstream lines{std::string(proc_net_tcp)};
    std::string line;
    std::getline(lines, line);  // the header
    while (std::getline(lines, line)) {
        // "  0: 0100007F:1F90 00000000:0000 0A tx:rx tr:when retrnsmt uid timeout inode ..."
        std::istringstream fields(line);
        std::string slot, local, remote, state, skipped, inode_text;
        fields >> slot >> local >> remote >> state;
        for (int i = 0; i < 5; ++i)
            fields >> skipped;
        if (!(fields >> inode_text) || state != kStateListen) continue;
        const std::size_t colon = local.rfind(':');
        if (colon == std::string::npos) continue;
        unsigned local_port = 0;
        const char* begin = local.data() + colon + 1;
        std::from_chars(begin, local.data() + local.size(), local_port, 16);
        if (local_port == port) inodes.push_back(std::strtoull(inode_text.c_str(), nullptr, 10));
    }
    return inodes;
}

std::optional<ProcessName> describe_process(pid_t pid) {
    const unsigned long long ticks = start_ticks_of(pid);
    if (ticks == 0) return std::nullopt;
    ProcessName name{.pid = pid};
    const std::string folder = "/proc/" + std::to_string(pid);
    name.command = read_file(folder + "/cmdline");
    if (name.command.empty()) name.command = "[" + read_file(folder + "/comm") + "]";
    while (!name.command.empty() && name.command.back() == '\0')
        name.command.pop_back();
    if (name.command.size() > kCommandBytesMax) {
        name.command.resize(kCommandBytesMax - 3);
        name.command += "...";
    }
    for (char& c : name.command) {
        if (c == '\0') c = ' ';
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    const std::time_t boot = boot_time();
    const long hertz = ::sysconf(_SC_CLK_TCK);
    if (boot != 0 && hertz > 0) {
        const std::time_t start =
            boot + static_cast<std::time_t>(ticks / static_cast<unsigned long long>(hertz));
        std::tm local{};
        std::array<char, 32> text{};
        if (::localtime_r(&start, &local) != nullptr &&
            std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local) > 0) {
            name.started = text.data();
        }
    }
    return name;
}

std::optional<ProcessName> holder_of_port(std::uint16_t port) {
    std::vector<std::uint64_t> inodes;
    for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        for (std::uint64_t inode : listening_inodes(read_file(path), port))
            inodes.push_back(inode);
    }
    if (inodes.empty()) return std::nullopt;
    for (const std::string& name : names_in("/proc")) {
        pid_t pid = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (error != std::errc{} || end != name.data() + name.size()) continue;
        if (holds_socket("/proc/" + name + "/fd", inodes)) return describe_process(pid);
    }
    return std::nullopt;
}

std::string to_text(const ProcessName& name) {
    std::string text = "pid " + std::to_string(name.pid) + " (" + name.command + ")";
    if (!name.started.empty()) text += ", started " + name.started;
    return text;
}

}  // namespace deploy
