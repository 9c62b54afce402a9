#include "deploy/launcher/gpu_choice.h"

#include <algorithm>
#include <sstream>

namespace deploy {
namespace {

bool is_number(const std::string& text) {
    return !text.empty() && text.size() <= 4 &&
           text.find_first_not_of("0123456789") == std::string::npos;
}

/// The one card that `text` names, null when none or several do.
const GpuFacts* find_gpu(const std::vector<GpuFacts>& gpus, const std::string& text) {
    const GpuFacts* found = nullptr;
    for (const GpuFacts& gpu : gpus) {
        const bool is_it = is_number(text) ? gpu.index == std::stoi(text)
                           : text.starts_with("GPU-")
                               ? gpu.uuid.starts_with(text)
                               : !gpu.pci.empty() && (text == gpu.pci || text.find(gpu.pci + ".") !=
                                                                             std::string::npos);
        if (!is_it) continue;
        if (found != nullptr) return nullptr;
        found = &gpu;
    }
    return found;
}

std::string list_text(const std::vector<GpuFacts>& gpus) {
    std::string text;
    for (const GpuFacts& gpu : gpus) {
        text += (text.empty() ? "" : ", ") + std::to_string(gpu.index) + " " + gpu.name + " (" +
                gpu.uuid.substr(0, 12) + ")";
    }
    return text.empty() ? "none" : text;
}

tl::unexpected<Failure> refuse(FailureClass kind, std::string what, std::string why,
                               std::string fix) {
    return tl::make_unexpected(Failure{
        .kind = kind, .what = std::move(what), .why = std::move(why), .fix = std::move(fix)});
}

tl::expected<void, Failure> check(const GpuFacts& gpu, const GpuWish& wish) {
    const std::string title = "GPU " + std::to_string(gpu.index) + " (" + gpu.name + ")";
    if (gpu.is_mig) {
        return refuse(FailureClass::kConfig, title + " cannot be used",
                      "it is cut into MIG instances, which are not supported",
                      "choose another with --gpus");
    }
    if (std::ranges::find(wish.architectures, gpu.architecture) == wish.architectures.end()) {
        std::string built;
        for (const std::string& one : wish.architectures)
            built += (built.empty() ? "" : ", ") + one;
        return refuse(FailureClass::kDriver, title + " cannot be used",
                      "it has compute capability " + gpu.architecture +
                          ", the kernels of this build are for " + built,
                      "choose another with --gpus, or use --backend cpu");
    }
    return {};
}

}  // namespace

std::vector<GpuFacts> visible_gpus(const std::vector<GpuFacts>& all, const char* visible) {
    if (visible == nullptr) return all;
    std::vector<GpuFacts> some;
    std::istringstream stream(visible);
    for (std::string entry; std::getline(stream, entry, ',');) {
        const std::size_t begin = entry.find_first_not_of(' ');
        if (begin == std::string::npos) break;
        entry = entry.substr(begin, entry.find_last_not_of(' ') - begin + 1);
        const bool may_be_one = is_number(entry) || entry.starts_with("GPU-");
        const GpuFacts* gpu = may_be_one ? find_gpu(all, entry) : nullptr;
        if (gpu == nullptr) break;
        some.push_back(*gpu);
    }
    return some;
}

tl::expected<std::vector<GpuFacts>, Failure> choose_gpus(const std::vector<GpuFacts>& all,
                                                         const GpuWish& wish) {
    const std::vector<GpuFacts> usable = visible_gpus(all, wish.visible);
    const auto replicas = static_cast<std::size_t>(wish.replicas);
    std::vector<GpuFacts> chosen;
    if (wish.gpus.empty()) {
        if (usable.size() < replicas) {
            return refuse(FailureClass::kConfig,
                          "the layout wants " + std::to_string(replicas) + " GPUs",
                          "there are " + std::to_string(usable.size()) + ": " + list_text(usable) +
                              (wish.visible != nullptr ? " (CUDA_VISIBLE_DEVICES is set)" : ""),
                          usable.empty() ? "use --backend cpu"
                                         : "use --layout " + std::to_string(usable.size()) +
                                               "x1, or name cards twice with --gpus");
        }
        chosen.assign(usable.begin(), usable.begin() + static_cast<std::ptrdiff_t>(replicas));
    } else if (wish.gpus.size() != replicas) {
        return refuse(FailureClass::kConfig,
                      "gpus names " + std::to_string(wish.gpus.size()) + " cards",
                      "the layout has " + std::to_string(replicas) + " replicas of one device",
                      "name one for each replica; a card may stand there several times");
    }
    for (const std::string& text : wish.gpus) {
        const GpuFacts* gpu = find_gpu(usable, text);
        if (gpu == nullptr) {
            return refuse(FailureClass::kConfig, "gpus names '" + text.substr(0, 64) + "'",
                          "that is no card, or several; there are: " + list_text(usable),
                          "give an index, a UUID or a PCI address");
        }
        chosen.push_back(*gpu);
    }
    for (const GpuFacts& gpu : chosen) {
        if (auto ok = check(gpu, wish); !ok) return tl::unexpected(ok.error());
    }
    return chosen;
}

}  // namespace deploy
