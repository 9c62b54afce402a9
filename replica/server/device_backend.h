// The backend of --device: the CPU's, or a GPU's where this build has one.
#pragma once

#include <memory>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/backend.h"
#include "proto/ready_pipe.h"
#include "replica/server/exit_codes.h"
#include "replica/server/options.h"

namespace replica::server {

struct DeviceBackend {
    std::unique_ptr<kernels::Backend> backend;
    std::vector<proto::KernelState> kernels;  // of our own making; none on the CPU
};

/// Opens the device; weights are not touched yet, so a broken driver is told at once.
tl::expected<DeviceBackend, StartFailure> open_device(const ServerOptions& options);

}  // namespace replica::server
