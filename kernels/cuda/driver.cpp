#include "kernels/cuda/driver.h"

#include <array>
#include <cstdio>
#include <span>
#include <string_view>

#include <dlfcn.h>
#include <link.h>

namespace kernels::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string status_text(const Driver& driver, Status status) {
    const char* name = nullptr;
    if (driver.error_name(status, &name) != kSuccess || name == nullptr) name = "unknown error";
    return std::string(name) + " (" + std::to_string(status) + ")";
}

template <class Function>
bool resolve(const LibraryLoader& loader, void* library, const char* symbol, Function& function,
             std::string& missing) {
    function = reinterpret_cast<Function>(loader.symbol(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
    return function != nullptr;
}

/// Name of the first symbol that is not there; empty when all are.
std::string fill_table(const LibraryLoader& loader, void* library, Driver& d) {
    std::string missing;
    const auto get = [&](const char* symbol, auto& function) {
        resolve(loader, library, symbol, function, missing);
    };
    get("cuInit", d.init);
    get("cuDriverGetVersion", d.driver_version);
    get("cuDeviceGetCount", d.device_count);
    get("cuDeviceGet", d.device_get);
    get("cuDeviceGetName", d.device_name);
    get("cuDeviceGetUuid_v2", d.device_uuid);
    get("cuDeviceGetAttribute", d.device_attribute);
    get("cuDevicePrimaryCtxRetain", d.context_retain);
    get("cuDevicePrimaryCtxRelease_v2", d.context_release);
    get("cuCtxSetCurrent", d.context_set_current);
    get("cuMemGetInfo_v2", d.memory_info);
    get("cuMemAlloc_v2", d.memory_allocate);
    get("cuMemFree_v2", d.memory_free);
    get("cuMemHostAlloc", d.host_allocate);
    get("cuMemFreeHost", d.host_free);
    get("cuMemcpyHtoDAsync_v2", d.copy_to_device);
    get("cuMemcpyDtoHAsync_v2", d.copy_to_host);
    get("cuMemcpyDtoDAsync_v2", d.copy_on_device);
    get("cuMemsetD8Async", d.fill_bytes);
    get("cuModuleLoadData", d.module_load);
    get("cuModuleUnload", d.module_unload);
    get("cuModuleGetFunction", d.module_function);
    get("cuLaunchKernelEx", d.launch);
    get("cuFuncSetAttribute", d.function_attribute);
    get("cuStreamCreate", d.stream_create);
    get("cuStreamDestroy_v2", d.stream_destroy);
    get("cuStreamSynchronize", d.stream_synchronize);
    get("cuStreamQuery", d.stream_query);
    get("cuStreamBeginCapture_v2", d.stream_begin_capture);
    get("cuStreamEndCapture", d.stream_end_capture);
    get("cuGraphInstantiateWithFlags", d.graph_instantiate);
    get("cuGraphUpload", d.graph_upload);
    get("cuGraphLaunch", d.graph_launch);
    get("cuGraphExecDestroy", d.graph_exec_destroy);
    get("cuGraphDestroy", d.graph_destroy);
    get("cuEventCreate", d.event_create);
    get("cuEventDestroy_v2", d.event_destroy);
    get("cuEventRecord", d.event_record);
    get("cuEventSynchronize", d.event_synchronize);
    get("cuEventElapsedTime", d.event_elapsed_ms);
    get("cuGetErrorName", d.error_name);
    return missing;
}

std::string uuid_text(std::span<const unsigned char, 16> bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text = "GPU";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += kDigits[bytes[i] / 16];
        text += kDigits[bytes[i] % 16];
    }
    return text;
}

std::string init_failure(const Driver& driver, Status status, const std::string& path) {
    switch (status) {
        case kStubLibrary:
            return kLibrary + (" at " + path) +
                   " is the toolkit's link-time stub; remove that directory from LD_LIBRARY_PATH";
        case kNoDevice:
            return "the driver finds no GPU; check that one is visible to this process "
                   "(CUDA_VISIBLE_DEVICES, the container's device list)";
        case kSystemDriverMismatch:
        case kCompatNotSupported:
            return "the kernel module and the user library at " + path +
                   " are of different versions: " + status_text(driver, status) +
                   "; reboot after a driver update, or remove the other library from "
                   "LD_LIBRARY_PATH";
        default:
            return "the driver at " + path + " does not start: " + status_text(driver, status);
    }
}

}  // namespace

LibraryLoader system_loader() {
    return {.open = [](const std::string& path, std::string& error) -> void* {
                void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
                if (library == nullptr) error = ::dlerror();
                return library;
            },
            .symbol = [](void* library, const char* symbol) { return ::dlsym(library, symbol); },
            .path = [](void* library) -> std::string {
                link_map* map = nullptr;
                if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "?";
                return map->l_name;
            }};
}

tl::expected<Driver, std::string> load_driver(const LibraryLoader& loader,
                                              const std::string& library_dir) {
    std::string error;
    void* library = nullptr;
    if (!library_dir.empty()) library = loader.open(library_dir + "/" + kLibrary, error);
    if (library == nullptr) library = loader.open(kLibrary, error);
    if (library == nullptr)
        return tl::unexpected("there is no NVIDIA driver here: " + error +
                              "; install one, or use the CPU");
    const std::string path = loader.path(library);
    Driver driver{};
    if (const std::string missing = fill_table(loader, library, driver); !missing.empty())
        return tl::unexpected("the driver at " + path + " has no " + missing +
                              "; it is older than CUDA " + version_text(QUADRIGA_CUDA_VERSION) +
                              ", which this build needs");
    if (const Status status = driver.init(0); status != kSuccess)
        return tl::unexpected(init_failure(driver, status, path));
    int version = 0;
    if (const Status status = driver.driver_version(&version); status != kSuccess)
        return tl::unexpected(init_failure(driver, status, path));
    // Machine code runs on any driver of its major version.
    if (version / 1000 < QUADRIGA_CUDA_VERSION / 1000)
        return tl::unexpected("the driver at " + path + " supports CUDA " + version_text(version) +
                              ", this build is for CUDA " + version_text(QUADRIGA_CUDA_VERSION) +
                              "; update the driver");
    return driver;
}

tl::expected<DeviceFacts, std::string> find_device(const Driver& driver, int ordinal,
                                                   bool has_sm_70) {
    const std::string subject = "device " + std::to_string(ordinal);
    int count = 0;
    if (const Status status = driver.device_count(&count); status != kSuccess)
        return tl::unexpected("the driver does not list its GPUs: " + status_text(driver, status));
    if (ordinal < 0 || ordinal >= count)
        return tl::unexpected(subject + " is not there; the driver shows " + std::to_string(count) +
                              (count == 1 ? " GPU" : " GPUs") + ", numbered from 0");
    DeviceFacts facts;
    char name[256] = {};
    std::array<unsigned char, 16> uuid{};
    Capability card;
    Status status = driver.device_get(&facts.device, ordinal);
    const auto ask = [&](DeviceAttribute attribute, int& value) {
        if (status == kSuccess) status = driver.device_attribute(&value, attribute, facts.device);
    };
    if (status == kSuccess) status = driver.device_name(name, sizeof name - 1, facts.device);
    if (status == kSuccess) status = driver.device_uuid(uuid.data(), facts.device);
    ask(DeviceAttribute::kComputeCapabilityMajor, card.major);
    ask(DeviceAttribute::kComputeCapabilityMinor, card.minor);
    ask(DeviceAttribute::kMultiprocessors, facts.multiprocessors);
    ask(DeviceAttribute::kSharedBytesPerBlockOptIn, facts.shared_bytes_max);
    if (status != kSuccess)
        return tl::unexpected(subject + " does not answer: " + status_text(driver, status));
    facts.name = name;
    facts.uuid = uuid_text(uuid);
    const auto code = code_for(card, has_sm_70);
    if (!code) return tl::unexpected(subject + " (" + facts.name + ") " + code.error());
    facts.code = *code;
    return facts;
}

void check_cuda(const Driver& driver, Status status, const char* what) {
    if (status == kSuccess) return;
    throw CudaError(std::string(what) + ": " + status_text(driver, status), status);
}

void log_if_failed(const Driver& driver, Status status, const char* what) noexcept {
    if (status == kSuccess) return;
    const char* name = nullptr;
    driver.error_name(status, &name);
    std::fprintf(stderr, "level=error event=cuda what=\"%s\" status=%d name=%s\n", what, status,
                 name != nullptr ? name : "?");
}

}  // namespace kernels::cuda
