// The list of our kernels: which there are, in which .cu file, for which architecture.
//
// A kernel is named once, here; a test holds every name to a symbol of its cubin, and
// tests/volta/ptx to an entry of its PTX. Pure, without CUDA.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/lane_plan.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/tensor.h"

namespace kernels::cuda {

struct KernelName {
    const char* symbol;
    const char* cubin;  // the .cu file's stem
};

/// A .cu file and which code there is of it: a cubin for sm_90a, PTX for sm_70, or both.
struct DeviceFile {
    std::string_view stem;
    bool has_sm_90;
    bool has_sm_70;
};
std::span<const DeviceFile> device_files();

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
    kAttentionDecodeFirst,  // head sizes 64, 128, 256; of each 8, 16, 32 columns
    kAttentionPrefillFirst = kAttentionDecodeFirst + 9,  // head sizes
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
    kQuantiseLanes = kDequantiseFileFirst + 16,   // from here on those of sm_70 alone
    kHalveLanes,
    kFinishLanes,
    kPackLanesFirst,                          // one for each of kMatmulTypes
    kMatmulHmmaFirst = kPackLanesFirst + 7,   // then one for each of them
    kMatmulDp4aFirst = kMatmulHmmaFirst + 7,  // then one for each of kDp4aWidths of each of them
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
const KernelName& name_of(KernelId id);
/// Whether code of this kind holds the kernel.
bool has_code(KernelId id, CodeKind code);

/// -1 when the type has no kernel.
int linear_type_index(DType dtype);
int matmul_type_index(DType dtype);

/// The kernel for the type's index.
KernelId matmul_kernel(int type_index, int columns, MatmulWay way);
/// The plain kernels: of a type, for one row or more; for heads and states up to a size.
KernelId linear_kernel(int type_index, bool is_wide);
KernelId attention_kernel(std::int32_t head_dim);
KernelId delta_net_kernel(std::int32_t state_size);
/// All of a type, but those of sm_70.
std::vector<KernelId> matmul_kernels(std::size_t type_index);
/// Those of sm_70, for the type's index; `width` is one of kDp4aWidths.
KernelId matmul_dp4a_kernel(int type_index, int width);
KernelId matmul_hmma_kernel(int type_index);
KernelId pack_lanes_kernel(int type_index);

}  // namespace kernels::cuda
