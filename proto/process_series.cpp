#include "proto/process_series.h"

#include <cstdint>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace proto {

std::vector<ProcessSeries> process_series() {
    std::vector<ProcessSeries> all;
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0, resident_pages = 0;
    if (statm >> pages >> resident_pages) {
        const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        all.push_back({.name = "process_resident_memory_bytes",
                       .help = "Resident memory.",
                       .value = static_cast<double>(resident_pages * page_bytes)});
        all.push_back({.name = "process_virtual_memory_bytes",
                       .help = "Virtual memory.",
                       .value = static_cast<double>(pages * page_bytes)});
    }
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) == 0) {
        const auto seconds = [](const timeval& time) {
            return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
        };
        all.push_back({.name = "process_cpu_seconds_total",
                       .help = "User and system time.",
                       .is_counter = true,
                       .value = seconds(usage.ru_utime) + seconds(usage.ru_stime)});
    }
    return all;
}

}  // namespace proto
