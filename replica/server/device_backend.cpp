#include "replica/server/device_backend.h"

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
tl::expected<DeviceBackend, StartFailure> open_gpu(const std::string& device) {
    int number = -1;
    const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
    if (error != std::errc() || end != device.data() + device.size() || number < 0) {
        return driver_failure(device, "it is neither cpu nor the number of a GPU",
                              "use --device cpu or --device 0");
    }
    auto backend = kernels::make_cuda_backend({.device = number, .library_dir = {}});
    if (!backend) return driver_failure(device, backend.error(), "or use --device cpu");
    DeviceBackend opened;
    for (const kernels::CudaKernelReport& kernel : (*backend)->kernels()) {
        opened.kernels.push_back({std::string(kernel.name), "armed", ""});
    }
    opened.backend = std::move(*backend);
    return opened;
}
#else
tl::expected<DeviceBackend, StartFailure> open_gpu(const std::string& device) {
    return driver_failure(device, "this build has no backend for GPUs", "use --device cpu");
}
#endif

}  // namespace

tl::expected<DeviceBackend, StartFailure> open_device(const ServerOptions& options) {
    if (options.device != "cpu") return open_gpu(options.device);
    return DeviceBackend{
        kernels::make_cpu_backend({.threads = options.threads, .cores = options.cores}), {}};
}

}  // namespace replica::server
