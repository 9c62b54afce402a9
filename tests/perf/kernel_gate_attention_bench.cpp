#include "tests/perf/kernel_gate_attention_bench.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include <nlohmann/json.hpp>

#include "kernels/quant/half.h"
#include "tests/kernel/kernel_support.h"

namespace kernels::gate {
namespace {

// A layer of the 27B.
constexpr std::int64_t kHeads = 24, kKvHeads = 4, kDim = 256, kRot = 64, kBlockTokens = 64;
constexpr std::int64_t kTokenBytes = kKvHeads * kDim * 2;      // of K, and of V
constexpr std::int64_t kPages = std::int64_t{16} * 1024;       // a million tokens
constexpr std::int64_t kCycleBytes = std::int64_t{256} << 20;  // four times the L2
constexpr std::int64_t kGraphBytes = std::int64_t{1} << 30;    // and launches of a graph
constexpr int kWarmups = 3;
constexpr int kRepeats = 31;
constexpr double kFlopsMax = 990e12;     // of the data sheet; a product reaches 830e12
constexpr double kRooflineSlack = 1.02;  // of a ceiling measured in the same run

struct Summary {
    double median, spread;
};
Summary summarise(std::vector<double> seconds, std::int64_t calls) {
    std::ranges::sort(seconds);
    const auto at = [&](std::size_t percent) {
        return seconds[(seconds.size() - 1) * percent / 100];
    };
    return {at(50) / static_cast<double>(calls), (at(90) - at(10)) / at(50)};
}

/// Rows of a layer on the device, until the pair is reset; pages are the caller's.
struct LayerInputs {
    Rows q, k, v, y;
    std::vector<float> norm, rope;
    AttentionArgs args;

    LayerInputs(Pair& pair, std::int64_t rows, std::int32_t kv_len)
        : q(rows, kHeads * kDim * 2, 0, values(rows * kHeads * kDim * 2)),
          k(rows, kKvHeads * kDim, 0, values(rows * kKvHeads * kDim)),
          v(rows, kKvHeads * kDim, 0, values(rows * kKvHeads * kDim)),
          y(rows, kHeads * kDim, 0),
          norm(test::Random(3).uniforms(kDim, 0.5F, 1.5F)),
          rope(static_cast<std::size_t>(kv_len * kRot), 0.70710678F) {
        args.n_h = kHeads;
        args.n_kv = kKvHeads;
        args.head_dim = kDim;
        args.n_rot = kRot;
        args.has_gate = true;
        args.norm_eps = 1e-6F;
        args.q = pair.place(q);
        args.k = pair.place(k);
        args.v = pair.place(v);
        args.y = pair.place(y);
        args.q_norm = pair.place(test::vector_of(norm));
        args.k_norm = pair.place(test::vector_of(norm));
        args.rope = pair.place(host_view(DType::kF32, {kv_len, kRot}, rope.data()));
    }
    /// A piece of an odd length over and over: drawing all of a long chunk takes longer than the
    /// rest.
    static std::vector<float> values(std::int64_t count) {
        const std::vector<float> piece =
            test::Random(3).normals(std::min<std::int64_t>(count, 1'000'003));
        std::vector<float> all(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = piece[i % piece.size()];
        return all;
    }
};

}  // namespace

AttentionBench::AttentionBench(Pair& pair) : pair_(pair) {
    const std::int64_t shape[] = {kPages, kKvHeads, kBlockTokens, kDim};
    k_pages_ = pair_.cuda().allocate(DType::kF16, shape);
    v_pages_ = pair_.cuda().allocate(DType::kF16, shape);
    test::Random random(7);
    std::vector<std::uint16_t> piece(std::size_t{8} << 20);  // 16 MB, over and over
    for (std::uint16_t& half : piece)
        half = f32_to_f16(random.uniform(-2.0F, 2.0F));
    const auto bytes = std::as_bytes(std::span(piece));
    for (std::size_t at = 0; at < static_cast<std::size_t>(kPages * kBlockTokens * kTokenBytes);
         at += bytes.size()) {
        pair_.cuda().write(k_pages_, bytes, at);
        pair_.cuda().write(v_pages_, bytes, at);
    }
}

void AttentionBench::run() {
    for (const std::int32_t seqs : {1, 8, 32})
        for (const std::int32_t kv_len : {1024, 4096, 16384, 65536, 131072})
            if (std::int64_t{seqs} * kv_len <= kPages * kBlockTokens) measure(kv_len, seqs, 1);
    for (const std::int32_t rows : {2, 5, 16})
        for (const std::int32_t kv_len : {1024, 16384, 131072})
            measure(kv_len, 1, rows);
    for (const std::int32_t rows : {128, 512, 2048, 4096})
        measure_chunk(0, rows);
    for (const std::int32_t kv_before : {4096, 28672, 126976})
        measure_chunk(kv_before, 4096);
}

/// Keys alone, over distinct memory back to back.
double AttentionBench::measure_read(std::int64_t bytes) {
    const std::int64_t all = kPages * kBlockTokens * kTokenBytes;
    const std::int64_t size = std::min(bytes, kGraphBytes);
    const std::int64_t places = all / size;
    const std::int64_t calls = std::max<std::int64_t>(4, std::min(places, kGraphBytes / size));
    const test::Step step = test::Step::of_rows(1);
    pair_.cuda().begin_step(step.descriptor);
    const std::vector<double> seconds = pair_.cuda().time_graph(
        [&] {
            for (std::int64_t i = 0; i < calls; ++i) {
                TensorView from = k_pages_;
                from.data = static_cast<std::byte*>(k_pages_.data) + i % places * size;
                pair_.cuda().read_stream(from, size);
            }
        },
        kWarmups, kRepeats);
    pair_.cuda().finish_step();
    const double rate = static_cast<double>(size) / summarise(seconds, calls).median;
    best_read_ = std::max(best_read_, rate);
    return rate;
}

void AttentionBench::measure(std::int32_t kv_len, std::int32_t seqs, std::int32_t rows) {
    pair_.reset();
    const std::int64_t pages_of_seq = kv_len / kBlockTokens;
    const std::int64_t pages = pages_of_seq * seqs;
    std::vector<test::SequencePart> parts;
    for (std::int32_t s = 0; s < seqs; ++s) {
        test::SequencePart part{.kv_len_before = kv_len - rows, .rows = rows};
        for (std::int64_t b = 0; b < pages_of_seq; ++b)
            part.blocks.push_back(static_cast<std::int32_t>(s * pages_of_seq + b));
        parts.push_back(part);
    }
    LayerInputs inputs(pair_, std::int64_t{seqs} * rows, kv_len);
    AttentionArgs& args = inputs.args;

    const std::int64_t bytes = pages * kBlockTokens * kTokenBytes * 2;
    const std::int64_t layers =
        std::clamp<std::int64_t>((kCycleBytes + bytes - 1) / bytes, 1, kPages / pages);
    const std::int64_t calls =
        std::max<std::int64_t>(layers, std::min<std::int64_t>(256, kGraphBytes / bytes));
    const test::Step step(parts, static_cast<std::int32_t>(pages_of_seq));
    pair_.cuda().begin_step(step.descriptor);
    const std::vector<double> seconds = pair_.cuda().time_graph(
        [&] {
            for (std::int64_t i = 0; i < calls; ++i) {
                args.kv = {.k = k_pages_, .v = v_pages_};
                const std::int64_t skip = i % layers * pages * kBlockTokens * kTokenBytes;
                args.kv.k.data = static_cast<std::byte*>(k_pages_.data) + skip;
                args.kv.v.data = static_cast<std::byte*>(v_pages_.data) + skip;
                pair_.cuda().attention(args);
            }
        },
        kWarmups, kRepeats);
    pair_.cuda().finish_step();
    const Summary summary = summarise(seconds, calls);
    times_.push_back({.kv_len = kv_len,
                      .seqs = seqs,
                      .rows = rows,
                      .bytes = bytes,
                      .seconds = summary.median,
                      .spread = summary.spread,
                      .ceiling = measure_read(bytes)});
}

void AttentionBench::measure_chunk(std::int32_t kv_before, std::int32_t rows) {
    pair_.reset();
    const std::int64_t kv_len = std::int64_t{kv_before} + rows;
    const std::int64_t pages = (kv_len + kBlockTokens - 1) / kBlockTokens;
    test::SequencePart part{.kv_len_before = kv_before, .rows = rows};
    for (std::int64_t b = 0; b < pages; ++b)
        part.blocks.push_back(static_cast<std::int32_t>(b));
    LayerInputs inputs(pair_, rows, static_cast<std::int32_t>(kv_len));
    inputs.args.kv = {.k = k_pages_, .v = v_pages_};
    const test::Step step({part}, static_cast<std::int32_t>(pages));
    pair_.cuda().begin_step(step.descriptor);
    constexpr int kChunkRepeats = 11;
    const Summary summary = summarise(
        pair_.cuda().time_graph([&] { pair_.cuda().attention(inputs.args); }, 1, kChunkRepeats), 1);
    pair_.cuda().finish_step();
    const double tokens_seen =
        static_cast<double>(rows) * kv_before + static_cast<double>(rows) * (rows + 1) / 2;
    chunk_times_.push_back({.kv_before = kv_before,
                            .rows = rows,
                            .flops = 4.0 * kDim * kHeads * tokens_seen,
                            .seconds = summary.median,
                            .spread = summary.spread});
}

bool AttentionBench::is_plausible() const {
    return std::ranges::all_of(
               times_,
               [&](const AttentionTime& t) { return t.rate() <= kRooflineSlack * best_read_; }) &&
           std::ranges::all_of(chunk_times_,
                               [](const AttentionChunkTime& t) { return t.rate() <= kFlopsMax; });
}

void AttentionBench::print() const {
    std::printf(
        "\nattention, a layer of the 27B (24 query, 4 KV heads of 256, F16), cold pages, in "
        "a graph (median of %d)\n",
        kRepeats);
    std::printf("%8s %5s %5s %12s %9s %7s %7s %8s\n", "context", "seqs", "rows", "bytes", "us",
                "GB/s", "% B(s)", "spread");
    for (const AttentionTime& t : times_)
        std::printf("%8d %5d %5d %12lld %9.2f %7.0f %6.1f%% %7.1f%%\n", t.kv_len, t.seqs, t.rows,
                    static_cast<long long>(t.bytes), t.seconds * 1e6, t.rate() * 1e-9,
                    100.0 * t.rate() / t.ceiling, 100.0 * t.spread);
    std::printf("\nits rows of a prompt, K and V written first\n%8s %6s %11s %9s %9s %8s\n",
                "before", "rows", "GFLOP", "us", "TFLOP/s", "spread");
    for (const AttentionChunkTime& t : chunk_times_)
        std::printf("%8d %6d %11.1f %9.1f %9.1f %7.1f%%\n", t.kv_before, t.rows, t.flops * 1e-9,
                    t.seconds * 1e6, t.rate() * 1e-12, 100.0 * t.spread);
}

nlohmann::json AttentionBench::to_json() const {
    nlohmann::json times = nlohmann::json::array();
    for (const AttentionTime& t : times_)
        times.push_back({{"kv_len", t.kv_len},
                         {"seqs", t.seqs},
                         {"rows", t.rows},
                         {"bytes", t.bytes},
                         {"seconds", t.seconds},
                         {"spread_ratio", t.spread},
                         {"bytes_per_second", t.rate()},
                         {"ceiling_ratio", t.rate() / t.ceiling}});
    for (const AttentionChunkTime& t : chunk_times_)
        times.push_back({{"kv_before", t.kv_before},
                         {"rows", t.rows},
                         {"flops", t.flops},
                         {"seconds", t.seconds},
                         {"spread_ratio", t.spread},
                         {"flops_per_second", t.rate()}});
    return times;
}

}  // namespace kernels::gate
