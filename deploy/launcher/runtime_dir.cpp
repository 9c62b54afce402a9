#include "deploy/launcher/runtime_dir.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "deploy/launcher/failure.h"
#include "deploy/launcher/spawn.h"
#include "proto/json.h"

namespace deploy {
namespace {

constexpr std::size_t kHolderBytesMax = 200;
constexpr std::size_t kRecordBytesMax = 1024 * 1024;
constexpr int kLeftoverWaitMs = 5'000;

[[noreturn]] void cannot(const std::string& what, int error) {
    throw StartError({.kind = FailureClass::kInternal,
                      .what = what,
                      .why = std::strerror(error),
                      .fix = "check its rights, or use another folder with --runtime-dir"});
}

nlohmann::json to_json(const ProcessIdentity& process) {
    return {{"name", process.name}, {"pid", process.pid}, {"start_ticks", process.start_ticks}};
}

ProcessIdentity process_from(const nlohmann::json& json) {
    return {.name = json.at("name").get<std::string>(),
            .pid = json.at("pid").get<pid_t>(),
            .start_ticks = json.at("start_ticks").get<unsigned long long>()};
}

}  // namespace

std::string choose_runtime_dir(const std::string& configured) {
    if (!configured.empty()) return configured;
    if (const char* given = std::getenv("RUNTIME_DIRECTORY"); given != nullptr && *given != '\0') {
        return given;
    }
    if (::geteuid() == 0) return "/run/quadriga";
    if (const char* user = std::getenv("XDG_RUNTIME_DIR"); user != nullptr && *user != '\0') {
        return std::string(user) + "/quadriga";
    }
    throw StartError({.kind = FailureClass::kConfig,
                      .what = "there is no runtime folder",
                      .why = "neither $RUNTIME_DIRECTORY nor $XDG_RUNTIME_DIR is set",
                      .fix = "give one: --runtime-dir FOLDER"});
}

void make_runtime_dir(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) cannot("cannot make the runtime folder " + path, error.value());
    ::chmod(path.c_str(), 0700);
    if (::access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
        cannot("cannot use the runtime folder " + path, errno);
    }
}

FileLock::FileLock(std::string path) : path_(std::move(path)) {
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd_) cannot("cannot open " + path_, errno);
}

bool FileLock::try_take(const std::string& holder_text) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0) return false;
    [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), 0);
    [[maybe_unused]] const ssize_t put =
        ::pwrite(fd_.get(), holder_text.data(), holder_text.size(), 0);
    return true;
}

void FileLock::drop() {
    struct flock lock {};
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;
    [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), 0);
    ::fcntl(fd_.get(), F_OFD_SETLK, &lock);
}

std::string FileLock::holder() const {
    std::string text(kHolderBytesMax, '\0');
    const ssize_t got = ::pread(fd_.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text.empty() ? "another launcher" : text;
}

bool write_record(const std::string& runtime_dir, const FleetRecord& record) {
    nlohmann::json json{{"launcher", to_json(record.launcher)}, {"url", record.url}};
    json["children"] = nlohmann::json::array();
    for (const ProcessIdentity& child : record.children)
        json["children"].push_back(to_json(child));
    const std::string path = runtime_dir + "/state.json";
    const std::string fresh = path + ".new";
    {
        std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
        file << proto::json_text(json) << "\n";
        if (!file.flush()) return false;
    }
    return ::rename(fresh.c_str(), path.c_str()) == 0;
}

std::optional<FleetRecord> read_record(const std::string& runtime_dir) {
    std::ifstream file(runtime_dir + "/state.json", std::ios::binary);
    if (!file) return std::nullopt;
    std::string text(kRecordBytesMax, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        FleetRecord record{.launcher = process_from(json.at("launcher")),
                           .url = json.at("url").get<std::string>()};
        for (const nlohmann::json& child : json.at("children")) {
            record.children.push_back(process_from(child));
        }
        return record;
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;  // half a file of a crashed writer tells us nothing
    }
}

void remove_record(const std::string& runtime_dir) {
    ::unlink((runtime_dir + "/state.json").c_str());
}

std::vector<std::string> kill_leftovers(const FleetRecord& record) {
    std::vector<std::string> killed;
    for (const ProcessIdentity& child : record.children) {
        if (child.pid <= 1 || child.start_ticks == 0) continue;
        const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
        // The identity is compared while the pidfd is open, so the pid cannot change hands between.
        if (!pidfd || start_ticks_of(child.pid) != child.start_ticks) continue;
        ::kill(-child.pid, SIGKILL);
        ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
        pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
        ::poll(&ended, 1, kLeftoverWaitMs);
        killed.push_back(child.name + " (pid " + std::to_string(child.pid) + ")");
    }
    return killed;
}

void write_key_file(const std::string& runtime_dir, const std::string& key) {
    const std::string path = runtime_dir + "/internal.key";
    const UniqueFd file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file || ::fchmod(file.get(), 0600) != 0 ||
        ::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
        cannot("cannot write " + path, errno);
    }
}

std::string make_internal_key() {
    std::array<unsigned char, 32> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw std::system_error(errno, std::generic_category(), "getrandom");
    }
    std::string text;
    for (const unsigned char byte : bytes) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

UniqueFd memfd_with(const std::string& text) {
    UniqueFd fd(::memfd_create("quadriga-key", MFD_CLOEXEC));
    if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::lseek(fd.get(), 0, SEEK_SET) != 0) {
        throw std::system_error(errno, std::generic_category(), "memfd");
    }
    return fd;
}

}  // namespace deploy
