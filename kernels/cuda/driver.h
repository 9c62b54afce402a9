// The CUDA driver, opened at run time: a table of the functions we call, and its ills in words.
//
// Nothing links to libcuda.so.1, so one binary starts on machines without a GPU and says why it
// cannot use one. The prototypes are our own (the driver's ABI is fixed by its versioned symbol
// names, which driver.cpp lists), so that host code compiles without a toolkit.
#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

#include <tl/expected.hpp>

#include "kernels/cuda/architecture.h"

namespace kernels::cuda {

using Status = int;  // CUresult
inline constexpr Status kSuccess = 0;
inline constexpr Status kOutOfMemory = 2;
inline constexpr Status kStubLibrary = 34;
inline constexpr Status kNoDevice = 100;
inline constexpr Status kNotReady = 600;
inline constexpr Status kSystemDriverMismatch = 803;
inline constexpr Status kCompatNotSupported = 804;

// Opaque handles of the driver.
using DeviceOrdinal = int;
using ContextHandle = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;
using DeviceAddress = unsigned long long;

/// CUdevice_attribute values we ask for.
enum class DeviceAttribute : int {
    kMultiprocessors = 16,
    kSharedBytesPerBlockOptIn = 97,
    kComputeCapabilityMajor = 75,
    kComputeCapabilityMinor = 76,
};

/// CUfunction_attribute values we set.
enum class FunctionAttribute : int { kSharedBytesMax = 8 };

/// CUlaunchAttribute, as far as we use it.
struct LaunchAttribute {
    int id = 0;
    int padding = 0;
    union {
        char bytes[64];
        int value;
    };
};
inline constexpr int kProgrammaticSerialization = 6;  // CU_LAUNCH_ATTRIBUTE_...
/// CUlaunchConfig.
struct LaunchConfig {
    unsigned grid_x = 1, grid_y = 1, grid_z = 1;
    unsigned block_x = 1, block_y = 1, block_z = 1;
    unsigned shared_bytes = 0;
    StreamHandle stream = nullptr;
    LaunchAttribute* attributes = nullptr;
    unsigned attribute_count = 0;
};

struct Driver {
    Status (*init)(unsigned flags);
    Status (*driver_version)(int* version);
    Status (*device_count)(int* count);
    Status (*device_get)(DeviceOrdinal* device, int ordinal);
    Status (*device_name)(char* name, int bytes, DeviceOrdinal device);
    Status (*device_uuid)(unsigned char* sixteen_bytes, DeviceOrdinal device);
    Status (*device_attribute)(int* value, DeviceAttribute attribute, DeviceOrdinal device);
    Status (*context_retain)(ContextHandle* context, DeviceOrdinal device);
    Status (*context_release)(DeviceOrdinal device);
    Status (*context_set_current)(ContextHandle context);
    Status (*memory_info)(std::size_t* free, std::size_t* total);
    Status (*memory_allocate)(DeviceAddress* address, std::size_t bytes);
    Status (*memory_free)(DeviceAddress address);
    Status (*host_allocate)(void** address, std::size_t bytes, unsigned flags);
    Status (*host_free)(void* address);
    Status (*copy_to_device)(DeviceAddress to, const void* from, std::size_t bytes,
                             StreamHandle stream);
    Status (*copy_to_host)(void* to, DeviceAddress from, std::size_t bytes, StreamHandle stream);
    Status (*copy_on_device)(DeviceAddress to, DeviceAddress from, std::size_t bytes,
                             StreamHandle stream);
    Status (*fill_bytes)(DeviceAddress to, unsigned char value, std::size_t bytes,
                         StreamHandle stream);
    Status (*module_load)(ModuleHandle* module, const void* image);
    Status (*module_unload)(ModuleHandle module);
    Status (*module_function)(FunctionHandle* function, ModuleHandle module, const char* name);
    Status (*launch)(const LaunchConfig* config, FunctionHandle function, void** parameters,
                     void** extra);
    Status (*function_attribute)(FunctionHandle function, FunctionAttribute attribute, int value);
    Status (*stream_create)(StreamHandle* stream, unsigned flags);
    Status (*stream_destroy)(StreamHandle stream);
    Status (*stream_synchronize)(StreamHandle stream);
    Status (*stream_query)(StreamHandle stream);
    Status (*stream_begin_capture)(StreamHandle stream, int mode);
    Status (*stream_end_capture)(StreamHandle stream, GraphHandle* graph);
    Status (*graph_instantiate)(GraphExecHandle* exec, GraphHandle graph, unsigned long long flags);
    Status (*graph_upload)(GraphExecHandle exec, StreamHandle stream);
    Status (*graph_launch)(GraphExecHandle exec, StreamHandle stream);
    Status (*graph_exec_destroy)(GraphExecHandle exec);
    Status (*graph_destroy)(GraphHandle graph);
    Status (*event_create)(EventHandle* event, unsigned flags);
    Status (*event_destroy)(EventHandle event);
    Status (*event_record)(EventHandle event, StreamHandle stream);
    Status (*event_synchronize)(EventHandle event);
    Status (*event_elapsed_ms)(float* ms, EventHandle from, EventHandle to);
    Status (*error_name)(Status status, const char** name);
};

/// How the library is found; a fake in tests.
struct LibraryLoader {
    std::function<void*(const std::string& path, std::string& error)> open;
    std::function<void*(void* library, const char* symbol)> symbol;
    std::function<std::string(void* library)> path;  // where `library` was found
};
/// dlopen, RTLD_LOCAL. The library stays open until the process ends: the driver owns threads.
LibraryLoader system_loader();

/// Opens libcuda.so.1 (in `library_dir` first when not empty), initialises it, compares versions.
/// The error is one sentence for the operator.
tl::expected<Driver, std::string> load_driver(const LibraryLoader& loader,
                                              const std::string& library_dir);

struct DeviceFacts {
    DeviceOrdinal device = 0;
    std::string name;
    std::string uuid;  // "GPU-5a1c...", as NVML and nvidia-smi write it
    int multiprocessors = 0;
    int shared_bytes_max = 0;         // of a block that asks for it
    CodeKind code = CodeKind::kSm90;  // that runs on it
};

/// Finds device `ordinal` and checks that our kernels run on it; `has_sm_70`: there is PTX for
/// sm_70. The error is a sentence too.
tl::expected<DeviceFacts, std::string> find_device(const Driver& driver, int ordinal,
                                                   bool has_sm_70);

/// A call that failed after start-up: the device is lost.
class CudaError : public std::runtime_error {
public:
    CudaError(const std::string& text, Status status_code)
        : std::runtime_error(text), status(status_code) {}
    Status status;
};

/// Throws CudaError with `what` and the driver's name of the status.
void check_cuda(const Driver& driver, Status status, const char* what);
/// For destructors: says it on stderr and goes on.
void log_if_failed(const Driver& driver, Status status, const char* what) noexcept;

}  // namespace kernels::cuda
