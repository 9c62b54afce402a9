#include "tests/perf/kernel_gate_bench.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "kernels/cuda/pack_host.h"
#include "kernels/quant/format.h"
#include "tests/kernel/kernel_support.h"

namespace kernels::gate {
namespace {

constexpr std::int64_t kCycleBytes = std::int64_t{200} << 20;  // above three times the L2 of 60 MB
constexpr std::int64_t kMemoryBytes = std::int64_t{1} << 30;   // holds the largest matrix too
constexpr int kWarmups = 3;
constexpr int kRepeats = 31;
constexpr std::size_t kCycles = 4;  // of a graph over all copies: its start weighs less than 1 %
constexpr int kRowsTimed[] = {1, 2, 4, 8, 16, 32, 64};
constexpr double kRooflineSlack = 1.02;  // of a ceiling measured in the same run

/// A megabyte of random blocks, repeated: good for timing, as the values never matter and zeros,
/// which run faster, do not occur.
std::vector<std::uint8_t> timing_blocks(DType dtype, std::int64_t values) {
    test::Random random(99);
    const std::vector<std::uint8_t> piece =
        test::random_blocks(dtype, std::int64_t{8192} * 256, random);
    std::vector<std::uint8_t> blocks(static_cast<std::size_t>(row_bytes(dtype, values)));
    for (std::size_t at = 0; at < blocks.size(); at += piece.size())
        std::copy_n(piece.begin(), std::min(piece.size(), blocks.size() - at),
                    blocks.begin() + static_cast<std::ptrdiff_t>(at));
    return blocks;
}

struct Summary {
    double median, spread;
};
/// Of `calls` calls per repeat.
Summary summarise(std::vector<double> seconds, std::size_t calls) {
    std::ranges::sort(seconds);
    const auto at = [&](std::size_t percent) {
        return seconds[(seconds.size() - 1) * percent / 100];
    };
    return {at(50) / static_cast<double>(calls), (at(90) - at(10)) / at(50)};
}

}  // namespace

LinearBench::LinearBench(Pair& pair) : pair_(pair) {
    const std::int64_t floats[] = {kMemoryBytes / 4};
    memory_ = pair_.cuda().allocate(DType::kF32, floats);
    constexpr DType kXs = DType::kIQ4_XS;
    shapes_ = {{"gate/up", kXs, 34816, 5120, {}},
               {"in-projection qkv, z", kXs, 16384, 5120, {}},
               {"down", kXs, 5120, 17408, {}},
               {"q/k/v", kXs, 14336, 5120, {}},
               {"out", kXs, 5120, 6144, {}},
               {"out", DType::kQ6_K, 5120, 6144, {}},
               {"gate/up", DType::kQ4_K, 34816, 5120, {}},
               {"gate/up", DType::kQ5_K, 34816, 5120, {}},
               {"gate/up", DType::kQ8_0, 34816, 5120, {}},
               {"head", DType::kQ6_K, 248320, 5120, {}}};
    for (Shape& shape : shapes_) {
        const std::vector<std::uint8_t> blocks = timing_blocks(shape.dtype, shape.n * shape.k);
        const MatrixSource source{.name = shape.name,
                                  .dtype = shape.dtype,
                                  .blocks = blocks.data(),
                                  .n = shape.n,
                                  .k = shape.k};
        const std::int64_t bytes = static_cast<std::int64_t>(blocks.size());
        for (std::int64_t held = 0; held < kCycleBytes; held += bytes)
            shape.copies.push_back(pair_.pack_cuda({&source, 1}));
    }
    // Random words over the gigabyte: zeros read faster than data.
    std::vector<std::uint64_t> words(std::size_t{1} << 20);
    std::mt19937_64 engine(5);
    for (std::uint64_t& word : words)
        word = engine();
    const auto piece = std::as_bytes(std::span(words));
    for (std::size_t at = 0; at < static_cast<std::size_t>(kMemoryBytes); at += piece.size())
        pair_.cuda().write(memory_, piece, at);
}

/// What a product must read: packed records, or the file's blocks where no kernel packs them.
std::int64_t LinearBench::bytes_read(const Shape& shape) const {
    return cuda::is_packable(shape.dtype, shape.k)
               ? cuda::packed_bytes(shape.dtype, shape.n, shape.k)
               : row_bytes(shape.dtype, shape.n * shape.k) / 16 * 16;
}

void LinearBench::run() {
    measure_reads();
    // The crossovers hold for steps of more rows than a graph takes; these are decode's.
    pair_.cuda().set_prefill_rows_min(kRowsTimed[std::size(kRowsTimed) - 1] + 1);
    for (const Shape& shape : shapes_)
        for (const int rows : kRowsTimed)
            measure_linear(shape, rows);
    pair_.cuda().set_prefill_rows_min(0);
}

/// At each matrix's size and for the whole gigabyte, over distinct memory back to back.
void LinearBench::measure_reads() {
    std::vector<std::int64_t> sizes;
    for (const Shape& shape : shapes_)
        sizes.push_back(bytes_read(shape));
    sizes.push_back(kMemoryBytes);
    const test::Step step = test::Step::of_rows(1);
    for (const std::int64_t bytes : sizes) {
        const std::int64_t stride = (bytes + 255) / 256 * 256;
        const std::int64_t places = kMemoryBytes / stride;
        const std::int64_t calls = std::max(static_cast<std::int64_t>(kCycles), places);
        pair_.cuda().begin_step(step.descriptor);
        const std::vector<double> seconds = pair_.cuda().time_graph(
            [&] {
                for (std::int64_t i = 0; i < calls; ++i) {
                    TensorView from = memory_;
                    from.data = static_cast<std::byte*>(memory_.data) + i % places * stride;
                    pair_.cuda().read_stream(from, bytes);
                }
            },
            kWarmups, kRepeats);
        pair_.cuda().finish_step();
        reads_.push_back({bytes, summarise(seconds, static_cast<std::size_t>(calls)).median});
    }
}

void LinearBench::measure_linear(const Shape& shape, int rows) {
    pair_.reset();
    test::Random random(3);
    Rows x(rows, shape.k, 0, random.normals(rows * shape.k));
    Rows y(rows, shape.n, 0);
    const TensorView x_device = pair_.place(x);
    const TensorView y_device = pair_.place(y);
    const test::Step step = test::Step::of_rows(rows);
    pair_.cuda().begin_step(step.descriptor);
    const std::vector<double> seconds = pair_.cuda().time_graph(
        [&] {
            for (std::size_t cycle = 0; cycle < kCycles; ++cycle)
                for (const MatrixView& matrix : shape.copies)
                    pair_.cuda().linear({.x = x_device, .w = matrix, .y = y_device});
        },
        kWarmups, kRepeats);
    pair_.cuda().finish_step();
    const Summary summary = summarise(seconds, kCycles * shape.copies.size());
    const std::int64_t bytes = bytes_read(shape);
    const auto read =
        std::ranges::find_if(reads_, [&](const ReadRate& r) { return r.bytes == bytes; });
    times_.push_back({.name = shape.name,
                      .type = std::string(name_of(shape.dtype)),
                      .n = shape.n,
                      .k = shape.k,
                      .rows = rows,
                      .bytes = bytes,
                      .seconds = summary.median,
                      .spread = summary.spread,
                      .ceiling = read->rate()});
}

bool LinearBench::is_plausible() const {
    double best = 0.0;
    for (const ReadRate& read : reads_)
        best = std::max(best, read.rate());
    return std::ranges::all_of(
        times_, [&](const LinearTime& t) { return t.rate() <= kRooflineSlack * best; });
}

void LinearBench::print() const {
    std::printf("\nread alone, in a graph, cold (median of %d)\n%12s %10s %10s\n", kRepeats,
                "bytes", "us", "GB/s");
    for (const ReadRate& read : reads_)
        std::printf("%12lld %10.2f %10.0f\n", static_cast<long long>(read.bytes),
                    read.seconds * 1e6, read.rate() * 1e-9);
    std::printf("\nlinear, 27B, cold weights, in a graph (median of %d)\n", kRepeats);
    std::printf("%-22s %-7s %14s %3s %12s %9s %7s %7s %8s\n", "matrix", "type", "N x K", "M",
                "bytes", "us", "GB/s", "% B(s)", "spread");
    for (const LinearTime& t : times_) {
        const std::string shape = std::to_string(t.n) + " x " + std::to_string(t.k);
        std::printf("%-22s %-7s %14s %3d %12lld %9.2f %7.0f %6.1f%% %7.1f%%\n", t.name.c_str(),
                    t.type.c_str(), shape.c_str(), t.rows, static_cast<long long>(t.bytes),
                    t.seconds * 1e6, t.rate() * 1e-9, 100.0 * t.rate() / t.ceiling,
                    100.0 * t.spread);
    }
}

nlohmann::json LinearBench::to_json() const {
    nlohmann::json reads = nlohmann::json::array();
    for (const ReadRate& read : reads_)
        reads.push_back(
            {{"bytes", read.bytes}, {"seconds", read.seconds}, {"bytes_per_second", read.rate()}});
    nlohmann::json times = nlohmann::json::array();
    for (const LinearTime& t : times_)
        times.push_back({{"matrix", t.name},
                         {"type", t.type},
                         {"n", t.n},
                         {"k", t.k},
                         {"rows", t.rows},
                         {"bytes", t.bytes},
                         {"seconds", t.seconds},
                         {"spread_ratio", t.spread},
                         {"bytes_per_second", t.rate()},
                         {"ceiling_ratio", t.rate() / t.ceiling}});
    return {{"read", reads}, {"linear", times}};
}

}  // namespace kernels::gate
