#include "deploy/launcher/nvml.h"

#include <array>
#include <cctype>
#include <cstdlib>

#include <dlfcn.h>

namespace deploy {
namespace {

using Status = int;  // nvmlReturn_t
using Device = struct DeviceTag*;
constexpr Status kSuccess = 0;
constexpr unsigned kGpuTemperature = 0;  // NVML_TEMPERATURE_GPU
constexpr unsigned kProcessesMax = 128;  // of one card; more are not looked at
constexpr unsigned kGpusMax = 64;

// As NVML lays them out.
struct Memory {
    unsigned long long total, free, used;
};
struct Process {
    unsigned pid;
    unsigned long long used_bytes;  // all ones: not told
    unsigned gpu_instance, compute_instance;
};
struct Pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct Table {
    Status (*init)();
    const char* (*error_text)(Status);
    Status (*count)(unsigned*);
    Status (*handle)(unsigned index, Device*);
    Status (*uuid)(Device, char*, unsigned bytes);
    Status (*name)(Device, char*, unsigned bytes);
    Status (*memory)(Device, Memory*);
    Status (*capability)(Device, int* major, int* minor);
    // Optional from here on.
    Status (*driver_version)(char*, unsigned bytes);
    Status (*pci)(Device, Pci*);
    Status (*power_mw)(Device, unsigned*);
    Status (*power_cap_mw)(Device, unsigned*);
    Status (*temperature)(Device, unsigned sensor, unsigned*);
    Status (*energy_mj)(Device, unsigned long long*);
    Status (*persistence)(Device, unsigned*);
    Status (*mig)(Device, unsigned* current, unsigned* pending);
    Status (*processes)(Device, unsigned* count, Process*);
};

/// Name of the first needed symbol that is not there; empty when all are.
std::string fill(void* library, Table& t) {
    std::string missing;
    const auto optional = [&](const char* symbol, auto& function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
        return function != nullptr;
    };
    const auto needed = [&](const char* symbol, auto& function) {
        if (!optional(symbol, function) && missing.empty()) missing = symbol;
    };
    needed("nvmlInit_v2", t.init);
    needed("nvmlErrorString", t.error_text);
    needed("nvmlDeviceGetCount_v2", t.count);
    needed("nvmlDeviceGetHandleByIndex_v2", t.handle);
    needed("nvmlDeviceGetUUID", t.uuid);
    needed("nvmlDeviceGetName", t.name);
    needed("nvmlDeviceGetMemoryInfo", t.memory);
    needed("nvmlDeviceGetCudaComputeCapability", t.capability);
    optional("nvmlSystemGetDriverVersion", t.driver_version);
    optional("nvmlDeviceGetPciInfo_v3", t.pci);
    optional("nvmlDeviceGetPowerUsage", t.power_mw);
    optional("nvmlDeviceGetEnforcedPowerLimit", t.power_cap_mw);
    optional("nvmlDeviceGetTemperature", t.temperature);
    optional("nvmlDeviceGetTotalEnergyConsumption", t.energy_mj);
    optional("nvmlDeviceGetPersistenceMode", t.persistence);
    optional("nvmlDeviceGetMigMode", t.mig);
    optional("nvmlDeviceGetComputeRunningProcesses_v3", t.processes);
    return missing;
}

/// One optional reading, `scale` units of ours in one of NVML's.
template <class Number>
std::optional<double> ask(Status (*function)(Device, Number*), Device device, double scale) {
    Number value = 0;
    if (function == nullptr || function(device, &value) != kSuccess) return std::nullopt;
    return static_cast<double>(value) * scale;
}

std::optional<double> ask_temperature(Status (*function)(Device, unsigned sensor, unsigned*),
                                      Device device) {
    unsigned value = 0;
    if (function == nullptr || function(device, kGpuTemperature, &value) != kSuccess) {
        return std::nullopt;
    }
    return value;
}

/// "00000000:3B:00.0" -> "3b:00"
std::string short_pci(const char* bus_id) {
    std::string text(bus_id);
    if (const std::size_t colon = text.find(':'); colon != std::string::npos) {
        text.erase(0, colon + 1);
    }
    text = text.substr(0, text.find('.'));
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

class RealNvml final : public Nvml {
public:
    explicit RealNvml(const Table& table) : t_(table) {}

    /// What is wrong, empty when nothing is.
    std::string list() {
        unsigned count = 0;
        if (const Status status = t_.count(&count); status != kSuccess) {
            return std::string("NVML does not count the GPUs: ") + t_.error_text(status);
        }
        for (unsigned i = 0; i < count && i < kGpusMax; ++i) {
            Device device = nullptr;
            GpuFacts facts{.index = static_cast<int>(i)};
            std::array<char, 96> text{};
            int major = 0;
            int minor = 0;
            Status status = t_.handle(i, &device);
            if (status == kSuccess) status = t_.uuid(device, text.data(), text.size());
            facts.uuid = text.data();
            if (status == kSuccess) status = t_.name(device, text.data(), text.size());
            facts.name = text.data();
            if (status == kSuccess) status = t_.capability(device, &major, &minor);
            if (status != kSuccess) {
                return "GPU " + std::to_string(i) +
                       " does not answer: " + std::string(t_.error_text(status));
            }
            facts.architecture = std::to_string(major) + "." + std::to_string(minor);
            if (Pci pci{}; t_.pci != nullptr && t_.pci(device, &pci) == kSuccess) {
                facts.pci = short_pci(pci.bus_id);
            }
            unsigned mig = 0;
            unsigned pending = 0;
            facts.is_mig =
                t_.mig != nullptr && t_.mig(device, &mig, &pending) == kSuccess && mig == 1;
            gpus_.push_back(std::move(facts));
            devices_.push_back(device);
        }
        return "";
    }

    std::string driver_version() const override {
        std::array<char, 96> text{};
        if (t_.driver_version != nullptr) t_.driver_version(text.data(), text.size());
        return text.data();
    }
    const std::vector<GpuFacts>& gpus() const override { return gpus_; }

    std::optional<GpuReading> read(int index) const override {
        Device device = devices_.at(static_cast<std::size_t>(index));
        Memory memory{};
        if (t_.memory(device, &memory) != kSuccess) return std::nullopt;
        GpuReading reading{.memory_used_bytes = memory.used,
                           .memory_free_bytes = memory.free,
                           .memory_total_bytes = memory.total,
                           .watts = ask(t_.power_mw, device, 1e-3),
                           .watts_cap = ask(t_.power_cap_mw, device, 1e-3),
                           .celsius = ask_temperature(t_.temperature, device),
                           .joules_total = ask(t_.energy_mj, device, 1e-3),
                           .is_persistent = std::nullopt};
        if (const auto mode = ask(t_.persistence, device, 1.0)) reading.is_persistent = *mode == 1;
        return reading;
    }

    std::vector<GpuProcess> processes(int index) const override {
        std::array<Process, kProcessesMax> found{};
        unsigned count = found.size();
        if (t_.processes == nullptr || t_.processes(devices_.at(static_cast<std::size_t>(index)),
                                                    &count, found.data()) != kSuccess) {
            return {};
        }
        std::vector<GpuProcess> all;
        for (unsigned i = 0; i < count && i < kProcessesMax; ++i) {
            const bool is_told = found[i].used_bytes != ~0ULL;
            all.push_back({.pid = static_cast<int>(found[i].pid),
                           .bytes = is_told ? found[i].used_bytes : 0});
        }
        return all;
    }

private:
    Table t_;
    std::vector<GpuFacts> gpus_;
    std::vector<Device> devices_;
};

}  // namespace

tl::expected<std::unique_ptr<Nvml>, std::string> open_nvml() {
    const char* given = std::getenv("QUADRIGA_NVML_PATH");
    const std::string path = given != nullptr && *given != '\0' ? given : "libnvidia-ml.so.1";
    // Stays open until the process ends: it may own threads.
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        return tl::unexpected("there is no NVIDIA driver here: " + std::string(::dlerror()));
    Table table{};
    if (const std::string missing = fill(library, table); !missing.empty()) {
        return tl::unexpected(path + " has no " + missing + "; it is too old");
    }
    if (const Status status = table.init(); status != kSuccess) {
        return tl::unexpected("NVML does not start: " + std::string(table.error_text(status)));
    }
    auto nvml = std::make_unique<RealNvml>(table);
    if (std::string why = nvml->list(); !why.empty()) return tl::unexpected(std::move(why));
    return nvml;
}

}  // namespace deploy
