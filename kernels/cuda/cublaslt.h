// cuBLASLt, opened at run time like the driver: our own table of its functions and one product.
//
// Nothing links to it (the library has 500 MB): where it is missing, other kernels serve and the
// registry says so. Matrices are row-major here; cuBLASLt counts columns first, so that
// y [rows, n] = x [rows, k] W^T reads to it as D [n, rows] = W x. Algorithms are chosen once per
// shape and fixed: no atomics, splits of K are added up in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <tl/expected.hpp>

#include "kernels/cuda/driver.h"

namespace kernels::cuda {

/// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t, whose layouts are its ABI.
struct LtAlgorithm {
    std::uint64_t data[8];
};
struct LtHeuristic {
    LtAlgorithm algorithm;
    std::size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

struct CublasLt {
    using Opaque = void*;
    int (*create)(Opaque* handle);
    int (*destroy)(Opaque handle);
    std::size_t (*version)();
    int (*matmul_create)(Opaque* description, int compute, int scale);
    int (*matmul_set)(Opaque description, int attribute, const void* value, std::size_t bytes);
    int (*layout_create)(Opaque* layout, int type, std::uint64_t rows, std::uint64_t columns,
                         std::int64_t stride);
    int (*layout_set)(Opaque layout, int attribute, const void* value, std::size_t bytes);
    int (*preference_create)(Opaque* preference);
    int (*preference_set)(Opaque preference, int attribute, const void* value, std::size_t bytes);
    int (*heuristic)(Opaque handle, Opaque matmul, Opaque a, Opaque b, Opaque c, Opaque d,
                     Opaque preference, int wanted, LtHeuristic* found, int* count);
    int (*matmul)(Opaque handle, Opaque matmul, const void* alpha, const void* a, Opaque a_layout,
                  const void* b, Opaque b_layout, const void* beta, const void* c, Opaque c_layout,
                  void* d, Opaque d_layout, const LtAlgorithm* algorithm, void* workspace,
                  std::size_t workspace_bytes, StreamHandle stream);
    int (*matmul_destroy)(Opaque description);
    int (*layout_destroy)(Opaque layout);
    int (*preference_destroy)(Opaque preference);

    std::string path;  // where it was found
};

/// Looks for libcublasLt.so.13 in `library_dir` (when not empty), beside the program in ../lib, on
/// the default path. The error is one sentence.
tl::expected<CublasLt, std::string> load_cublaslt(const LibraryLoader& loader,
                                                  const std::string& library_dir);

/// One product on binary16: y = alpha * x W^T, or added to y. f32 sums and results.
struct LtProduct {
    std::int64_t n = 0, rows = 0, k = 0;
    std::int64_t algorithm_rows = 0;  // the algorithm is the one for so many rows
    const void* w = nullptr;          // [n, k] binary16, w_stride elements apart, 16-byte aligned
    std::int64_t w_stride = 0;
    const void* x = nullptr;  // [rows, k] binary16
    std::int64_t x_stride = 0;
    float* y = nullptr;  // [rows, n], 16-byte aligned
    std::int64_t y_stride = 0;
    float alpha = 1.0F;
    bool adds = false;
};

/// Runs products with one workspace, in the order of one stream. Engine thread only.
class LtProducts {
public:
    static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // as cuBLAS on Hopper

    /// The context is current. The error is one sentence.
    static tl::expected<std::unique_ptr<LtProducts>, std::string> make(const CublasLt& library);
    ~LtProducts();
    LtProducts(const LtProducts&) = delete;
    LtProducts& operator=(const LtProducts&) = delete;

    void set_workspace(DeviceAddress workspace) { workspace_ = workspace; }
    /// Fixes the algorithm for the product's shape; false when the library has none.
    [[nodiscard]] bool prepare(const LtProduct& product);
    /// Enqueues. Throws CudaError: a product that was prepared does not fail on a sound device.
    void run(const LtProduct& product, StreamHandle stream);
    std::uint64_t runs() const { return runs_; }

private:
    using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;
    explicit LtProducts(const CublasLt& library) : library_(library) {}
    bool create();
    void describe(const LtProduct& product, std::int64_t rows);

    CublasLt library_;
    CublasLt::Opaque handle_ = nullptr, matmul_ = nullptr, w_ = nullptr, x_ = nullptr, y_ = nullptr,
                     preference_ = nullptr;
    DeviceAddress workspace_ = 0;
    std::map<Key, LtAlgorithm> algorithms_;
    std::uint64_t runs_ = 0;
};

}  // namespace kernels::cuda
