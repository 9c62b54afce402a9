// NVML, opened at run time: our table of the functions we call. Observes, never sets anything.
//
// Nothing links to CUDA and no context is made; the prototypes are our own (NVML's ABI is fixed by
// its versioned symbol names, listed in nvml.cpp). A missing optional symbol disables that reading
// alone. QUADRIGA_NVML_PATH names another library, which is how tests put theirs in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace deploy {

/// What does not change while the launcher runs.
struct GpuFacts {
    int index = 0;     // NVML's, in order of PCI addresses
    std::string uuid;  // "GPU-5a1c..."
    std::string name;
    std::string pci;           // "01:00"
    std::string architecture;  // "9.0"
    bool is_mig = false;       // cut into instances, which we do not serve on
};

/// What a card shows now; absent: it does not tell.
struct GpuReading {
    std::uint64_t memory_used_bytes = 0;
    std::uint64_t memory_free_bytes = 0;
    std::uint64_t memory_total_bytes = 0;
    std::optional<double> watts;      // an average over about a second
    std::optional<double> watts_cap;  // enforced now
    std::optional<double> celsius;
    std::optional<double> joules_total;  // since the driver was loaded
    std::optional<bool> is_persistent;
};

struct GpuProcess {
    int pid = 0;
    std::uint64_t bytes = 0;  // 0 = it does not tell
};

class Nvml {
public:
    virtual ~Nvml() = default;
    virtual std::string driver_version() const = 0;
    virtual const std::vector<GpuFacts>& gpus() const = 0;
    /// None when the card does not answer: it fell off the bus, or the driver is gone.
    virtual std::optional<GpuReading> read(int index) const = 0;
    /// Compute processes on the card; empty also where the host hides them (containers).
    virtual std::vector<GpuProcess> processes(int index) const = 0;
};

/// The error is one sentence for the operator: no library, no driver, no answer.
tl::expected<std::unique_ptr<Nvml>, std::string> open_nvml();

}  // namespace deploy
