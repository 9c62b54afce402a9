#include "kernels/cuda/device_code.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "kernels/cuda/kernel_names.h"

namespace kernels::cuda {
namespace {

constexpr std::string_view kTarget = "\n.target sm_70\n";
constexpr std::uintmax_t kBytesMax = std::uintmax_t{64} << 20;  // of a file; ours have some 100 KB

}  // namespace

DeviceCode own_code(CodeKind kind) {
    const std::span<const Cubin> all = kind == CodeKind::kSm90 ? cubins() : sm_70_ptx();
    return {.images = {all.begin(), all.end()}, .texts = {}, .kind = kind};
}

std::string missing_file(const DeviceCode& code) {
    for (const DeviceFile& file : device_files()) {
        if (!(code.kind == CodeKind::kSm90 ? file.has_sm_90 : file.has_sm_70)) continue;
        if (std::ranges::find(code.images, file.stem, &Cubin::name) == code.images.end())
            return std::string(file.stem);
    }
    return {};
}

tl::expected<DeviceCode, std::string> read_ptx(const std::string& folder) {
    std::error_code error;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
    if (error) return tl::unexpected(folder + " cannot be read: " + error.message());
    if (paths.empty()) return tl::unexpected(folder + " has no .ptx files");
    std::ranges::sort(paths);
    DeviceCode code{.images = {}, .texts = {}, .kind = CodeKind::kSm70};
    for (const std::filesystem::path& path : paths) {
        const std::uintmax_t bytes = std::filesystem::file_size(path, error);
        if (error || bytes > kBytesMax)
            return tl::unexpected(path.string() + " is too large, or no file");
        std::string& text = code.texts.emplace_back(static_cast<std::size_t>(bytes), '\0');
        if (!std::ifstream(path, std::ios::binary)
                 .read(text.data(), static_cast<std::streamsize>(bytes)))
            return tl::unexpected(path.string() + " cannot be read");
        if (text.find(kTarget) == std::string::npos)
            return tl::unexpected(path.string() + " is no PTX for sm_70");
        const std::string& name = code.texts.emplace_back(path.stem().string());
        code.images.push_back({name, std::as_bytes(std::span(text.c_str(), text.size() + 1))});
    }
    return tl::expected<DeviceCode, std::string>(std::move(code));  // names point into it
}

}  // namespace kernels::cuda
