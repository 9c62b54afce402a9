// The registry of custom kernels: which serve, which do not and why, how often each ran.
//
// A silent fallback passes every numeric test, so every kernel that has one stands here with its
// state and two counters; a test asserts that the kernel ran and its fallback did not. `/info`,
// metrics and the launcher show the same entries; `--require-kernels` turns absence into a refused
// start (`absent`).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kernels {

enum class KernelState {
    kArmed,
    kNotBuilt,   // this program holds no code for it
    kWrongArch,  // "needs sm_90, card is sm_70"
    kDisabled,   // by the operator
    kFailed      // module, symbol, opt-in, self-check or a shape rule, quoted in `reason`
};

std::string_view name_of(KernelState state);

struct KernelEntry {
    std::string name;     // "matmul_mma"
    std::string variant;  // "IQ4_XS"
    KernelState state = KernelState::kArmed;
    std::string reason;    // empty when armed
    std::string fallback;  // what serves in its place; empty = nothing, its absence is a refusal
    std::uint64_t runs = 0;
    std::uint64_t fallback_runs = 0;  // of work that this kernel could have done
    bool is_wanted = true;            // the loaded model has work for it
};

/// "name/variant", or the name alone where there are no variants.
std::string full_name(const KernelEntry& entry);

/// Marks it as one that this device code has no form of.
void mark_wrong_arch(KernelEntry& entry, std::string_view needed = "sm_90",
                     std::string_view code = "sm_70");

/// Wanted by the model and not armed.
bool is_missing(const KernelEntry& entry);

/// "name" or "name/variant", as --disable-kernels and --require-kernels spell it.
bool is_named(const KernelEntry& entry, std::string_view pattern);
bool is_named_by_any(const KernelEntry& entry, std::span<const std::string> patterns);

/// Why a start that requires `patterns` must be refused: one sentence per entry that is not armed
/// or pattern that names none. "*" is every kernel that the model wants. Empty = start.
std::vector<std::string> absent(std::span<const KernelEntry> entries,
                                std::span<const std::string> patterns);

}  // namespace kernels
