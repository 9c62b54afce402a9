#include "tests/perf/kernel_gate_prefill.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "kernels/cuda/prefill_plan.h"
#include "kernels/cuda/prefill_table.h"
#include "kernels/quant/format.h"
#include "tests/kernel/kernel_support.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {
namespace {

constexpr int kWarmups = 2;
constexpr int kRepeats = 11;
constexpr std::size_t kCalls = 4;  // a graph holds
constexpr int kRowsTimed[] = {32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr std::int64_t kNever = std::int64_t{1} << 40;
constexpr std::int64_t kMatmulRowsMax = 256;  // beyond, nobody asks

/// A piece of normal numbers, repeated: the host makes them more slowly than the card multiplies.
std::vector<float> repeated_normals(std::int64_t count, float scale) {
    test::Random random(3);
    const std::vector<float> piece = random.normals(1048583, scale);  // a prime: rows differ
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = piece[i % piece.size()];
    return values;
}

double median(std::vector<double> seconds) {
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
}

}  // namespace

PrefillBench::PrefillBench(Pair& pair) : pair_(pair) {
    constexpr DType kXs = DType::kIQ4_XS;
    const auto add = [&](const char* name, DType dtype, std::vector<std::int64_t> rows,
                         std::int64_t k, Epilogue epilogue) {
        Shape shape{.name = name, .sources = {}, .epilogue = epilogue, .matrix = {}};
        test::Random random(77);
        const std::vector<std::uint8_t> piece =
            test::random_blocks(dtype, std::int64_t{64} * 17408, random);
        std::vector<std::uint8_t> blocks(
            static_cast<std::size_t>(row_bytes(dtype, *std::ranges::max_element(rows) * k)));
        for (std::size_t at = 0; at < blocks.size(); at += piece.size())
            std::copy_n(piece.begin(), std::min(piece.size(), blocks.size() - at),
                        blocks.begin() + static_cast<std::ptrdiff_t>(at));
        for (const std::int64_t n : rows)
            shape.sources.push_back(
                {.name = name, .dtype = dtype, .blocks = blocks.data(), .n = n, .k = k});
        shape.matrix = pair_.pack_cuda(shape.sources);
        shapes_.push_back(std::move(shape));
    };
    add("gate/up", kXs, {17408, 17408}, 5120, Epilogue::kSwiGlu);
    add("in-projection", kXs, {16384}, 5120, Epilogue::kStore);
    add("down", kXs, {5120}, 17408, Epilogue::kAddResidual);
    add("q/k/v", kXs, {14336}, 5120, Epilogue::kStore);
    add("out", kXs, {5120}, 6144, Epilogue::kAddResidual);
    for (const DType dtype : {DType::kQ6_K, DType::kQ5_K, DType::kQ4_K, DType::kQ8_0, DType::kQ4_0,
                              DType::kIQ4_NL, DType::kF16, DType::kBF16, DType::kQ4_1, DType::kQ5_0,
                              DType::kQ5_1, DType::kQ2_K, DType::kQ3_K})
        add("out", dtype, {5120}, 6144, Epilogue::kAddResidual);
}

double PrefillBench::seconds_of(const Shape& shape, int rows, std::int64_t rows_min) {
    pair_.reset();
    const std::int64_t outputs =
        shape.epilogue == Epilogue::kSwiGlu ? shape.matrix.n / 2 : shape.matrix.n;
    Rows x(rows, shape.matrix.k, 0, repeated_normals(rows * shape.matrix.k, 0.02F));
    Rows y(rows, outputs, 0, repeated_normals(rows * outputs, 1.0F));
    const TensorView x_device = pair_.place(x);
    const TensorView y_device = pair_.place(y);
    const test::Step step = test::Step::of_rows(rows);
    pair_.cuda().set_prefill_rows_min(rows_min);
    pair_.cuda().begin_step(step.descriptor);
    const double seconds = median(pair_.cuda().time_graph(
        [&] {
            for (std::size_t i = 0; i < kCalls; ++i)
                pair_.cuda().linear(
                    {.x = x_device, .w = shape.matrix, .epilogue = shape.epilogue, .y = y_device});
        },
        kWarmups, kRepeats));
    pair_.cuda().finish_step();
    pair_.cuda().set_prefill_rows_min(0);
    return seconds / kCalls;
}

void PrefillBench::run() {
    cuda::PrefillLimits limits;
    limits.rows = kLimits.rows;
    const test::Step one = test::Step::of_rows(1);
    const auto timed = [&](const std::function<void()>& call) {
        pair_.cuda().begin_step(one.descriptor);
        const double seconds = median(pair_.cuda().time_graph(
            [&] {
                for (std::size_t i = 0; i < kCalls; ++i)
                    call();
            },
            kWarmups, kRepeats));
        pair_.cuda().finish_step();
        return seconds / kCalls;
    };
    for (Shape& shape : shapes_) {
        shape.dequantise_seconds =
            timed([&] { shape.dequantised_bytes = pair_.cuda().dequantise(shape.matrix); });
        const bool is_main = shape.sources.front().dtype == DType::kIQ4_XS;
        for (const int rows : kRowsTimed) {
            if (!is_main && rows > kMatmulRowsMax) continue;
            const std::int64_t n = shape.matrix.n;
            const std::int64_t slice = cuda::prefill_slice_rows(limits, n, shape.matrix.k);
            const double alone = timed([&] {
                for (std::int64_t at = 0; at < n; at += slice)
                    pair_.cuda().multiply_scratch(std::min(slice, n - at), shape.matrix.k, rows);
            });
            times_.push_back(
                {.shape = &shape,
                 .rows = rows,
                 .path = seconds_of(shape, rows, 1),
                 .matmul = rows <= kMatmulRowsMax ? seconds_of(shape, rows, kNever) : 0,
                 .alone = alone});
        }
    }
}

bool PrefillBench::is_plausible() const {
    return std::ranges::all_of(times_, [](const Time& t) { return t.path >= t.alone; });
}

double PrefillBench::Time::flops() const {
    return 2.0 * static_cast<double>(shape->matrix.n) * static_cast<double>(shape->matrix.k) * rows;
}

void PrefillBench::print() const {
    std::printf("\nprefill scratch %lld bytes\n",
                static_cast<long long>(pair_.cuda().prefill_bytes()));
    std::printf("\nde-quantising alone (median of %d)\n", kRepeats);
    for (const Shape& shape : shapes_)
        std::printf("%-14s %-7s %12lld bytes %9.2f us %7.0f GB/s\n", shape.name.c_str(),
                    std::string(name_of(shape.sources.front().dtype)).c_str(),
                    static_cast<long long>(shape.dequantised_bytes), shape.dequantise_seconds * 1e6,
                    static_cast<double>(shape.dequantised_bytes) / shape.dequantise_seconds * 1e-9);
    std::printf("\nlinear of many tokens, 27B, in a graph (median of %d)\n", kRepeats);
    std::printf("%-14s %-7s %5s %10s %9s %10s %9s %7s %10s\n", "matrix", "type", "M", "us",
                "TFLOP/s", "cuBLASLt", "TFLOP/s", "share", "matmul_mma");
    for (const Time& t : times_)
        std::printf("%-14s %-7s %5d %10.1f %9.1f %10.1f %9.1f %6.1f%% %10.1f\n",
                    t.shape->name.c_str(),
                    std::string(name_of(t.shape->sources.front().dtype)).c_str(), t.rows,
                    t.path * 1e6, t.flops() / t.path * 1e-12, t.alone * 1e6,
                    t.flops() / t.alone * 1e-12, 100.0 * t.alone / t.path, t.matmul * 1e6);
    std::printf("\nrows of prefill_table.h\n");
    for (const Shape& shape : shapes_) {
        std::string matmul, path;
        for (const Time& t : times_) {
            if (t.shape != &shape || t.matmul == 0.0) continue;
            char text[32];
            std::snprintf(text, sizeof text, "%s%.1fF", matmul.empty() ? "" : ", ", t.matmul * 1e6);
            matmul += text;
            std::snprintf(text, sizeof text, "%s%.1fF", path.empty() ? "" : ", ", t.path * 1e6);
            path += text;
        }
        std::printf("    {DType::k%s, %lld, %lld, {%s}, {%s}},\n",
                    std::string(name_of(shape.sources.front().dtype)).c_str(),
                    static_cast<long long>(shape.matrix.n), static_cast<long long>(shape.matrix.k),
                    matmul.c_str(), path.c_str());
    }
}

nlohmann::json PrefillBench::to_json() const {
    nlohmann::json dequantise = nlohmann::json::array();
    for (const Shape& shape : shapes_)
        dequantise.push_back({{"matrix", shape.name},
                              {"type", name_of(shape.sources.front().dtype)},
                              {"bytes", shape.dequantised_bytes},
                              {"seconds", shape.dequantise_seconds}});
    nlohmann::json times = nlohmann::json::array();
    for (const Time& t : times_)
        times.push_back({{"matrix", t.shape->name},
                         {"type", name_of(t.shape->sources.front().dtype)},
                         {"n", t.shape->matrix.n},
                         {"k", t.shape->matrix.k},
                         {"rows", t.rows},
                         {"seconds", t.path},
                         {"cublaslt_seconds", t.alone},
                         {"matmul_mma_seconds", t.matmul}});
    return {{"scratch_bytes", pair_.cuda().prefill_bytes()},
            {"dequantise", dequantise},
            {"linear", times}};
}

}  // namespace kernels::gate
