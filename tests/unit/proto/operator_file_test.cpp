// What an operator names: files that are none, and TOML that nests too deeply.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/regular_file.h"
#include "proto/tls.h"
#include "proto/toml_depth.h"
#include "tests/support/temp_folder.h"

namespace proto_test {
namespace {

using testing::HasSubstr;

TEST(RegularFileTest, ReadsWhatIsOneAndWaitsForNothingElse) {
    const test_support::TempFolder folder;
    folder.write("file", std::string(100'000, 'x'));
    EXPECT_EQ(proto::read_regular_file(folder.path("file"), 100'000)->size(), 100'000U);
    EXPECT_THAT(proto::read_regular_file(folder.path("file"), 99'999).error(),
                HasSubstr("longer than 99999 bytes"));
    ASSERT_EQ(::symlink("file", folder.path("link").c_str()), 0);
    EXPECT_TRUE(proto::read_regular_file(folder.path("link"), 100'000));
    EXPECT_EQ(proto::regular_file_error(folder.path("link")), std::nullopt);
    ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
    for (const std::string& path :
         {folder.path("pipe"), folder.path(""), std::string("/dev/zero")}) {
        EXPECT_EQ(proto::read_regular_file(path, 10).error(), "it is not a regular file") << path;
        EXPECT_EQ(proto::regular_file_error(path), "it is not a regular file") << path;
    }
    EXPECT_THAT(proto::read_regular_file(folder.path("none"), 10).error(),
                HasSubstr("No such file"));
    EXPECT_THAT(proto::TlsContext::load(folder.path("pipe"), folder.path("pipe")).error(),
                HasSubstr("not a regular file"));
}

TEST(TomlDepthTest, CountsWhatNestsAndNothingElse) {
    EXPECT_EQ(proto::toml_depth_error("a.b = 1 # " + std::string(100, '.') + std::string(100, '[')),
              std::nullopt);
    const std::string many(100, '.');
    const std::vector<std::string> strings = {
        R"(a = ")" + many + R"(")",
        "a = '" + many + "'",
        R"(a = """)" + many + "\n" + R"("")" + many + R"(""")",
        "a = '''" + many + "'''",
        R"(a = "\")" + many + R"(")",
        "a = [\n1.5,\n2.5]",
    };
    for (const std::string& text : strings) {
        EXPECT_EQ(proto::toml_depth_error(text), std::nullopt) << text;
    }
    EXPECT_TRUE(proto::toml_depth_error("a = \"x\" " + many)) << "behind a string";
    EXPECT_TRUE(proto::toml_depth_error("'a'" + many)) << "quoted parts count";
    EXPECT_TRUE(proto::toml_depth_error("a = \"open\n" + many)) << "no string crosses a line";
    std::string lists;
    for (int i = 0; i < 33; ++i)
        lists += "[\n";
    EXPECT_THAT(proto::toml_depth_error(lists).value_or(""), HasSubstr("line 33: "));
    std::string rows;
    for (int i = 0; i < 1000; ++i)
        rows += "[a.b]\nc = [[1.5], {d.e = 2}]\n";
    EXPECT_EQ(proto::toml_depth_error(rows), std::nullopt);
}

}  // namespace
}  // namespace proto_test
