#include "deploy/launcher/device_monitor.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <regex>

#include <sched.h>
#include <sys/stat.h>

#include "deploy/launcher/failure.h"

namespace deploy {
namespace {

/// The number after `name` in a file of "name value" lines; 0 when it is not there.
std::uint64_t value_in(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    std::string word;
    std::uint64_t value = 0;
    while (file >> word) {
        if (word == name && file >> value) return value;
    }
    return 0;
}

class CpuMonitor final : public DeviceMonitor {
public:
    explicit CpuMonitor(std::string proc_folder) : proc_folder_(std::move(proc_folder)) {}

    MemoryReading measure(int /*replica*/, std::uint64_t need_bytes) override {
        MemoryReading reading{.need_bytes = need_bytes};
        reading.available_bytes = value_in(proc_folder_ + "/meminfo", "MemAvailable:") * 1024;
        // need x 1.1, in whole numbers.
        reading.is_enough = reading.available_bytes >= need_bytes + need_bytes / 10;
        reading.note = "host memory: need " + bytes_text(need_bytes) + " x 1.1, available " +
                       bytes_text(reading.available_bytes);
        return reading;
    }

    std::uint64_t oom_kills() override { return value_in(proc_folder_ + "/vmstat", "oom_kill"); }

private:
    std::string proc_folder_;
};

std::uint64_t file_bytes(const std::string& path) {
    struct stat info {};
    const bool is_there = ::stat(path.c_str(), &info) == 0;
    if (!is_there || !S_ISREG(info.st_mode)) {
        throw StartError({.kind = FailureClass::kModelFile,
                          .what = "the model " + path + " cannot be used",
                          .why = is_there ? "it is not a file" : std::strerror(errno),
                          .fix = "give the path of a GGUF file: quadriga up MODEL.gguf"});
    }
    return static_cast<std::uint64_t>(info.st_size);
}

/// The launcher knows no models, but four bytes tell a wrong path at once instead of once a
/// replica.
void check_magic(const std::string& path) {
    std::array<char, 4> magic{};
    std::ifstream file(path, std::ios::binary);
    if (file.read(magic.data(), magic.size()) && std::string_view(magic.data(), 4) == "GGUF")
        return;
    throw StartError({.kind = FailureClass::kModelFile,
                      .what = "the model " + path + " cannot be used",
                      .why = file.bad() || !file.is_open() ? "it cannot be read"
                                                           : "it does not begin with \"GGUF\"",
                      .fix = "give the path of a GGUF file: quadriga up MODEL.gguf"});
}

}  // namespace

std::unique_ptr<DeviceMonitor> make_cpu_monitor(std::string proc_folder) {
    return std::make_unique<CpuMonitor>(std::move(proc_folder));
}

std::vector<std::vector<int>> core_sets(const std::vector<int>& cpus, int replicas) {
    assert(replicas > 0 && !cpus.empty() && "cores to deal and somebody to deal them to");
    std::vector<std::vector<int>> sets(static_cast<std::size_t>(replicas));
    const std::size_t each = cpus.size() / sets.size();
    for (std::size_t i = 0; i < sets.size() * each; ++i)
        sets[i / each].push_back(cpus[i]);
    return sets;
}

std::vector<int> usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cpus;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int i = 0; i < CPU_SETSIZE; ++i) {
            if (CPU_ISSET(static_cast<unsigned>(i), &set)) cpus.push_back(i);
        }
    }
    if (cpus.empty()) cpus.push_back(0);
    return cpus;
}

std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit)
        value /= 1024;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value,
                  kUnits[unit]);
    return text.data();
}

std::uint64_t model_bytes(const std::string& path) {
    static const std::regex kShard(R"((.*)-(\d{5})-of-(\d{5})\.gguf)");
    std::smatch match;
    const std::uint64_t first_bytes = file_bytes(path);
    check_magic(path);
    if (!std::regex_match(path, match, kShard)) return first_bytes;
    const int count = std::stoi(match[3]);
    std::uint64_t bytes = 0;
    for (int i = 1; i <= count; ++i) {
        std::array<char, 32> part{};
        std::snprintf(part.data(), part.size(), "-%05d-of-%05d.gguf", i, count);
        bytes += file_bytes(match[1].str() + part.data());
    }
    return bytes;
}

}  // namespace deploy
