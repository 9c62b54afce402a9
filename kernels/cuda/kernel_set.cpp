#include "kernels/cuda/kernel_set.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "kernels/cuda/cubins.h"

namespace kernels::cuda {
KernelSet::KernelSet(const Driver& driver, const DeviceCode& code)
    : driver_(driver),
      kind_(code.kind),
      functions_(kernel_names().size()),
      runs_(kernel_names().size()) {
    for (const Cubin& cubin : code.images) {
        modules_.push_back(load_module(driver_, cubin.image.data()));
        for (std::size_t i = 0; i < kernel_names().size(); ++i) {
            if (kernel_names()[i].cubin != cubin.name) continue;
            const std::string what = std::string("kernel ") + kernel_names()[i].symbol;
            check_cuda(driver_,
                       driver_.module_function(&functions_[i], modules_.back().get(),
                                               kernel_names()[i].symbol),
                       what.c_str());
        }
    }
    for (std::size_t i = 0; i < functions_.size(); ++i)
        assert((functions_[i] != nullptr) == has_code(static_cast<KernelId>(i), kind_) &&
               "the code holds what the list says");
}

void KernelSet::launch_raw(KernelId id, const GridShape& grid, StreamHandle stream, void* params) {
    const auto index = static_cast<std::size_t>(id);
    assert(has(id) && "the registries ask");
    assert(grid.x > 0 && grid.x < (std::int64_t{1} << 31) && grid.y > 0 && grid.y <= 65535 &&
           "a grid the hardware takes");
    void* parameters[] = {params};
    // Kernels of sm_70 wait for nothing by themselves, and cards before sm_90 do not know the word.
    const bool overlaps = grid.overlaps_previous && kind_ == CodeKind::kSm90;
    LaunchAttribute overlap{};
    overlap.id = kProgrammaticSerialization;
    overlap.value = 1;
    const LaunchConfig config = {.grid_x = static_cast<unsigned>(grid.x),
                                 .grid_y = static_cast<unsigned>(grid.y),
                                 .block_x = static_cast<unsigned>(grid.threads),
                                 .shared_bytes = static_cast<unsigned>(grid.shared_bytes),
                                 .stream = stream,
                                 .attributes = &overlap,
                                 .attribute_count = overlaps ? 1U : 0U};
    check_cuda(driver_, driver_.launch(&config, functions_[index], parameters, nullptr),
               kernel_names()[index].symbol);
}

void KernelSet::enqueue(LaunchList& list, StreamHandle stream, std::size_t count) {
    const std::span<const Launch> launches = list.launches();
    for (const Launch& launch : launches.first(std::min(count, launches.size())))
        launch_raw(launch.id, launch.grid, stream, list.params(launch));
}

}  // namespace kernels::cuda
