#include "tests/perf/kernel_gate_delta_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include <nlohmann/json.hpp>

#include "tests/kernel/kernel_support.h"

namespace kernels::gate {
namespace {

constexpr std::int64_t kStateSize = 128;
constexpr std::int64_t kConvKernel = 4;
constexpr std::int64_t kDrafts = 4;
constexpr std::int64_t kRing = kConvKernel + kDrafts;
constexpr std::int64_t kMemoryBytes = std::int64_t{512} << 20;
constexpr std::int64_t kCycleBytes = std::int64_t{200} << 20;  // above three times the L2 of 60 MB
constexpr int kWarmups = 3;
constexpr int kRepeats = 31;
constexpr int kCopies = 16;              // of a timed group
constexpr double kRooflineSlack = 1.05;  // of the copy rate, which is timed from the host

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}
double spread(std::vector<double> values) {
    std::ranges::sort(values);
    const auto at = [&](std::size_t percent) {
        return values[(values.size() - 1) * percent / 100];
    };
    return (at(90) - at(10)) / at(50);
}

/// Of one value head: S K^T, S Q^T and the update of S; T, P, K K^T and Q K^T up to the diagonal;
/// three terms each. The last two are counted for every value head, as a head of its own has them.
double chunk_products(std::int64_t rows) {
    constexpr std::int64_t kRows = 64;
    const std::int64_t chunks = (rows + kRows - 1) / kRows;
    const std::int64_t full = 3 * kRows * kStateSize * kStateSize;
    const std::int64_t halves = 4 * kRows * kRows * kStateSize / 2;
    return 2.0 * 3.0 * static_cast<double>(chunks * (full + halves));
}

}  // namespace

DeltaNetBench::DeltaNetBench(Pair& pair) : pair_(pair) {
    const std::int64_t shape[] = {2, kMemoryBytes / 8};
    memory_ = pair_.cuda().allocate(DType::kF32, shape);
    // Small random numbers over all of it: zeros move faster than data.
    test::Random random(6);
    const std::vector<float> values = random.normals(std::int64_t{1} << 20, 0.1F);
    const auto piece = std::as_bytes(std::span(values));
    for (std::size_t at = 0; at < static_cast<std::size_t>(kMemoryBytes); at += piece.size())
        pair_.cuda().write(memory_, piece, at);
}

void DeltaNetBench::run() {
    measure_copy();
    const Model models[] = {{"27B", 16, 48}, {"9B", 16, 32}};
    for (const Model& model : models) {
        for (const int seqs : {1, 2, 4, 8, 16, 32, 64})
            measure(model, {"decode", seqs, 1, 0, true});
        for (const int seqs : {1, 8})
            measure(model, {"verify", seqs, 5, 3, false});
        for (const int rows : {512, 2048, 4096, 8192})
            measure(model, {"prefill", 1, rows, 0, true});
        measure(model, {"prefill", 8, 512, 0, true});
    }
}

/// From the host's clock: groups long enough that it does not matter.
void DeltaNetBench::measure_copy() {
    std::vector<double> seconds;
    TensorView word = memory_;
    word.shape[1] = 1;
    std::vector<std::byte> to(sizeof(float));
    for (int i = 0; i < 5; ++i) {
        pair_.cuda().read_item(word, 0, to);
        const auto started = std::chrono::steady_clock::now();
        for (int copy = 0; copy < kCopies; ++copy)
            pair_.cuda().copy_item(memory_, copy % 2, 1 - copy % 2);
        pair_.cuda().read_item(word, 0, to);
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
    }
    copy_rate_ = static_cast<double>(kMemoryBytes) * kCopies / median(seconds);
}

void DeltaNetBench::measure(const Model& model, const Work& work) {
    pair_.reset();
    const std::int64_t key_values = model.n_k * kStateSize;
    const std::int64_t out_values = model.n_v * kStateSize;
    const std::int64_t conv_dim = 2 * key_values + out_values;
    const std::int64_t rows = std::int64_t{work.seqs} * work.rows;
    test::Random random(7);
    const auto place_rows = [&](std::int64_t columns) {
        // A piece over and over: making millions of them costs more than the measurement.
        const std::vector<float> piece =
            random.normals(std::min<std::int64_t>(rows * columns, 99991));
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = piece[i % piece.size()];
        Rows made(rows, columns, 0, values);
        return pair_.place(made);
    };
    const auto place_vector = [&](std::vector<float> values) {
        return pair_.place(test::vector_of(values));
    };
    DeltaNetArgs args;
    args.n_k = model.n_k;
    args.n_v = model.n_v;
    args.state_size = kStateSize;
    args.conv_kernel = kConvKernel;
    args.norm_eps = 1e-6F;
    // As in a model, these are columns of one projection.
    const TensorView projected = place_rows(conv_dim + out_values + 2 * model.n_v);
    args.u = columns(projected, 0, conv_dim);
    args.z = columns(projected, conv_dim, out_values);
    args.beta = columns(projected, conv_dim + out_values, model.n_v);
    args.alpha = columns(projected, conv_dim + out_values + model.n_v, model.n_v);
    std::vector<float> taps = random.normals(conv_dim * kConvKernel, 0.5F);
    args.conv_w = pair_.place(host_view(DType::kF32, {conv_dim, kConvKernel}, taps.data()));
    args.dt_bias = place_vector(random.normals(model.n_v));
    args.a = place_vector(random.uniforms(model.n_v, -1.0F, -0.05F));
    args.norm_weight = place_vector(random.uniforms(kStateSize, 0.5F, 1.5F));
    std::vector<float> y(static_cast<std::size_t>(rows * out_values));
    args.y = pair_.place(host_view(DType::kF32, {rows, out_values}, y.data()));

    std::vector<test::SequencePart> parts;
    for (int s = 0; s < work.seqs; ++s)
        parts.push_back({.kv_len_before = 100,
                         .rows = work.rows,
                         .state_slot = s,
                         .replay_rows = work.replays,
                         .commits = work.commits});
    const test::Step step(parts);
    // Layers follow each other in memory and are cold in turn. Rings and replay rows are shared by
    // the layers: 3 % and 5 % of the bytes.
    const std::int64_t state_bytes = model.n_v * kStateSize * kStateSize * 4;
    const std::int64_t layer_bytes = state_bytes * work.seqs;
    const std::int64_t layers =
        std::min(std::max<std::int64_t>(kCycleBytes / layer_bytes, 2), kMemoryBytes / layer_bytes);
    std::vector<float> ring(static_cast<std::size_t>(work.seqs * kRing * conv_dim));
    args.conv_ring = pair_.place(host_view(DType::kF32, {work.seqs, kRing, conv_dim}, ring.data()));
    const std::int64_t replay_row = key_values + out_values + model.n_v;
    std::vector<float> replay = random.normals(work.seqs * (1 + kDrafts) * replay_row, 0.1F);
    args.replay =
        pair_.place(host_view(DType::kF32, {work.seqs, 1 + kDrafts, replay_row}, replay.data()));
    const auto layer = [&](std::int64_t index) {
        DeltaNetArgs of = args;
        of.state = host_view(DType::kF32, {work.seqs, model.n_v, kStateSize, kStateSize},
                             static_cast<std::byte*>(memory_.data) + index * layer_bytes);
        return of;
    };
    const std::int64_t calls = work.name == "prefill" ? 2 : std::max<std::int64_t>(layers, 16);
    const auto time = [&](bool is_chained, bool has_net) {
        pair_.cuda().begin_step(step.descriptor);
        std::vector<double> seconds = pair_.cuda().time_graph(
            [&] {
                for (std::int64_t i = 0; i < calls; ++i) {
                    if (has_net) pair_.cuda().delta_net(layer(i % layers));
                    if (!is_chained) pair_.cuda().read_stream(memory_, 16);
                }
            },
            kWarmups, kRepeats);
        pair_.cuda().finish_step();
        for (double& value : seconds)
            value /= static_cast<double>(calls);
        return seconds;
    };
    const std::vector<double> chained = time(true, true);
    std::int64_t bytes = 2 * layer_bytes;
    double products = 0.0;
    if (work.name == "prefill") {
        bytes += rows * (projected.shape[1] + out_values) * 4;
        products = chunk_products(work.rows) * model.n_v * work.seqs;
    }
    double alone = 0.0;
    if (work.name != "prefill") alone = median(time(false, true)) - median(time(false, false));
    times_.push_back({.model = model.name,
                      .work = work.name,
                      .seqs = work.seqs,
                      .rows = work.rows,
                      .bytes = bytes,
                      .products = products,
                      .chained = median(chained),
                      .alone = alone,
                      .spread = spread(chained)});
}

bool DeltaNetBench::is_plausible() const {
    return std::ranges::all_of(times_, [&](const DeltaNetTime& t) {
        return static_cast<double>(t.bytes) / t.chained <= kRooflineSlack * copy_rate_;
    });
}

void DeltaNetBench::print() const {
    std::printf("\ncopy on the device: %.0f GB/s, read and written\n", copy_rate_ * 1e-9);
    std::printf("delta net, one layer, cold states, in a graph (median of %d)\n", kRepeats);
    std::printf("%-5s %-8s %5s %5s %12s %10s %10s %7s %7s %8s %8s\n", "model", "work", "seqs",
                "rows", "bytes", "us", "us alone", "GB/s", "% copy", "spread", "TFLOP/s");
    for (const DeltaNetTime& t : times_) {
        const double rate = static_cast<double>(t.bytes) / t.chained;
        std::printf("%-5s %-8s %5d %5d %12lld %10.2f %10.2f %7.0f %6.1f%% %7.1f%% %8.1f\n",
                    t.model.c_str(), t.work.c_str(), t.seqs, t.rows,
                    static_cast<long long>(t.bytes), t.chained * 1e6, t.alone * 1e6, rate * 1e-9,
                    100.0 * rate / copy_rate_, 100.0 * t.spread, t.products / t.chained * 1e-12);
    }
}

nlohmann::json DeltaNetBench::to_json() const {
    nlohmann::json times = nlohmann::json::array();
    for (const DeltaNetTime& t : times_)
        times.push_back({{"model", t.model},
                         {"work", t.work},
                         {"seqs", t.seqs},
                         {"rows", t.rows},
                         {"bytes", t.bytes},
                         {"product_operations", t.products},
                         {"seconds", t.chained},
                         {"seconds_alone", t.alone},
                         {"spread_ratio", t.spread}});
    return {{"copy_bytes_per_second", copy_rate_}, {"delta_net", times}};
}

}  // namespace kernels::gate
