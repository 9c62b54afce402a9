// What is wrong with a driver is said in one sentence that names the remedy; proved with a fake
// library, without CUDA. And: every kernel the backend names is a symbol of its cubin.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cubins.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/kernel_set.h"

namespace kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What the fake driver answers.
struct Answers {
    Status init = kSuccess;
    int version = 99000;
    int devices = 1;
    int major = 9;
    int minor = 0;
};
Answers answers;

Status fake_init(unsigned) {
    return answers.init;
}
Status fake_version(int* version) {
    *version = answers.version;
    return kSuccess;
}
Status fake_count(int* count) {
    *count = answers.devices;
    return kSuccess;
}
Status fake_get(DeviceOrdinal* device, int ordinal) {
    *device = ordinal;
    return kSuccess;
}
Status fake_name(char* name, int, DeviceOrdinal) {
    std::strcpy(name, "Fake 9000");
    return kSuccess;
}
Status fake_attribute(int* value, DeviceAttribute attribute, DeviceOrdinal) {
    *value = attribute == DeviceAttribute::kComputeCapabilityMajor   ? answers.major
             : attribute == DeviceAttribute::kComputeCapabilityMinor ? answers.minor
                                                                     : 132;
    return kSuccess;
}
Status fake_error_name(Status, const char** name) {
    *name = "FAKE_ERROR";
    return kSuccess;
}
Status fake_other() {
    return kSuccess;
}

void* fake_symbol(const std::string& name) {
    const std::map<std::string, void*> table = {
        {"cuInit", reinterpret_cast<void*>(&fake_init)},
        {"cuDriverGetVersion", reinterpret_cast<void*>(&fake_version)},
        {"cuDeviceGetCount", reinterpret_cast<void*>(&fake_count)},
        {"cuDeviceGet", reinterpret_cast<void*>(&fake_get)},
        {"cuDeviceGetName", reinterpret_cast<void*>(&fake_name)},
        {"cuDeviceGetAttribute", reinterpret_cast<void*>(&fake_attribute)},
        {"cuGetErrorName", reinterpret_cast<void*>(&fake_error_name)}};
    const auto found = table.find(name);
    return found != table.end() ? found->second : reinterpret_cast<void*>(&fake_other);
}

LibraryLoader fake_loader() {
    return {.open = [](const std::string&, std::string&) -> void* { return &answers; },
            .symbol = [](void*, const char* name) { return fake_symbol(name); },
            .path = [](void*) -> std::string { return "/opt/fake/libcuda.so.1"; }};
}

std::string failure_of(const Answers& given) {
    answers = given;
    const auto driver = load_driver(fake_loader(), "");
    if (!driver) return driver.error();
    const auto device = find_device(*driver, 0, false);
    return device ? "" : device.error();
}

TEST(CudaDriverTest, AGoodDriverHasNothingToSay) {
    EXPECT_EQ(failure_of({}), "");
}

TEST(CudaDriverTest, AMissingLibraryIsNoDriver) {
    LibraryLoader loader = fake_loader();
    loader.open = [](const std::string&, std::string& error) -> void* {
        error = "no such file";
        return nullptr;
    };
    const auto driver = load_driver(loader, "");
    ASSERT_FALSE(driver);
    EXPECT_THAT(driver.error(), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("no such file")));
}

TEST(CudaDriverTest, TheGivenDirectoryIsLookedInFirst) {
    std::vector<std::string> asked;
    LibraryLoader loader = fake_loader();
    loader.open = [&](const std::string& path, std::string&) -> void* {
        asked.push_back(path);
        return nullptr;
    };
    EXPECT_FALSE(load_driver(loader, "/opt/cuda"));
    EXPECT_THAT(asked, ::testing::ElementsAre("/opt/cuda/libcuda.so.1", "libcuda.so.1"));
}

TEST(CudaDriverTest, AStubIsNamedWithItsPathAndTheRemedy) {
    EXPECT_EQ(failure_of({.init = kStubLibrary}),
              "libcuda.so.1 at /opt/fake/libcuda.so.1 is the toolkit's link-time stub; remove that "
              "directory from LD_LIBRARY_PATH");
}

TEST(CudaDriverTest, AMissingFunctionMeansTooOld) {
    LibraryLoader loader = fake_loader();
    loader.symbol = [](void*, const char* name) {
        return std::string(name) == "cuGraphLaunch" ? nullptr : fake_symbol(name);
    };
    const auto driver = load_driver(loader, "");
    ASSERT_FALSE(driver);
    EXPECT_THAT(driver.error(), AllOf(HasSubstr("cuGraphLaunch"), HasSubstr("older than CUDA")));
}

TEST(CudaDriverTest, AnOldDriverIsToldBothVersions) {
    EXPECT_THAT(failure_of({.version = 12040}),
                AllOf(HasSubstr("supports CUDA 12.4"), HasSubstr("update the driver")));
}

TEST(CudaDriverTest, MismatchedModuleAndLibraryAreTold) {
    for (const Status status : {kSystemDriverMismatch, kCompatNotSupported})
        EXPECT_THAT(failure_of({.init = status}), HasSubstr("different versions"));
}

TEST(CudaDriverTest, NoDeviceAndAWrongNumberAreTold) {
    EXPECT_THAT(failure_of({.init = kNoDevice}), HasSubstr("finds no GPU"));
    EXPECT_THAT(failure_of({.devices = 0}), HasSubstr("device 0 is not there"));
}

TEST(CudaDriverTest, AnotherArchitectureIsRefused) {
    EXPECT_THAT(failure_of({.major = 7}), AllOf(HasSubstr("Fake 9000"), HasSubstr("is sm_70"),
                                                HasSubstr("QUADRIGA_CUDA_SM70=ON")));
}

TEST(CudaDriverTest, WithPtxForItAnOlderCardIsTaken) {
    answers = {.major = 7};
    const auto driver = load_driver(fake_loader(), "");
    ASSERT_TRUE(driver);
    const auto device = find_device(*driver, 0, true);
    ASSERT_TRUE(device) << device.error();
    EXPECT_EQ(device->code, CodeKind::kSm70);
}

/// Names of all global functions in an ELF file.
std::vector<std::string> functions_of(std::span<const std::byte> image) {
    const auto read = [&]<class T>(std::size_t at, T) {
        T value;
        std::memcpy(&value, image.data() + at, sizeof value);
        return value;
    };
    const auto header = read(0, Elf64_Ehdr{});
    const auto section = [&](std::size_t i) {
        return read(header.e_shoff + i * sizeof(Elf64_Shdr), Elf64_Shdr{});
    };
    std::vector<std::string> names;
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
        const Elf64_Shdr symbols = section(i);
        if (symbols.sh_type != SHT_SYMTAB) continue;
        const Elf64_Shdr strings = section(symbols.sh_link);
        for (std::size_t at = 0; at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
            const auto symbol = read(symbols.sh_offset + at, Elf64_Sym{});
            if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
                ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL)
                continue;  // local ones are the compiler's own pieces
            names.emplace_back(reinterpret_cast<const char*>(image.data()) + strings.sh_offset +
                               symbol.st_name);
        }
    }
    return names;
}

TEST(CudaKernelSetTest, EveryNameIsASymbolOfItsCubin) {
    std::map<std::string, std::vector<std::string>> functions;
    std::size_t count = 0;
    for (const Cubin& cubin : cubins()) {
        functions[std::string(cubin.name)] = functions_of(cubin.image);
        count += functions[std::string(cubin.name)].size();
    }
    std::size_t named = 0;
    for (std::size_t i = 0; i < kernel_names().size(); ++i) {
        const KernelName& name = kernel_names()[i];
        if (!has_code(static_cast<KernelId>(i), CodeKind::kSm90)) continue;
        ++named;
        EXPECT_THAT(functions[name.cubin], ::testing::Contains(name.symbol)) << name.cubin;
    }
    EXPECT_EQ(count, named) << "a kernel without a name is never used";
}

}  // namespace
}  // namespace kernels::cuda
