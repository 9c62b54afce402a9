// cuBLASLt is looked for where the operator says, beside the program, then on the default path;
// what is wrong with it is said in one sentence. Proved with a fake library, without CUDA.
#include "kernels/cuda/cublaslt.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kernels::cuda {
namespace {

using ::testing::ElementsAre;

int fake_library = 0;

LibraryLoader fake_loader() {
    return {.open = [](const std::string&, std::string&) -> void* { return &fake_library; },
            .symbol = [](void*, const char*) -> void* { return &fake_library; },
            .path = [](void*) -> std::string { return "/opt/fake/libcublasLt.so.13"; }};
}

TEST(CublasLtTest, TheGivenFolderComesFirstThenTheProgramsOwnThenTheDefaultPath) {
    std::vector<std::string> asked;
    LibraryLoader loader = fake_loader();
    loader.open = [&](const std::string& path, std::string& error) -> void* {
        asked.push_back(path);
        error = "no such file";
        return nullptr;
    };
    const auto library = load_cublaslt(loader, "/opt/cuda");
    ASSERT_FALSE(library);
    EXPECT_EQ(library.error(), "there is no cuBLASLt here: no such file");
    EXPECT_THAT(asked, ElementsAre("/opt/cuda/libcublasLt.so.13",
                                   "$ORIGIN/../lib/libcublasLt.so.13", "libcublasLt.so.13"));
}

TEST(CublasLtTest, AMissingFunctionIsNamed) {
    LibraryLoader loader = fake_loader();
    loader.symbol = [](void*, const char* name) -> void* {
        return std::string(name) == "cublasLtMatmul" ? nullptr : &fake_library;
    };
    const auto library = load_cublaslt(loader, "");
    ASSERT_FALSE(library);
    EXPECT_EQ(library.error(), "cuBLASLt at /opt/fake/libcublasLt.so.13 has no cublasLtMatmul");
}

TEST(CublasLtTest, ASoundLibrarySaysWhereItWasFound) {
    const auto library = load_cublaslt(fake_loader(), "");
    ASSERT_TRUE(library);
    EXPECT_EQ(library->path, "/opt/fake/libcublasLt.so.13");
}

}  // namespace
}  // namespace kernels::cuda
