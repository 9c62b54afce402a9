// kernel-gate: holds every operation of the CUDA backend against the CPU in double, then measures.
//
//     kernel-gate [--device N] [--small] [--plain] [--no-times] [--threads N] [--json FILE]
//
// Outputs are poisoned before each run, once with NaN and once with the answer to other inputs;
// guard zones surround them; comparisons are false for NaN; an error of zero between different
// arithmetic is a miss; every run is repeated and must agree bit for bit; altered weights must be
// seen; every kernel must have run. Times are taken only when all of that holds.
//
// Exit: 0 all passed; 1 a miss; 2 bad arguments; 3 no usable GPU.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/cuda/kernel_names.h"
#include "tests/perf/kernel_gate_attention_bench.h"
#include "tests/perf/kernel_gate_bench.h"
#include "tests/perf/kernel_gate_cases.h"
#include "tests/perf/kernel_gate_delta_bench.h"
#include "tests/perf/kernel_gate_prefill.h"

namespace kernels::gate {
namespace {

constexpr int kExitMiss = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoDevice = 3;

struct Flags {
    int device = 0;
    int threads = 0;
    bool small = false;
    bool no_times = false;
    bool plain = false;
    bool without_hmma = false;
    std::string only;
    std::string library_dir;
    std::string ptx_folder;
    std::string json_path;
};

std::string lower(std::string text) {
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

std::vector<Case> all_cases(Pair& pair, const Flags& flags) {
    std::vector<Case> cases;
    const CaseOptions options{.small = flags.small};
    const auto add = [&](const char* name, auto make) {
        if (!flags.only.empty() && flags.only != name) return;
        for (Case& made : make())
            cases.push_back(std::move(made));
    };
    add("rows", [&] { return row_cases(pair); });
    add("sample", [&] { return sample_cases(pair, options); });
    add("delta_net", [&] { return delta_net_cases(pair, options); });
    add("delta_net", [&] { return delta_chunk_cases(pair, options); });
    add("attention", [&] { return attention_cases(pair, options); });
    add("mutation", [&] { return mutation_cases(pair); });
    add("linear", [&] { return linear_cases(pair, options); });
    add("prefill", [&] { return prefill_cases(pair, options); });
    return cases;
}

/// What the run was asked to prove: our fast kernels, their fallbacks, or the code of sm_70.
struct Turn {
    bool is_plain = false;
    bool is_sm_70 = false;
    bool without_hmma = false;  // of sm_70: matmul_dp4a at any row count

    bool is_lanes(const KernelEntry& entry) const {
        return entry.name == "matmul_dp4a" || entry.name == "matmul_hmma";
    }
    bool expects_armed(const KernelEntry& entry) const {
        if (entry.name == "matmul_hmma" && without_hmma) return false;
        return is_lanes(entry) ? is_sm_70 : !is_plain;
    }
    /// On sm_70 products have kernels of their own; on sm_90 those have no work.
    bool expects_fallback(const KernelEntry& entry) const {
        if (is_lanes(entry)) return is_sm_70 && !expects_armed(entry);
        if (is_sm_70 && entry.name == "matmul_mma") return false;
        return !expects_armed(entry);
    }
    /// Whether the cases must have launched it.
    bool expects_run(cuda::KernelId id, const std::vector<KernelEntry>& entries) const {
        if (!cuda::has_code(id, is_sm_70 ? cuda::CodeKind::kSm70 : cuda::CodeKind::kSm90))
            return false;
        const std::string_view name = cuda::name_of(id).symbol;
        if (name == "read_stream") return false;  // measures
        // The widest takes over where matmul_hmma is off.
        if (name.starts_with("matmul_dp4a_") && name.ends_with("_64")) return without_hmma;
        if (name.starts_with("matmul_hmma_") || name == "halve_lanes" || name == "finish_lanes")
            return !without_hmma;
        const bool is_matmul =
            name.starts_with("matmul_") || name.starts_with("pack_") || name == "prepare_wide" ||
            name.starts_with("attention_decode_") || name.starts_with("attention_prefill_") ||
            name.starts_with("delta_step_") || name.starts_with("delta_chunk_") ||
            name.starts_with("dequantise_") || name.starts_with("largest_") ||
            name.starts_with("finish_") || name.starts_with("cast_rows") || name == "sample_rows";
        const bool is_fallback = std::ranges::any_of(entries, [&](const KernelEntry& entry) {
            return entry.name == "matmul_mma" &&
                   name.starts_with("linear_" + lower(entry.variant) + "_");
        });
        if (is_sm_70) return !is_fallback;
        return is_plain ? !is_matmul : !is_fallback;
    }
};

/// Kernels the cases never launched: a silent fallback would pass every numeric check. Of a kernel
/// with a fallback one of the two must have run, as its state says, and the other must not.
CaseResult kernels_ran(const CudaBackend& backend, const Turn& turn) {
    CaseResult result{.op = "registry", .shape = "every kernel ran", .may_be_exact = true};
    const std::vector<KernelEntry> entries = backend.armed_kernels();
    for (const KernelEntry& entry : entries) {
        const std::string name = entry.name + "/" + entry.variant;
        const bool is_armed = entry.state == KernelState::kArmed;
        if (is_armed != turn.expects_armed(entry))
            result.complain(name + " is " + std::string(name_of(entry.state)) + ": " +
                            entry.reason);
        if ((entry.runs > 0) != is_armed)
            result.complain(name + " ran " + std::to_string(entry.runs));
        if ((entry.fallback_runs > 0) != turn.expects_fallback(entry))
            result.complain("the fallback of " + name + " ran " +
                            std::to_string(entry.fallback_runs));
    }
    const std::vector<CudaKernelReport> kernels = backend.kernels();
    for (std::size_t i = 0; i < kernels.size(); ++i)
        if (turn.expects_run(static_cast<cuda::KernelId>(i), entries) && kernels[i].runs == 0)
            result.complain(std::string(kernels[i].name) + " never ran");
    return result;
}

nlohmann::json registry_json(const CudaBackend& backend) {
    nlohmann::json registry = nlohmann::json::array();
    for (const KernelEntry& entry : backend.armed_kernels())
        registry.push_back({{"name", entry.name},
                            {"variant", entry.variant},
                            {"state", name_of(entry.state)},
                            {"reason", entry.reason},
                            {"fallback", entry.fallback},
                            {"runs", entry.runs},
                            {"fallback_runs", entry.fallback_runs}});
    return registry;
}

nlohmann::json runs_json(const CudaBackend& backend) {
    nlohmann::json runs;
    for (const CudaKernelReport& kernel : backend.kernels())
        runs[std::string(kernel.name)] = kernel.runs;
    return runs;
}

std::vector<std::string> disabled_kernels(const Flags& flags) {
    if (flags.without_hmma) return {"matmul_hmma"};
    if (!flags.plain || !flags.ptx_folder.empty()) return {};
    return {"matmul_mma",  "attention_decode", "attention_prefill", "delta_step",
            "delta_chunk", "matmul_cublaslt",  "sample_rows"};
}

int run(const Flags& flags) {
    auto backend = make_cuda_backend({.device = flags.device,
                                      .library_dir = flags.library_dir,
                                      .disabled_kernels = disabled_kernels(flags),
                                      .ptx_folder = flags.ptx_folder});
    if (!backend) {
        std::fprintf(stderr, "kernel-gate: %s\n", backend.error().c_str());
        return kExitNoDevice;
    }
    const std::string device = (*backend)->device().name;
    std::printf("%s\n", device.c_str());
    const auto started = std::chrono::steady_clock::now();
    Pair pair(std::move(*backend), flags.threads);
    const std::vector<Case> cases = all_cases(pair, flags);
    std::unique_ptr<LinearBench> bench;
    std::unique_ptr<AttentionBench> attention_bench;
    std::unique_ptr<DeltaNetBench> delta_bench;
    const auto is_timed = [&](const char* name) {
        return !flags.no_times && (flags.only.empty() || flags.only == name);
    };
    if (is_timed("linear")) bench = std::make_unique<LinearBench>(pair);
    if (is_timed("attention")) attention_bench = std::make_unique<AttentionBench>(pair);
    if (is_timed("delta_net")) delta_bench = std::make_unique<DeltaNetBench>(pair);
    std::unique_ptr<PrefillBench> prefill;
    if (!flags.plain && is_timed("prefill")) prefill = std::make_unique<PrefillBench>(pair);
    pair.prepare(kLimits);

    std::vector<CaseResult> results;
    for (const Case& one : cases)
        results.push_back(one());
    if (flags.only.empty())
        results.push_back(
            kernels_ran(pair.cuda(), {flags.plain, !flags.ptx_folder.empty(), flags.without_hmma}));
    print_table(results);
    std::size_t misses = 0;
    for (const CaseResult& result : results)
        if (!result.passed()) ++misses;
    nlohmann::json report = {{"device", device}, {"cases", to_json(results)}};
    const bool has_passed = misses == 0;
    const auto measure = [&](auto& one, const char* name) {
        if (!one || !has_passed) return;
        one->run();
        one->print();
        report[name] = one->to_json();
        if (one->is_plausible()) return;
        std::printf("MISS an operation was faster than memory\n");
        ++misses;
    };
    measure(bench, "times");
    measure(attention_bench, "attention_times");
    measure(delta_bench, "delta_net_times");
    measure(prefill, "prefill");
    if (!has_passed && !flags.no_times) std::printf("\nno times: the checks did not pass\n");
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    std::printf("\n%zu cases, %zu misses, %.1f s\n", results.size(), misses, seconds);
    report["misses"] = misses;
    report["seconds"] = seconds;
    report["kernel_runs"] = runs_json(pair.cuda());
    report["kernels"] = registry_json(pair.cuda());
    if (!flags.json_path.empty()) std::ofstream(flags.json_path) << report.dump(1) << '\n';
    return misses == 0 ? 0 : kExitMiss;
}

}  // namespace
}  // namespace kernels::gate

int main(int argc, char** argv) {
    kernels::gate::Flags flags;
    CLI::App app{"Holds the CUDA backend against the CPU reference, then measures it."};
    app.add_option("--device", flags.device, "number of the GPU");
    app.add_option("--threads", flags.threads, "threads of the reference; 0 = all processors");
    app.add_flag("--small", flags.small, "small shapes only (for compute-sanitizer)");
    app.add_flag("--plain", flags.plain,
                 "with our fast kernels disabled: the turn of the fallbacks");
    app.add_flag("--no-times", flags.no_times, "checks only");
    app.add_option("--only", flags.only, "one group of cases")
        ->check(CLI::IsMember(
            {"rows", "sample", "delta_net", "attention", "mutation", "linear", "prefill"}));
    app.add_option("--cuda-lib-dir", flags.library_dir, "folder of libcublasLt.so.13");
    app.add_option(
        "--ptx-sm70", flags.ptx_folder,
        "run the PTX of this folder (tests/volta/ptx) in place of the program's code: "
        "its products, "
        "and else the turn of the fallbacks; with --plain matmul_dp4a at every row count");
    app.add_option("--json", flags.json_path, "file for the results");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kernels::gate::kExitUsage;
    }
    flags.without_hmma = flags.plain && !flags.ptx_folder.empty();
    flags.plain = flags.plain || !flags.ptx_folder.empty();
    try {
        return kernels::gate::run(flags);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kernel-gate: %s\n", error.what());
        return kernels::gate::kExitMiss;
    }
}
