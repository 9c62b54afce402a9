#include "kernels/backend.h"

#include "kernels/quant/format.h"

namespace kernels {

std::uint64_t Backend::packed_bytes(std::span<const MatrixSource> sources) const {
    std::uint64_t bytes = 0;
    for (const MatrixSource& source : sources)
        bytes += static_cast<std::uint64_t>(source.n * row_bytes(source.dtype, source.k));
    return bytes;
}

std::string Refusal::text() const {
    return subject + ": " + value + " " + rule + "; " + remedy;
}

}  // namespace kernels
