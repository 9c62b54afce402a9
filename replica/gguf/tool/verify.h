// `quadriga-gguf verify`: everything that can be known about a file without running it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/reader.h"
#include "replica/gguf/tool/progress.h"

namespace replica {

struct VerifyReport {
    std::uint64_t tensors = 0;
    std::uint64_t blocks = 0;           // whose scales (or values) were read
    bool shapes_checked = false;        // the architecture is one whose tensors we know
    std::vector<GgufError> faults;      // at most kVerifyFaultsMax
    std::vector<std::string> warnings;  // legal, but odd: tensors nobody asks for
};

inline constexpr std::size_t kVerifyFaultsMax = 50;

struct VerifyJob {
    std::filesystem::path input;
    int threads = 0;  // 0 = all cores
    Progress::Style progress = Progress::Style::kSilent;
};

/// Opens (an error here is a broken container), compares shapes, then reads every scale.
GgufResult<VerifyReport> verify(const VerifyJob& job);

/// Index of the first block whose scales, or first value that, is infinite or NaN; -1 if none.
std::int64_t first_non_finite_block(kernels::DType dtype, const std::byte* blocks,
                                    std::int64_t block_count);

}  // namespace replica
