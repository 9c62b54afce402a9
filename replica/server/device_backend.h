// The backend of --device: the CPU's, or a GPU's where this build has one.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/backend.h"
#include "replica/server/exit_codes.h"
#include "replica/server/options.h"

namespace replica::server {

struct DeviceBackend {
    std::unique_ptr<kernels::Backend> backend;
    /// Kernels of our own making that the loaded model has work for, with their counters of now.
    /// None on the CPU. Any thread, while the backend lives.
    std::function<std::vector<kernels::KernelEntry>()> kernels;
};

/// Opens the device; weights are not touched yet, so a broken driver is told at once.
tl::expected<DeviceBackend, StartFailure> open_device(const ServerOptions& options);

}  // namespace replica::server
