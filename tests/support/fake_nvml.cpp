// libfake_nvml.so: plays libnvidia-ml.so.1 from a file, read at every question.
//
//   QUADRIGA_FAKE_NVML  JSON: {"gpus": [{"uuid": "GPU-aaaa", "name": "Fake 9000", "major": 9,
//                       "minor": 0, "bus": "00000000:01:00.0", "total_mib": 81920, "used_mib": 0,
//                       "watts": 80, "cap": 350, "celsius": 40, "lost": false, "mig": false,
//                       "pids": []}], "init": 0}
//   power is unknown where "watts" is not given
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;
constexpr int kNotSupported = 3;
constexpr int kLost = 15;

json script() {
    const char* path = std::getenv("QUADRIGA_FAKE_NVML");
    std::ifstream file(path == nullptr ? "" : path);
    return json::parse(file, nullptr, false);
}
json gpu_at(void* device) {
    return script()["gpus"].at(reinterpret_cast<std::size_t>(device) - 1);
}
int copy_text(const std::string& text, char* out, unsigned bytes) {
    std::snprintf(out, bytes, "%s", text.c_str());
    return 0;
}
int milli(void* device, const char* key, unsigned* out) {
    const json gpu = gpu_at(device);
    if (!gpu.contains(key)) return kNotSupported;
    *out = static_cast<unsigned>(gpu[key].get<double>() * 1000);
    return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    const json now = script();
    return now.is_object() ? now.value("init", 0) : 9;
}
const char* nvmlErrorString(int status) {
    return status == 9 ? "Driver Not Loaded" : "Fake Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = static_cast<unsigned>(script()["gpus"].size());
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
    return 0;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned bytes) {
    return copy_text(gpu_at(device)["uuid"], out, bytes);
}
int nvmlDeviceGetName(void* device, char* out, unsigned bytes) {
    return copy_text(gpu_at(device).value("name", "Fake 9000"), out, bytes);
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
    *major = gpu_at(device).value("major", 9);
    *minor = gpu_at(device).value("minor", 0);
    return 0;
}
struct Memory {
    unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
    const json gpu = gpu_at(device);
    if (gpu.value("lost", false)) return kLost;
    memory->total = gpu.value("total_mib", 81920ULL) << 20;
    memory->used = gpu.value("used_mib", 0ULL) << 20;
    memory->free = memory->total - memory->used;
    return 0;
}
struct Pci {
    char legacy[16];
    unsigned numbers[5];
    char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
    return copy_text(gpu_at(device).value("bus", "00000000:01:00.0"), pci->bus_id,
                     sizeof pci->bus_id);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* out) {
    return milli(device, "watts", out);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* out) {
    return milli(device, "cap", out);
}
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* out) {
    *out = gpu_at(device).value("celsius", 40U);
    return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
    *current = *pending = gpu_at(device).value("mig", false) ? 1 : 0;
    return 0;
}
struct Process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* out) {
    unsigned found = 0;
    for (const json& pid : gpu_at(device).value("pids", json::array())) {
        if (found < *count) out[found++] = {pid.get<unsigned>(), 1ULL << 30, 0, 0};
    }
    *count = found;
    return 0;
}

}  // extern "C"
