// Products of many tokens: every output gets the product of its own weights, however a matrix's
// segments are put together, cut into slices, split by SwiGLU and aligned. Proved without a GPU:
// the launches go to a device of host memory whose kernels and library are plain loops. What real
// kernels do inside their outputs is kernel-gate's business.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/cuda/prefill_plan.h"
#include "kernels/quant/decode.h"
#include "kernels/quant/format.h"
#include "kernels/quant/half.h"
#include "tests/kernel/kernel_support.h"

namespace kernels::cuda {
namespace {

constexpr std::uint16_t kPoison = 0x7E00;  // NaN

/// Weights of a segment in the order of the device's rows, and where the device has them.
struct Weights {
    DType dtype;
    bool is_packed;
    std::int64_t rows, k;
    std::vector<float> values;         // [rows, k]
    std::vector<std::uint8_t> memory;  // addresses only
};

/// The fake device; its driver's functions have no context.
struct FakeDevice {
    std::vector<std::unique_ptr<Weights>> weights;
    std::vector<std::uint16_t> slice;  // [.., ld] binary16
    std::vector<std::int64_t> product_columns;
};
FakeDevice* device = nullptr;

float rounded(float value) {
    return f16_to_f32(f32_to_f16(value));
}

void dequantise(const DequantiseParams& p) {
    for (const auto& w : device->weights) {
        const std::uint8_t* begin = w->memory.data();
        if (p.from < begin || p.from >= begin + w->memory.size()) continue;
        const std::int64_t bytes_of_tile =
            w->is_packed ? record_count(w->k) * record_bytes(w->dtype) : p.row_bytes;
        const std::int64_t unit = w->is_packed ? kTileRows : 1;
        ASSERT_EQ((p.from - begin) % bytes_of_tile, 0) << "slices begin at whole tiles";
        const std::int64_t first = (p.from - begin) / bytes_of_tile * unit;
        for (std::int64_t r = 0; r < p.tiles * unit; ++r)
            for (std::int64_t c = 0; c < p.ld; ++c) {
                const std::uint16_t* to = p.y + r * p.ld + c;
                ASSERT_GE(to, device->slice.data());
                ASSERT_LT(to, device->slice.data() + device->slice.size());
                const bool is_weight = first + r < w->rows && c < w->k;
                p.y[r * p.ld + c] = f32_to_f16(
                    is_weight
                        ? p.scale * w->values[static_cast<std::size_t>((first + r) * w->k + c)]
                        : 0.0F);
            }
        return;
    }
    FAIL() << "weights that nobody has";
}

void cast_rows(const CastRowsParams& p) {
    for (std::int64_t m = 0; m < *p.rows; ++m) {
        p.exponents[m] = 0;
        for (std::int64_t c = 0; c < p.ld; ++c)
            p.x16[m * p.ld + c] =
                f32_to_f16(c < p.input.k ? p.input.x[m * p.input.x_stride + c] : 0.0F);
    }
}

float silu(float x) {
    return x / (1.0F + std::exp(-x));
}

void finish_sums(const FinishParams& p) {
    for (std::int64_t m = 0; m < *p.rows; ++m)
        for (std::int64_t n = 0; n < p.columns; ++n) {
            const float* sums = p.sums + m * p.sums_stride;
            float& y = p.y[m * p.y_stride + n];
            if (p.epilogue == LinearEpilogue::kSwiGlu) {
                y = silu(sums[n / 8 * 16 + n % 8]) * sums[n / 8 * 16 + n % 8 + 8];
            } else if (p.epilogue == LinearEpilogue::kAdd) {
                y += sums[n];
            } else {
                y = p.epilogue == LinearEpilogue::kSiluTimes ? silu(y) * sums[n] : sums[n];
            }
        }
}

Status launch(const LaunchConfig*, FunctionHandle function, void** parameters, void**) {
    const std::string_view name = reinterpret_cast<const char*>(function);
    if (name.starts_with("dequantise_"))
        dequantise(*static_cast<const DequantiseParams*>(parameters[0]));
    else if (name.starts_with("cast_rows"))
        cast_rows(*static_cast<const CastRowsParams*>(parameters[0]));
    else if (name == "finish_sums")
        finish_sums(*static_cast<const FinishParams*>(parameters[0]));
    else
        EXPECT_EQ(name, "finish_rows") << "which has nothing to do without a bias";
    return kSuccess;
}

Driver fake_driver() {
    Driver driver{};
    driver.module_load = [](ModuleHandle* module, const void*) -> Status {
        *module = reinterpret_cast<ModuleHandle>(1);
        return kSuccess;
    };
    driver.module_unload = [](ModuleHandle) -> Status { return kSuccess; };
    driver.module_function = [](FunctionHandle* function, ModuleHandle,
                                const char* name) -> Status {
        *function = reinterpret_cast<FunctionHandle>(const_cast<char*>(name));
        return kSuccess;
    };
    driver.launch = launch;
    return driver;
}

struct FakeLayout {
    std::int64_t values[8] = {};  // by attribute: 2 rows, 3 columns, 4 stride
};

CublasLt fake_library() {
    CublasLt t{};
    t.create = [](CublasLt::Opaque*) { return 0; };
    t.destroy = [](CublasLt::Opaque) { return 0; };
    t.matmul_create = [](CublasLt::Opaque*, int, int) { return 0; };
    t.matmul_set = [](CublasLt::Opaque, int, const void*, std::size_t) { return 0; };
    t.layout_create = [](CublasLt::Opaque* layout, int, std::uint64_t, std::uint64_t,
                         std::int64_t) {
        *layout = new FakeLayout;
        return 0;
    };
    t.layout_set = [](CublasLt::Opaque layout, int attribute, const void* value,
                      std::size_t bytes) {
        std::memcpy(&static_cast<FakeLayout*>(layout)->values[attribute], value, bytes);
        return 0;
    };
    t.layout_destroy = [](CublasLt::Opaque layout) {
        delete static_cast<FakeLayout*>(layout);
        return 0;
    };
    t.preference_create = [](CublasLt::Opaque*) { return 0; };
    t.preference_set = [](CublasLt::Opaque, int, const void*, std::size_t) { return 0; };
    t.heuristic = [](CublasLt::Opaque, CublasLt::Opaque, CublasLt::Opaque, CublasLt::Opaque,
                     CublasLt::Opaque, CublasLt::Opaque, CublasLt::Opaque, int, LtHeuristic* found,
                     int* count) {
        *found = {};
        *count = 1;
        return 0;
    };
    t.matmul = [](CublasLt::Opaque, CublasLt::Opaque, const void* alpha, const void* a,
                  CublasLt::Opaque a_layout, const void* b, CublasLt::Opaque b_layout,
                  const void* beta, const void*, CublasLt::Opaque, void* d,
                  CublasLt::Opaque d_layout, const LtAlgorithm*, void*, std::size_t, StreamHandle) {
        const auto& w = static_cast<FakeLayout*>(a_layout)->values;
        const auto& x = static_cast<FakeLayout*>(b_layout)->values;
        const auto& y = static_cast<FakeLayout*>(d_layout)->values;
        for (std::int64_t m = 0; m < x[3]; ++m)
            for (std::int64_t n = 0; n < w[3]; ++n) {
                double sum = 0.0;
                for (std::int64_t k = 0; k < w[2]; ++k)
                    sum += static_cast<double>(
                               f16_to_f32(static_cast<const std::uint16_t*>(a)[n * w[4] + k])) *
                           static_cast<double>(
                               f16_to_f32(static_cast<const std::uint16_t*>(b)[m * x[4] + k]));
                float& to = static_cast<float*>(d)[m * y[4] + n];
                const float added = *static_cast<const float*>(beta) == 0.0F ? 0.0F : to;
                to = static_cast<float>(sum) * *static_cast<const float*>(alpha) + added;
            }
        device->product_columns.push_back(w[3]);
        std::ranges::fill(device->slice, kPoison);  // nothing may be multiplied twice
        return 0;
    };
    t.matmul_destroy = [](CublasLt::Opaque) { return 0; };
    t.preference_destroy = [](CublasLt::Opaque) { return 0; };
    return t;
}

struct SegmentForm {
    DType dtype;
    std::int64_t rows;
    float scale = 1.0F;
    bool is_interleaved = false;
};

struct Form {
    std::vector<SegmentForm> segments;
    std::int64_t k = 256;
    Epilogue epilogue = Epilogue::kStore;
    std::int64_t slice_rows = 1 << 20;  // that the scratch holds
    std::int64_t y_skip = 0;            // floats by which y misses 16 bytes
};

/// A matrix with its numbers, a step's rows, and the path over fakes.
class Products {
public:
    explicit Products(const Form& form)
        : form_(form), driver_(fake_driver()), kernels_(driver_, own_code(CodeKind::kSm90)) {
        device = &device_;
        test::Random random(11);
        for (const SegmentForm& segment : form.segments)
            add(segment, random);
        x_ = random.normals(kRows * form.k);
        products_ = *LtProducts::make(fake_library());
        scratch_.products = products_.get();
        scratch_.rows = kRows;
        scratch_.rows_min = 1;
        scratch_.weight_bytes = form.slice_rows * 2 * prefill_inputs(form.k);
        const PrefillNeed need = prefill_need(std::span(&matrix_, 1), kRows);
        device_.slice.assign(static_cast<std::size_t>(need.weights / 2), kPoison);
        x16_.resize(static_cast<std::size_t>(kRows * prefill_inputs(form.k)));
        exponents_.resize(kRows);
        sums_.assign(static_cast<std::size_t>(need.sums / 4), std::nanf(""));
        scratch_.x = x16_.data();
        scratch_.exponents = exponents_.data();
        scratch_.weights = device_.slice.data();
        scratch_.sums = sums_.data();
        context_.kernels = &kernels_;
        context_.prefill = &scratch_;
        context_.matmul.multiprocessors = 4;
    }

    /// Columns of the products that were made.
    std::vector<std::int64_t> run() {
        y_columns_ = form_.epilogue == Epilogue::kSwiGlu ? matrix_.n / 2 : matrix_.n;
        stride_ = (y_columns_ + 3) / 4 * 4;
        const bool adds = form_.epilogue == Epilogue::kAddResidual;
        memory_.assign(static_cast<std::size_t>(kRows * stride_ + 8), adds ? 0.5F : std::nanf(""));
        y_ = memory_.data();
        while (reinterpret_cast<std::uintptr_t>(y_) % 16 != 0)
            ++y_;
        y_ += form_.y_skip;
        LinearJob job;
        job.matrix = &matrix_;
        job.rows = kRows;
        job.live_rows = &live_rows_;
        job.x = x_.data();
        job.x_stride = form_.k;
        job.epilogue = form_.epilogue;
        job.y = y_;
        job.y_stride = stride_;
        launch_prefill(context_, job);
        return device_.product_columns;
    }

    void expect_right() const {
        for (std::int64_t m = 0; m < kRows; ++m)
            for (std::int64_t n = 0; n < y_columns_; ++n) {
                float wanted = sum(m, n);
                if (form_.epilogue == Epilogue::kSwiGlu)
                    wanted = silu(wanted) * sum(m, n + y_columns_);
                if (form_.epilogue == Epilogue::kAddResidual) wanted += 0.5F;
                const float got = y_[m * stride_ + n];
                const bool is_near = std::abs(got - wanted) <= 2e-3F * (1.0F + std::abs(wanted));
                ASSERT_TRUE(is_near)
                    << "row " << m << ", output " << n << ": " << got << " instead of " << wanted;
            }
    }

private:
    static constexpr std::int64_t kRows = 5;

    void add(const SegmentForm& form, test::Random& random) {
        auto w = std::make_unique<Weights>();
        w->dtype = form.dtype;
        w->is_packed = matmul_type_index(form.dtype) >= 0;
        w->rows = form.rows;
        w->k = form_.k;
        // Plain numbers: what the type makes of them is another test's business.
        const std::vector<float> given = random.normals(form.rows * form_.k, 0.1F);
        w->values = given;
        if (form.is_interleaved)
            for (std::int64_t r = 0; r < form.rows; ++r) {
                const std::int64_t of_tile = r % 16;
                const std::int64_t from =
                    r / 16 * 8 + of_tile % 8 + (of_tile < 8 ? 0 : form.rows / 2);
                std::copy_n(given.begin() + from * form_.k, form_.k,
                            w->values.begin() + r * form_.k);
            }
        given_.insert(given_.end(), given.begin(), given.end());
        SegmentView view{};
        view.row_bytes = format_of(form.dtype).block_bytes *
                         ((form_.k + format_of(form.dtype).block_values - 1) /
                          format_of(form.dtype).block_values);
        w->memory.resize(static_cast<std::size_t>(w->is_packed
                                                      ? packed_bytes(form.dtype, form.rows, form_.k)
                                                      : form.rows * view.row_bytes));
        view.blocks = w->memory.data();
        view.first = static_cast<std::int32_t>(matrix_.n);
        view.outputs = static_cast<std::int32_t>(form.rows);
        view.dtype = static_cast<std::int32_t>(form.dtype);
        view.is_packed = w->is_packed;
        view.is_interleaved = form.is_interleaved;
        view.half_scale = form.scale;
        matrix_.segments[static_cast<std::size_t>(matrix_.segment_count++)] = view;
        matrix_.n += form.rows;
        matrix_.k = form_.k;
        device_.weights.push_back(std::move(w));
    }

    /// Of operands in binary16, as the path has them.
    float sum(std::int64_t m, std::int64_t n) const {
        double sum = 0.0;
        for (std::int64_t k = 0; k < form_.k; ++k)
            sum += static_cast<double>(rounded(given_[static_cast<std::size_t>(n * form_.k + k)])) *
                   static_cast<double>(rounded(x_[static_cast<std::size_t>(m * form_.k + k)]));
        return static_cast<float>(sum);
    }

    Form form_;
    FakeDevice device_;
    Driver driver_;
    KernelSet kernels_;
    Matrix matrix_;
    std::vector<float> given_;  // [n, k] as the model has them
    std::vector<float> x_, sums_, memory_;
    std::vector<std::uint16_t> x16_;
    std::vector<std::int32_t> exponents_;
    std::unique_ptr<LtProducts> products_;
    PrefillScratch scratch_;
    OpContext context_;
    std::int32_t live_rows_ = kRows;
    float* y_ = nullptr;
    std::int64_t y_columns_ = 0, stride_ = 0;
};

using Columns = std::vector<std::int64_t>;

TEST(PrefillProductsTest, SegmentsOfOneScaleAreMultipliedAtOnce) {
    Products products({.segments = {{DType::kQ5_K, 160},
                                    {DType::kIQ4_XS, 36},  // ends inside a tile
                                    {DType::kF32, 8},
                                    {DType::kQ8_0, 24}}});
    EXPECT_EQ(products.run(), (Columns{228}));
    products.expect_right();
}

TEST(PrefillProductsTest, SegmentsOfDifferentScalesAreMultipliedOneByOne) {
    Products products(
        {.segments = {{DType::kQ5_K, 160}, {DType::kIQ4_XS, 36, 1024.0F}, {DType::kF32, 8}}});
    EXPECT_EQ(products.run(), (Columns{160, 36, 8}));
    products.expect_right();
}

TEST(PrefillProductsTest, ASliceMayEndAndBeginInsideSegments) {
    Products products({.segments = {{DType::kQ5_K, 272}, {DType::kIQ4_XS, 160}, {DType::kF16, 21}},
                       .slice_rows = 128});
    EXPECT_EQ(products.run(), (Columns{128, 128, 128, 69}));
    products.expect_right();
}

TEST(PrefillProductsTest, SlicesThatWouldCutATileLeaveSegmentsAlone) {
    Products products({.segments = {{DType::kQ5_K, 36}, {DType::kIQ4_XS, 160}}, .slice_rows = 128});
    EXPECT_EQ(products.run(), (Columns{36, 128, 32}));
    products.expect_right();
}

TEST(PrefillProductsTest, ASumIsAddedToTheResidual) {
    for (const std::int64_t skip : {0, 1}) {  // written by the library, and by a kernel of ours
        Products products({.segments = {{DType::kQ6_K, 96}, {DType::kQ4_0, 48}},
                           .epilogue = Epilogue::kAddResidual,
                           .y_skip = skip});
        EXPECT_EQ(products.run(), (Columns{144}));
        products.expect_right();
    }
}

TEST(PrefillProductsTest, InterleavedHalvesMeetInSwiGlu) {
    Products products({.segments = {{DType::kIQ4_XS, 320, 1.0F, true}},
                       .epilogue = Epilogue::kSwiGlu,
                       .slice_rows = 128});
    EXPECT_EQ(products.run(), (Columns{128, 128, 64}));
    products.expect_right();
}

TEST(PrefillProductsTest, SwiGluCutsASegmentThatReachesAcrossTheMiddle) {
    Products products(
        {.segments = {{DType::kF16, 24}, {DType::kQ8_0, 40}}, .epilogue = Epilogue::kSwiGlu});
    EXPECT_EQ(products.run(), (Columns{24, 8, 32}));
    products.expect_right();
}

TEST(PrefillProductsTest, InputsThatFillNoBlockOfSixtyFourArePadded) {
    Products products({.segments = {{DType::kF16, 40}, {DType::kF32, 9}}, .k = 100, .y_skip = 2});
    EXPECT_EQ(products.run(), (Columns{49}));
    products.expect_right();
}

}  // namespace
}  // namespace kernels::cuda
