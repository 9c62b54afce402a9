// The list of our kernels: which there are, in which cubin, whether loaded, how often launched.
//
// A kernel is named once, here; a test holds every name to a symbol of its cubin, and the set
// refuses to load when one is missing, so nothing falls back in silence.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/step_trace.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

struct KernelName {
    const char* symbol;
    const char* cubin;  // the .cu file's stem
};

/// Index into kKernelNames, in its order.
enum class KernelId : std::size_t {
    kEmbedRows,
    kNormRows,
    kDeltaNet1,  // keys per lane
    kDeltaNet2,
    kDeltaNet4,
    kStepInputsStore,
    kDeltaStep1,  // value heads of a key head
    kDeltaStep2,
    kDeltaStep3,
    kDeltaStep4,
    kDeltaChunkPrepare,
    kDeltaChunkScan,
    kAttentionAppend,
    kAttention2,  // values of a head per lane
    kAttention4,
    kAttention8,
    kAttentionDecodeFirst,                               // head sizes 64, 128, 256
    kAttentionPrefillFirst = kAttentionDecodeFirst + 3,  // the same
    kSampleRows = kAttentionPrefillFirst + 3,
    kReadStream,
    kPrepareWide,
    kPackFirst,                                 // one for each of kMatmulTypes
    kPeakFirst = kPackFirst + 7,                // then one for each of them
    kMatmulFirst = kPeakFirst + 7,              // then one for each of them
    kMatmulWideFirst = kMatmulFirst + 7,        // then 16, 32 and 64 columns of each of them
    kMatmulWholeFirst = kMatmulWideFirst + 21,  // then one for each of the first kWholeTypes
    kMatmulPairFirst = kMatmulWholeFirst + 4,   // then one for each of kMatmulTypes
    kMatmulMixedFirst = kMatmulPairFirst + 7,   // then one for each of kMatmulMixes
    kLinearFirst = kMatmulMixedFirst + 4,  // then one row and eight rows of each of kLinearTypes
    kCastRows = kLinearFirst + 30,
    kCastRowsShort,
    kFinishRows,
    kFinishSums,
    kDequantiseFirst,                             // one of each of kMatmulTypes
    kDequantiseFileFirst = kDequantiseFirst + 7,  // then two of each of kDequantiseFileTypes
};

/// Types with a packed order and a matmul_mma, in the order of their kernels.
inline constexpr std::array kMatmulTypes = {DType::kIQ4_XS, DType::kQ6_K, DType::kQ5_K,
                                            DType::kQ8_0,   DType::kQ4_K, DType::kQ4_0,
                                            DType::kIQ4_NL};

/// Types of two segments that one launch serves, in the order of their kernels.
struct MatmulMix {
    DType first, second;
};
inline constexpr MatmulMix kMatmulMixes[] = {{DType::kIQ4_XS, DType::kQ5_K},
                                             {DType::kIQ4_XS, DType::kQ6_K},
                                             {DType::kQ4_K, DType::kQ5_K},
                                             {DType::kQ4_K, DType::kQ6_K}};

/// Those that have a matmul_whole: the others lack registers for a record ahead and lose by it.
inline constexpr std::size_t kWholeTypes = 4;

/// A kernel of a list: `first` and `index` after it.
constexpr KernelId kernel_after(KernelId first, std::size_t index) {
    return static_cast<KernelId>(static_cast<std::size_t>(first) + index);
}

/// Weight types with a linear kernel, in the order of their kernels.
inline constexpr std::array kLinearTypes = {
    DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,   DType::kQ4_0,
    DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kIQ4_NL, DType::kQ2_K,
    DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,   DType::kIQ4_XS};

/// Types whose file blocks become binary16 for cuBLASLt, after kMatmulTypes, in kernel order.
inline constexpr std::array kDequantiseFileTypes = {DType::kF32,  DType::kF16,  DType::kBF16,
                                                    DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                                    DType::kQ2_K, DType::kQ3_K};
/// -1 when there is no kernel for such a segment.
int dequantise_type_index(DType dtype, bool is_packed);

std::span<const KernelName> kernel_names();

/// -1 when the type has no kernel.
int linear_type_index(DType dtype);
int matmul_type_index(DType dtype);

/// The kernel for the type's index.
KernelId matmul_kernel(int type_index, int columns, MatmulWay way);
/// All of a type.
std::vector<KernelId> matmul_kernels(std::size_t type_index);

class KernelSet {
public:
    /// Loads the code into the current context. Throws CudaError.
    KernelSet(const Driver& driver, const DeviceCode& code);

    /// Whether the code holds this kernel; the program's own holds all of them.
    bool has(KernelId id) const { return functions_[static_cast<std::size_t>(id)] != nullptr; }

    /// Enqueues a launch; while a step is written down (`record`), adds it to the list instead.
    template <class Params>
    void launch(KernelId id, const GridShape& grid, StreamHandle stream, Params params) {
        if (list_ != nullptr) {
            list_->add(id, grid, &params, sizeof(params));
            return;
        }
        ++runs_[static_cast<std::size_t>(id)];
        launch_raw(id, grid, stream, &params);
        trace(kernel_names()[static_cast<std::size_t>(id)].symbol, stream);
    }
    /// Where launches go from now on; null = to the device.
    void record(LaunchList* list) { list_ = list; }
    bool is_recording() const { return list_ != nullptr; }
    /// Who is told of every launch made from now on; null = nobody.
    void set_trace(StepTrace* trace) { trace_ = trace; }
    /// Work of a library just enqueued.
    void trace(std::string_view name, StreamHandle stream) {
        if (trace_ != nullptr) trace_->after(name, stream);
    }
    /// Makes the first `count` launches of a list, or all; does not count them.
    void enqueue(LaunchList& list, StreamHandle stream, std::size_t count = SIZE_MAX);
    void count(const LaunchList& list);
    // Any thread.
    std::uint64_t runs(std::size_t index) const {
        return runs_[index].load(std::memory_order_relaxed);
    }
    std::uint64_t runs(KernelId id) const { return runs(static_cast<std::size_t>(id)); }
    /// Lets a kernel take this much dynamic shared memory.
    Status allow_shared_bytes(KernelId id, int bytes) {
        assert(has(id) && "a kernel that is loaded");
        return driver_.function_attribute(functions_[static_cast<std::size_t>(id)],
                                          FunctionAttribute::kSharedBytesMax, bytes);
    }

private:
    void launch_raw(KernelId id, const GridShape& grid, StreamHandle stream, void* params);

    const Driver& driver_;
    std::vector<Module> modules_;
    std::vector<FunctionHandle> functions_;
    std::vector<std::atomic<std::uint64_t>> runs_;  // one writer
    LaunchList* list_ = nullptr;
    StepTrace* trace_ = nullptr;
};

}  // namespace kernels::cuda
