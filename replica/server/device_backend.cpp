#include "replica/server/device_backend.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#ifdef QUADRIGA_HAS_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace replica::server {
namespace {

tl::unexpected<StartFailure> driver_failure(const std::string& device, std::string why,
                                            std::string fix) {
    return tl::make_unexpected(StartFailure{ExitCode::kDriver,
                                            {.id = "Q1000",
                                             .error_class = "driver",
                                             .what = "device " + device,
                                             .why = std::move(why),
                                             .fix = std::move(fix)}});
}

#ifdef QUADRIGA_HAS_CUDA
/// Those with a fallback one by one, the others, which are there or the backend is not, by file.
std::vector<kernels::KernelEntry> kernels_of(const kernels::CudaBackend& backend) {
    std::vector<kernels::KernelEntry> entries = backend.armed_kernels();
    std::erase_if(entries, [](const kernels::KernelEntry& entry) { return !entry.is_wanted; });
    const std::size_t chosen = entries.size();
    for (const kernels::CudaKernelReport& kernel : backend.kernels()) {
        // Products are listed by type already; packing is over, and measuring is no serving.
        const bool is_listed =
            kernel.file.starts_with("matmul") || kernel.file == "pack" ||
            kernel.file == "read_stream" ||
            std::any_of(
                entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(chosen),
                [&](const kernels::KernelEntry& entry) { return entry.name == kernel.file; });
        if (is_listed) continue;
        if (entries.size() == chosen || entries.back().name != kernel.file) {
            kernels::KernelEntry entry;
            entry.name = std::string(kernel.file);
            entries.push_back(std::move(entry));
        }
        entries.back().runs += kernel.runs;
    }
    return entries;
}

tl::expected<DeviceBackend, StartFailure> open_gpu(const ServerOptions& options) {
    const std::string& device = options.device;
    int number = -1;
    const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
    if (error != std::errc() || end != device.data() + device.size() || number < 0) {
        return driver_failure(device, "it is neither cpu nor the number of a GPU",
                              "use --device cpu or --device 0");
    }
    auto backend = kernels::make_cuda_backend({.device = number,
                                               .library_dir = options.cuda_library_dir,
                                               .disabled_kernels = options.disable_kernels});
    if (!backend) return driver_failure(device, backend.error(), "or use --device cpu");
    DeviceBackend opened;
    opened.kernels = [gpu = backend->get()] { return kernels_of(*gpu); };
    opened.backend = std::move(*backend);
    return opened;
}
#else
tl::expected<DeviceBackend, StartFailure> open_gpu(const ServerOptions& options) {
    return driver_failure(options.device, "this build has no backend for GPUs", "use --device cpu");
}
#endif

}  // namespace

std::string gpu_architectures() {
    std::string text;
#ifdef QUADRIGA_HAS_CUDA
    for (const std::string& one : kernels::cuda_architectures())
        text += (text.empty() ? "" : " ") + one;
#endif
    return text;
}

tl::expected<DeviceBackend, StartFailure> open_device(const ServerOptions& options) {
    if (options.device != "cpu") return open_gpu(options);
    return DeviceBackend{
        kernels::make_cpu_backend({.threads = options.threads, .cores = options.cores}),
        [] { return std::vector<kernels::KernelEntry>{}; }};
}

}  // namespace replica::server
