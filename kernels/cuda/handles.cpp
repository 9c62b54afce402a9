#include "kernels/cuda/handles.h"

namespace kernels::cuda {
namespace {

constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

}  // namespace

DeviceBuffer make_device_buffer(const Driver& driver, std::size_t bytes) {
    DeviceAddress address = 0;
    check_cuda(driver, driver.memory_allocate(&address, bytes), "cuMemAlloc");
    return {driver, address};
}

PinnedBuffer make_pinned_buffer(const Driver& driver, std::size_t bytes) {
    void* address = nullptr;
    check_cuda(driver, driver.host_allocate(&address, bytes, 0), "cuMemHostAlloc");
    return {driver, address};
}

Module load_module(const Driver& driver, const void* image) {
    ModuleHandle module = nullptr;
    check_cuda(driver, driver.module_load(&module, image), "cuModuleLoadData");
    return {driver, module};
}

Stream make_stream(const Driver& driver) {
    StreamHandle stream = nullptr;
    check_cuda(driver, driver.stream_create(&stream, kStreamNonBlocking), "cuStreamCreate");
    return {driver, stream};
}

Event make_event(const Driver& driver) {
    EventHandle event = nullptr;
    check_cuda(driver, driver.event_create(&event, 0), "cuEventCreate");
    return {driver, event};
}

Context::Context(const Driver& driver, DeviceOrdinal device) : driver_(driver), device_(device) {
    check_cuda(driver_, driver_.context_retain(&handle_, device_), "cuDevicePrimaryCtxRetain");
    make_current();
}

Context::~Context() {
    log_if_failed(driver_, driver_.context_release(device_), "cuDevicePrimaryCtxRelease");
}

void Context::make_current() const {
    check_cuda(driver_, driver_.context_set_current(handle_), "cuCtxSetCurrent");
}

}  // namespace kernels::cuda
