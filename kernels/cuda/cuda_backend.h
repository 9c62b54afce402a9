// The CUDA backend: every operation of the seam as plain kernels for one GPU.
//
// Weights of the types that matmul_mma knows are repacked at load for the tensor cores, and
// meet activations in binary16 with a power of two per row; the other types keep the file's blocks
// and f32. README.md of this folder walks through it and says what is still slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/backend.h"

namespace kernels {

struct CudaBackendOptions {
    int device = 0;
    std::string library_dir;  // where libcuda.so.1 and libcublasLt.so.13 are looked for first
    std::vector<std::string> disabled_kernels;  // as armed.h spells them: "matmul_mma/Q6_K"
    /// For tests: PTX for sm_70 on a card that would take cubins; from this folder (device_code.h),
    std::string ptx_folder;
    bool with_own_ptx = false;  // or the program's own
};

/// One kernel of ours and how often it was launched. Every kernel is loaded at start or the
/// backend does not start, so that what is listed is armed.
struct CudaKernelReport {
    std::string_view name;
    std::string_view file;  // its .cu file's stem
    std::uint64_t runs = 0;
};

/// A launch of a traced step: a kernel's or a library's name, and how long it took.
struct CudaTracedLaunch {
    std::string_view name;
    double us = 0.0;
};

/// A launch of a step; seconds as in cuda/step_timeline.h.
struct CudaLaunchTime {
    std::string_view kernel;
    std::int64_t blocks = 0;
    double seconds = 0.0;
};

/// What tests and measuring programs may do beyond the seam.
class CudaBackend : public Backend {
public:
    /// Copies between host and the backend's memory, after everything enqueued before. `write`
    /// returns when `bytes` may change, `read` when they are there. `offset_bytes` counts from the
    /// view's address.
    virtual void write(const TensorView& to, std::span<const std::byte> bytes,
                       std::size_t offset_bytes) = 0;
    virtual void read(const TensorView& from, std::span<std::byte> bytes,
                      std::size_t offset_bytes) = 0;
    /// Any thread.
    virtual std::vector<CudaKernelReport> kernels() const = 0;

    /// From the next step on launches are made one by one with an event behind each; slower, and no
    /// graph is used. `last_trace` gives those of the last step, in order.
    virtual void set_tracing(bool is_tracing) = 0;
    virtual std::span<const CudaTracedLaunch> last_trace() const = 0;

    /// Captures what `enqueue` launches into one graph, runs it `warmups` times and then
    /// `repeats` times; seconds of each repeat, in order. Only inside a step; `enqueue` must not
    /// begin or finish one.
    virtual std::vector<double> time_graph(const std::function<void()>& enqueue, int warmups,
                                           int repeats) = 0;
    /// From so many tokens on products go to cuBLASLt; 0 = as measured (prefill_table.h).
    virtual void set_prefill_rows_min(std::int64_t rows) = 0;
    /// What a row's bits depend on there; 0 = so many tokens do not go there.
    virtual std::uint64_t prefill_numerics(const LinearArgs& args, std::int64_t rows) const = 0;
    /// Bytes reserved for that path.
    virtual std::int64_t prefill_bytes() const = 0;
    /// De-quantises the matrix's first slice as that path does; enqueued only. Bytes moved.
    virtual std::int64_t dequantise(const MatrixView& matrix) = 0;
    /// The product alone on what lies in the scratch: n x k times rows, the yardstick.
    virtual void multiply_scratch(std::int64_t n, std::int64_t k, std::int64_t rows) = 0;
    /// What each launch of the next step takes (cuda/step_timeline.h), found before the step runs
    /// by running it many times: the step's own results mean nothing.
    virtual void time_next_step(int repeats) = 0;
    virtual std::vector<CudaLaunchTime> step_times() const = 0;
    /// Reads the first `bytes` of the view once, as fast as a kernel can; enqueued only.
    virtual void read_stream(const TensorView& from, std::int64_t bytes) = 0;
};

/// Whether the program holds PTX for sm_70.
bool has_cuda_sm_70();

/// Compute capabilities the kernels of this build are written for: "9.0", and "7.0" with PTX for
/// it.
std::vector<std::string> cuda_architectures();

// What a CudaBackend's packed_bytes and load_bytes say, for planning without a device: no less.
std::uint64_t cuda_packed_bytes(std::span<const MatrixSource> sources);
std::uint64_t cuda_load_bytes();

/// Opens the driver and the device, loads every kernel. The error is one sentence for the
/// operator: no driver, a stub of it, one too old, no such device, a device of another kind.
/// The calling thread need not be the one that serves.
tl::expected<std::unique_ptr<CudaBackend>, std::string> make_cuda_backend(
    const CudaBackendOptions& options);

}  // namespace kernels
