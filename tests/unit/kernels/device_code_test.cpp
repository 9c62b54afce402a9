// PTX in a folder as device code: what is taken, what is refused. No driver.
#include "kernels/cuda/device_code.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kernels::cuda {
namespace {

using testing::HasSubstr;

class PtxFolderTest : public testing::Test {
protected:
    PtxFolderTest() {
        std::string name = (std::filesystem::temp_directory_path() / "ptx-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~PtxFolderTest() override { std::filesystem::remove_all(folder_); }
    void put(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    }
    std::string folder_;
};

TEST_F(PtxFolderTest, EachFileIsAnImageByItsStemThatEndsWithAZero) {
    put("b.ptx", ".version 8.8\n.target sm_70\n.b");
    put("a.ptx", ".version 8.8\n.target sm_70\n.a");
    put("volta.json", "{}");
    const auto code = read_ptx(folder_);
    ASSERT_TRUE(code) << code.error();
    EXPECT_EQ(code->kind, CodeKind::kSm70);
    EXPECT_EQ(missing_file(*code), "embed");
    ASSERT_EQ(code->images.size(), 2U);
    EXPECT_EQ(code->images[0].name, "a");
    EXPECT_EQ(code->images[1].name, "b");
    EXPECT_STREQ(reinterpret_cast<const char*>(code->images[1].image.data()),
                 ".version 8.8\n.target sm_70\n.b");
    EXPECT_EQ(code->images[1].image.back(), std::byte{0});
}

TEST_F(PtxFolderTest, WhatIsNoPtxForSm70IsRefusedInASentence) {
    EXPECT_THAT(read_ptx(folder_).error(), HasSubstr("has no .ptx files"));
    EXPECT_THAT(read_ptx(folder_ + "/none").error(), HasSubstr("cannot be read"));
    put("a.ptx", ".version 8.8\n.target sm_90a\n");
    EXPECT_THAT(read_ptx(folder_).error(), HasSubstr("a.ptx is no PTX for sm_70"));
}

TEST(OwnCodeTest, HoldsEveryFileThatTheListSays) {
    const DeviceCode code = own_code(CodeKind::kSm90);
    EXPECT_EQ(missing_file(code), "");
    EXPECT_EQ(code.images.size(), cubins().size());
}

TEST(OwnCodeTest, HoldsAllOfSm70OrNoneOfIt) {
    const DeviceCode code = own_code(CodeKind::kSm70);
    if (code.images.empty()) GTEST_SKIP() << "built without QUADRIGA_CUDA_SM70";
    EXPECT_EQ(missing_file(code), "");
    for (const Cubin& image : code.images)
        EXPECT_EQ(image.image.back(), std::byte{0}) << image.name;
}

}  // namespace
}  // namespace kernels::cuda
