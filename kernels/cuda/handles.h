// Owners of what the driver hands out: move-only, released in destructors that log and never
// throw. Each keeps a reference to the driver's table, which outlives it. The context of their
// device is current wherever they are made and destroyed.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/cuda/driver.h"

namespace kernels::cuda {

/// A handle and the call that releases it.
template <class Handle, Status (*Driver::*kRelease)(Handle)>
class Owner {
public:
    Owner() = default;
    Owner(const Driver& driver, Handle handle) : driver_(&driver), handle_(handle) {}
    Owner(Owner&& other) noexcept
        : driver_(other.driver_), handle_(std::exchange(other.handle_, Handle{})) {}
    Owner& operator=(Owner&& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Owner() {
        if (handle_ != Handle{}) log_if_failed(*driver_, (driver_->*kRelease)(handle_), "release");
    }
    Handle get() const { return handle_; }

private:
    const Driver* driver_ = nullptr;
    Handle handle_{};
};

using DeviceBuffer = Owner<DeviceAddress, &Driver::memory_free>;
using PinnedBuffer = Owner<void*, &Driver::host_free>;
using Module = Owner<ModuleHandle, &Driver::module_unload>;
using Stream = Owner<StreamHandle, &Driver::stream_destroy>;
using Event = Owner<EventHandle, &Driver::event_destroy>;
using Graph = Owner<GraphHandle, &Driver::graph_destroy>;
using GraphExec = Owner<GraphExecHandle, &Driver::graph_exec_destroy>;

// All throw CudaError.
DeviceBuffer make_device_buffer(const Driver& driver, std::size_t bytes);  // contents undefined
PinnedBuffer make_pinned_buffer(const Driver& driver, std::size_t bytes);
Module load_module(const Driver& driver, const void* image);
Stream make_stream(const Driver& driver);
Event make_event(const Driver& driver);

/// Keeps the device's primary context and makes it current on the calling thread.
class Context {
public:
    Context(const Driver& driver, DeviceOrdinal device);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    void make_current() const;

private:
    const Driver& driver_;
    DeviceOrdinal device_;
    ContextHandle handle_ = nullptr;
};

}  // namespace kernels::cuda
