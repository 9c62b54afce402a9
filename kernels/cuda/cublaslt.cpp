#include "kernels/cuda/cublaslt.h"

#include <cassert>

namespace kernels::cuda {
namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";

// Values of cublasLt's enumerations, as far as we use them.
constexpr int kFloat32 = 0;     // CUDA_R_32F
constexpr int kBinary16 = 2;    // CUDA_R_16F
constexpr int kCompute32 = 68;  // CUBLAS_COMPUTE_32F
constexpr int kLayoutRows = 2, kLayoutColumns = 3, kLayoutStride = 4;
constexpr int kTransposeA = 3;
constexpr int kWorkspaceMax = 1, kReductionMask = 3;
constexpr int kAlignmentFirst = 5;  // of A, B, C, D in turn
constexpr std::uint32_t kAlignmentBytes = 16;
constexpr std::uint32_t kReduceInComputeType = 2;  // in the workspace, in a fixed order

std::string fill_table(const LibraryLoader& loader, void* library, CublasLt& t) {
    std::string missing;
    const auto get = [&](const char* symbol, auto& function) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
            loader.symbol(library, symbol));
        if (function == nullptr && missing.empty()) missing = symbol;
    };
    get("cublasLtCreate", t.create);
    get("cublasLtDestroy", t.destroy);
    get("cublasLtGetVersion", t.version);
    get("cublasLtMatmulDescCreate", t.matmul_create);
    get("cublasLtMatmulDescSetAttribute", t.matmul_set);
    get("cublasLtMatmulDescDestroy", t.matmul_destroy);
    get("cublasLtMatrixLayoutCreate", t.layout_create);
    get("cublasLtMatrixLayoutSetAttribute", t.layout_set);
    get("cublasLtMatrixLayoutDestroy", t.layout_destroy);
    get("cublasLtMatmulPreferenceCreate", t.preference_create);
    get("cublasLtMatmulPreferenceSetAttribute", t.preference_set);
    get("cublasLtMatmulPreferenceDestroy", t.preference_destroy);
    get("cublasLtMatmulAlgoGetHeuristic", t.heuristic);
    get("cublasLtMatmul", t.matmul);
    return missing;
}

}  // namespace

tl::expected<CublasLt, std::string> load_cublaslt(const LibraryLoader& loader,
                                                  const std::string& library_dir) {
    std::string error;
    void* library = nullptr;
    if (!library_dir.empty()) library = loader.open(library_dir + "/" + kLibrary, error);
    if (library == nullptr) library = loader.open(std::string("$ORIGIN/../lib/") + kLibrary, error);
    if (library == nullptr) library = loader.open(kLibrary, error);
    if (library == nullptr) return tl::unexpected("there is no cuBLASLt here: " + error);
    CublasLt table{};
    table.path = loader.path(library);
    if (const std::string missing = fill_table(loader, library, table); !missing.empty())
        return tl::unexpected("cuBLASLt at " + table.path + " has no " + missing);
    return table;
}

tl::expected<std::unique_ptr<LtProducts>, std::string> LtProducts::make(const CublasLt& library) {
    std::unique_ptr<LtProducts> products(new LtProducts(library));
    if (!products->create())
        return tl::unexpected("cuBLASLt at " + library.path + " does not start on this device");
    return products;
}

bool LtProducts::create() {
    const std::int32_t transpose = 1;  // W lies as [n, k], which is [k, n] to the library
    const std::uint64_t workspace = kWorkspaceBytes;
    bool good =
        library_.create(&handle_) == 0 &&
        library_.matmul_create(&matmul_, kCompute32, kFloat32) == 0 &&
        library_.matmul_set(matmul_, kTransposeA, &transpose, sizeof transpose) == 0 &&
        library_.layout_create(&w_, kBinary16, 8, 8, 8) == 0 &&
        library_.layout_create(&x_, kBinary16, 8, 8, 8) == 0 &&
        library_.layout_create(&y_, kFloat32, 8, 8, 8) == 0 &&
        library_.preference_create(&preference_) == 0 &&
        library_.preference_set(preference_, kWorkspaceMax, &workspace, sizeof workspace) == 0 &&
        library_.preference_set(preference_, kReductionMask, &kReduceInComputeType,
                                sizeof kReduceInComputeType) == 0;
    for (int i = 0; i < 4; ++i)
        good = good && library_.preference_set(preference_, kAlignmentFirst + i, &kAlignmentBytes,
                                               sizeof kAlignmentBytes) == 0;
    return good;
}

LtProducts::~LtProducts() {
    if (preference_ != nullptr) library_.preference_destroy(preference_);
    for (const CublasLt::Opaque layout : {w_, x_, y_})
        if (layout != nullptr) library_.layout_destroy(layout);
    if (matmul_ != nullptr) library_.matmul_destroy(matmul_);
    if (handle_ != nullptr) library_.destroy(handle_);
}

void LtProducts::describe(const LtProduct& p, std::int64_t rows) {
    const auto set = [&](CublasLt::Opaque layout, std::int64_t height, std::int64_t width,
                         std::int64_t stride) {
        const auto tall = static_cast<std::uint64_t>(height);
        const auto wide = static_cast<std::uint64_t>(width);
        const bool good = library_.layout_set(layout, kLayoutRows, &tall, sizeof tall) == 0 &&
                          library_.layout_set(layout, kLayoutColumns, &wide, sizeof wide) == 0 &&
                          library_.layout_set(layout, kLayoutStride, &stride, sizeof stride) == 0;
        assert(good && "a layout takes its three numbers");
    };
    set(w_, p.k, p.n, p.w_stride);
    set(x_, p.k, rows, p.x_stride);
    set(y_, p.n, rows, p.y_stride);
}

bool LtProducts::prepare(const LtProduct& p) {
    const Key key{p.n, p.k, p.algorithm_rows, p.adds};
    if (algorithms_.contains(key)) return true;
    describe(p, p.algorithm_rows);
    LtHeuristic found{};
    int count = 0;
    const int status =
        library_.heuristic(handle_, matmul_, w_, x_, y_, y_, preference_, 1, &found, &count);
    if (status != 0 || count < 1 || found.state != 0) return false;
    algorithms_[key] = found.algorithm;
    return true;
}

void LtProducts::run(const LtProduct& p, StreamHandle stream) {
    const bool has_algorithm = prepare(p);
    assert(has_algorithm && "prepare asked for every shape");
    describe(p, p.rows);
    const float beta = p.adds ? 1.0F : 0.0F;
    const int status =
        library_.matmul(handle_, matmul_, &p.alpha, p.w, w_, p.x, x_, &beta, p.y, y_, p.y, y_,
                        &algorithms_.at({p.n, p.k, p.algorithm_rows, p.adds}),
                        reinterpret_cast<void*>(workspace_), kWorkspaceBytes, stream);
    if (status != 0) throw CudaError("cublasLtMatmul: status " + std::to_string(status), status);
    ++runs_;
}

}  // namespace kernels::cuda
