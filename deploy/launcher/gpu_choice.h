// Which GPU each replica gets: pure, from what NVML lists and what the operator asks for.
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "deploy/launcher/failure.h"
#include "deploy/launcher/nvml.h"

namespace deploy {

struct GpuWish {
    /// UUIDs (or their beginnings), NVML indices or PCI addresses, one for each replica; a card may
    /// stand there several times. Empty: the first cards there are, one each.
    std::vector<std::string> gpus;
    /// CUDA_VISIBLE_DEVICES of the launcher's own environment; null: not set.
    const char* visible = nullptr;
    int replicas = 1;
    std::vector<std::string> architectures;  // that kernels exist for: "9.0"
};

/// Cards that CUDA_VISIBLE_DEVICES leaves, in its order. As the driver reads it: indices in order
/// of PCI addresses or beginnings of UUIDs, and what follows an entry that names no card is
/// ignored.
std::vector<GpuFacts> visible_gpus(const std::vector<GpuFacts>& all, const char* visible);

/// The card of each replica, or why there is none (kDriver, kConfig).
tl::expected<std::vector<GpuFacts>, Failure> choose_gpus(const std::vector<GpuFacts>& all,
                                                         const GpuWish& wish);

}  // namespace deploy
