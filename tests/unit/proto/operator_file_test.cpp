// What an operator names or leaves unread: files that are none, TOML that nests too deeply, and a
// log whose reader has stopped.
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/outlet.h"
#include "proto/regular_file.h"
#include "proto/tls.h"
#include "proto/toml_depth.h"
#include "tests/support/temp_folder.h"

namespace proto_test {
namespace {

using testing::EndsWith;
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

/// Both ends block, as those of a process that shares its stderr.
struct Ends {
    explicit Ends(bool is_socket) {
        const int result = is_socket
                               ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data())
                               : ::pipe2(fds.data(), O_CLOEXEC);
        if (result != 0) std::abort();
    }
    ~Ends() {
        ::close(fds[0]);
        ::close(fds[1]);
    }
    Ends(const Ends&) = delete;
    Ends& operator=(const Ends&) = delete;
    /// Everything up to now.
    [[nodiscard]] std::string read_all() const {
        const int flags = ::fcntl(fds[0], F_GETFL);
        ::fcntl(fds[0], F_SETFL, flags | O_NONBLOCK);
        std::string text;
        std::array<char, 65536> piece{};
        for (ssize_t count = 0; (count = ::read(fds[0], piece.data(), piece.size())) > 0;)
            text.append(piece.data(), static_cast<std::size_t>(count));
        return text;
    }
    std::array<int, 2> fds{-1, -1};
};

class OutletTest : public testing::TestWithParam<bool> {};

TEST_P(OutletTest, AReaderThatStopsHoldsNobodyAndLosesOnlyWhatIsBeyondTheBound) {
    const Ends ends(GetParam());
    proto::Outlet outlet(ends.fds[1], 100'000);
    EXPECT_EQ(::fcntl(ends.fds[1], F_GETFL) & O_NONBLOCK, 0) << "others write there too";
    const std::string line(999, 'x');
    int added = 0;
    while (outlet.add(line + "\n")) {
        (void)outlet.flush();
        ++added;
    }
    EXPECT_FALSE(outlet.add("more\n" + line + "\n"));
    EXPECT_FALSE(outlet.flush());
    EXPECT_FALSE(outlet.flush_within(std::chrono::milliseconds(1)));
    EXPECT_EQ(outlet.dropped_total(), 3U);
    std::string text;
    while (!outlet.is_empty()) {
        text += ends.read_all();
        (void)outlet.flush();
    }
    text += ends.read_all();
    EXPECT_EQ(text.size(), 1000U * static_cast<std::size_t>(added)) << "no line is torn";
    EXPECT_EQ(outlet.take_dropped(), 3U);
    EXPECT_EQ(outlet.take_dropped(), 0U);
    EXPECT_TRUE(outlet.add("end\n"));
    EXPECT_TRUE(outlet.flush());
    EXPECT_THAT(ends.read_all(), EndsWith("end\n"));
}

INSTANTIATE_TEST_SUITE_P(PipeAndSocket, OutletTest, testing::Bool());

}  // namespace
}  // namespace proto_test
