// A key file over time: the copy that is kept of a good one, when it is used, and how a file that
// nobody has asked to be read yet is noticed.
#include "router/key_source.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/temp_folder.h"

namespace router {
namespace {

using test_support::TempFolder;
using testing::HasSubstr;

std::string table(const std::string& name, char digit) {
    return "[[key]]\nname = \"" + name + "\"\nsha256 = \"" + std::string(64, digit) + "\"\n";
}

TEST(KeySourceTest, WithoutAFileThereAreNoEntriesAndNothingToSay) {
    KeySource none("", "");
    EXPECT_TRUE(none.read_first().value().empty());
    EXPECT_FALSE(none.is_used());
    EXPECT_EQ(none.digest(), "");
    EXPECT_FALSE(none.has_drifted());
}

TEST(KeySourceTest, AGoodFileLeavesACopyForItsOwnerThatABadOneDoesNotReplace) {
    const TempFolder folder;
    const std::string path = folder.write("keys.toml", table("alice", 'a'));
    const std::string copy = folder.path("keys.good");
    KeySource source(path, copy);
    EXPECT_EQ(source.read_first().value().front().name, "alice");
    struct stat found {};
    ASSERT_EQ(::stat(copy.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0600U);
    const std::string digest = source.digest();
    EXPECT_EQ(digest.size(), 8U);
    folder.write("keys.toml", "nonsense");
    EXPECT_THAT(source.read_again().error(), HasSubstr(path));
    EXPECT_EQ(source.digest(), digest) << "the one in use";
    KeySource next(path, copy);
    EXPECT_EQ(next.read_first().value().front().name, "alice");
    EXPECT_EQ(next.digest(), digest);
    EXPECT_TRUE(next.has_drifted());
    EXPECT_FALSE(KeySource(path, "").read_first().has_value());
    EXPECT_FALSE(KeySource(path, folder.path("no.copy")).read_first().has_value());
    folder.write("keys.good", "nonsense too");
    EXPECT_THAT(KeySource(path, copy).read_first().error(), HasSubstr(path)) << "what to mend";
}

TEST(KeySourceTest, AnotherFileOnDiskIsNoticedAndReadingItSettlesThat) {
    const TempFolder folder;
    const std::string path = folder.write("keys.toml", table("alice", 'a'));
    KeySource source(path, "");
    ASSERT_TRUE(source.read_first().has_value());
    EXPECT_FALSE(source.has_drifted());
    const std::string before = source.digest();
    folder.write("keys.toml", table("bobby", 'b'));  // as long as before
    EXPECT_TRUE(source.has_drifted());
    EXPECT_TRUE(source.has_drifted());
    ASSERT_TRUE(source.read_again().has_value());
    EXPECT_FALSE(source.has_drifted());
    EXPECT_NE(source.digest(), before);
    folder.write("keys.toml", table("alice", 'a'));
    EXPECT_TRUE(source.has_drifted());
    folder.write("keys.toml", table("bobby", 'b'));
    EXPECT_FALSE(source.has_drifted()) << "back as it was";
    ::unlink(path.c_str());
    EXPECT_TRUE(source.has_drifted());
}

}  // namespace
}  // namespace router
