// kernel-bench: how fast the CPU backend's linear reads weights and multiplies.
//
//   kernel-bench [--benchmark_filter=IQ4_XS] [--benchmark_min_time=0.2]
//
// One line per type, threads and rows M on N x K = 12288 x 4096 (9B, ffn_gate), activations random.
// The matrices of a type together exceed 200 MB, so no cache holds them from one call to the next.
// GB/s counts the bytes of W once; GMAC/s is M * N * K over time.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/quant/format.h"

namespace {

using kernels::DType;

constexpr std::int64_t kOutputs = 12288;
constexpr std::int64_t kInputs = 4096;
constexpr std::int64_t kBytesAtLeast = std::int64_t{200} << 20;

/// Random bytes with scales that are neither huge nor NaN: every 16-bit word is a small binary16.
std::vector<std::uint8_t> random_weights(std::int64_t bytes) {
    std::mt19937_64 engine(1);
    std::vector<std::uint8_t> data(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i + 1 < data.size(); i += 2) {
        const std::uint64_t word = engine();
        data[i] = static_cast<std::uint8_t>(word);
        data[i + 1] = static_cast<std::uint8_t>(0x20U | (word >> 8 & 0x8fU));
    }
    return data;
}

kernels::TensorView matrix_of(std::vector<float>& values, std::int64_t rows) {
    kernels::TensorView view;
    view.data = values.data();
    view.rank = 2;
    view.row_stride = static_cast<std::int64_t>(values.size()) / rows;
    view.shape = {rows, view.row_stride, 0, 0};
    return view;
}

void bench_linear(benchmark::State& state, DType dtype) {
    const auto rows = static_cast<std::int32_t>(state.range(0));
    const auto threads = static_cast<int>(state.range(1));
    const std::int64_t bytes = kernels::row_bytes(dtype, kInputs) * kOutputs;
    const std::int64_t copies = (kBytesAtLeast + bytes - 1) / bytes;
    static std::vector<std::uint8_t> weights;  // shared by the lines of one type
    if (static_cast<std::int64_t>(weights.size()) != bytes * copies)
        weights = random_weights(bytes * copies);

    const auto backend = kernels::make_cpu_backend({.threads = threads, .cores = {}});
    std::vector<kernels::MatrixView> matrices(static_cast<std::size_t>(copies));
    for (std::int64_t i = 0; i < copies; ++i) {
        const kernels::MatrixSource source{"w", dtype, weights.data() + i * bytes, kOutputs,
                                           kInputs};
        if (const auto refusal =
                backend->pack({&source, 1}, matrices[static_cast<std::size_t>(i)])) {
            state.SkipWithError(refusal->text().c_str());
            return;
        }
    }
    const kernels::StepLimits limits{.rows = rows,
                                     .seqs = 1,
                                     .logit_rows = 1,
                                     .blocks_per_seq = 1,
                                     .vocabulary = 1,
                                     .inputs_max = kInputs};
    if (const auto refusal = backend->prepare(limits)) {
        state.SkipWithError(refusal->text().c_str());
        return;
    }
    std::mt19937 engine(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(rows * kInputs));
    for (float& value : x)
        value = normal(engine);
    std::vector<float> y(static_cast<std::size_t>(rows * kOutputs));
    kernels::StepDescriptor step;
    const std::vector<std::int32_t> row_begin = {0, rows};
    step.rows = rows;
    step.seqs = 1;
    step.row_begin = row_begin;

    std::size_t next = 0;
    for (auto _ : state) {
        backend->begin_step(step);
        backend->linear({.x = matrix_of(x, rows), .w = matrices[next], .y = matrix_of(y, rows)});
        backend->finish_step();
        next = (next + 1) % matrices.size();
    }
    const auto calls = static_cast<double>(state.iterations());
    state.counters["GB/s"] =
        benchmark::Counter(calls * static_cast<double>(bytes) / 1e9, benchmark::Counter::kIsRate);
    state.counters["GMAC/s"] = benchmark::Counter(
        calls * static_cast<double>(rows) * kOutputs * kInputs / 1e9, benchmark::Counter::kIsRate);
}

}  // namespace

int main(int argc, char** argv) {
    const DType types[] = {DType::kIQ4_XS, DType::kQ4_1, DType::kQ8_0, DType::kBF16};
    for (const DType dtype : types)
        benchmark::RegisterBenchmark(
            std::string(kernels::name_of(dtype)).c_str(),
            [dtype](benchmark::State& state) { bench_linear(state, dtype); })
            ->ArgsProduct({{1, 4, 16, 512}, {1, 2}})
            ->ArgNames({"M", "threads"})
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    std::printf("%s\n", kernels::make_cpu_backend({})->device().name.c_str());
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
