// check-config with the real router and replica: what `up` would refuse is refused there, with the
// place that has to be corrected; the lists of what the launcher owns and the example file are
// complete against what children are given and what the router knows.
#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "deploy/launcher/owned_keys.h"
#include "deploy/launcher/program_output.h"
#include "tests/integration/launcher_fixture.h"

namespace launcher_test {
namespace {

using deploy::ChildProgram;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const std::string kModel = std::string(QUADRIGA_SOURCE_DIR) + "/models/foal-iq4_xs.gguf";

class CheckConfigTest : public LauncherTest {
protected:
    struct Answer {
        int code = 0;
        std::string text;
    };

    /// check-config of a file with this text.
    Answer check(const std::string& file, std::vector<std::string> more = {}) {
        std::ofstream(file_path()) << file;
        std::vector<std::string> words{"check-config", "--config", file_path(), "--backend", "cpu"};
        words.insert(words.end(), more.begin(), more.end());
        const int code = command(words);
        return {code, read("command.out") + read("command.err")};
    }
    std::string file_path() const { return folder_ + "/quadriga.toml"; }
    std::string line(int number) const { return file_path() + ":" + std::to_string(number); }
};

/// "ping_s" -> "15", as the router itself says.
std::map<std::string, std::string> values_of_router() {
    const auto output = deploy::output_of(QUADRIGA_ROUTER, {"--check-config"});
    std::map<std::string, std::string> values;
    if (!output || output->exit_code != 0) return values;
    std::istringstream lines(output->text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t at = line.find(" = ");
        values[line.substr(0, at)] = line.substr(at + 3);
    }
    return values;
}

TEST_F(CheckConfigTest, AGoodFileIsAcceptedAndEveryValueHasAnOrigin) {
    const Answer good = check("model = \"" + kModel +
                              "\"\ncontext = 4096\nreplica_args = [\"--graph-steps\", \"8\"]\n"
                              "[router]\nstep_stall_s = 5\n");
    EXPECT_EQ(good.code, 0) << good.text;
    EXPECT_THAT(good.text, HasSubstr("step_stall_s above restarts it"));
    EXPECT_THAT(good.text, Not(HasSubstr("router.port")));
    EXPECT_THAT(good.text, Not(HasSubstr("no model is given")));
    EXPECT_THAT(good.text, ContainsRegex("kv_tokens = 0 +# default; here [0-9]+, or what memory "
                                         "allows, 4096 at least"));
    EXPECT_THAT(good.text, ContainsRegex("# memory of each replica beside the weights: KV [0-9.]+ "
                                         "[KMG]iB for a context of 4096 tokens, up to "));
    const Answer without = check("context = 4096\n");
    EXPECT_EQ(without.code, 0) << without.text;
    EXPECT_THAT(without.text,
                AllOf(HasSubstr("`up` alone would end with exit 2: no model is given"),
                      HasSubstr("nor QUADRIGA_MODEL"), HasSubstr("up MODEL.gguf")));
    EXPECT_EQ(check("", {kModel}).code, 0);
}

TEST_F(CheckConfigTest, WhatTheModelCannotIsRefusedWithTheKeysPlace) {
    const Answer context = check("context = 16000000\n", {kModel});
    EXPECT_EQ(context.code, 2);
    EXPECT_THAT(context.text, AllOf(HasSubstr("context cannot be 16000000"), HasSubstr("32768"),
                                    HasSubstr("context (file " + line(1) + ")")));

    std::string bytes;
    {
        std::ifstream file(kModel, std::ios::binary);
        bytes.resize(1'000'000);
        file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    const std::string cut = folder_ + "/cut.gguf";
    std::ofstream(cut, std::ios::binary) << bytes;
    const Answer truncated = check("model = \"" + cut + "\"\n");
    EXPECT_EQ(truncated.code, 4);
    EXPECT_THAT(truncated.text,
                AllOf(HasSubstr("Q0412"), HasSubstr("model (file " + line(1) + ")")));

    const Answer foreign = check("replica_args = [\"--graph-step\", \"5\"]\n");
    EXPECT_EQ(foreign.code, 2);
    EXPECT_THAT(foreign.text, AllOf(HasSubstr("the replica has no --graph-step"),
                                    HasSubstr("did you mean '--graph-steps'"),
                                    HasSubstr("replica_args (file " + line(1) + ")")));
    const Answer range = check("replica_args = [\"--temperature\", \"9\"]\n", {kModel});
    EXPECT_EQ(range.code, 2);
    EXPECT_THAT(range.text, AllOf(HasSubstr("--temperature"), HasSubstr("replica_args (file")));
}

TEST_F(CheckConfigTest, AnErrorOfTheRouterNamesTheRightPlace) {
    const Answer unknown = check("port = 1\n[router]\nping_s = 5\nheader_reed_s = 5\n");
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.text, AllOf(HasSubstr("unknown key 'header_reed_s' in [router]"),
                                    HasSubstr(line(4)), HasSubstr("did you mean 'header_read_s'")));

    const Answer range = check("[router]\nconnect_s = 1\nping_s = -1\n");
    EXPECT_EQ(range.code, 2);
    EXPECT_THAT(range.text, HasSubstr("correct router.ping_s (file " + line(3) + ")"));

    const Answer more = check("router_args = [\"--pings-s=5\"]\n[router]\nping_s = 5\n");
    EXPECT_EQ(more.code, 2);
    EXPECT_THAT(more.text, AllOf(HasSubstr("the router has no --pings-s"),
                                 HasSubstr("did you mean '--ping-s'"),
                                 HasSubstr("correct router_args (file " + line(1) + ")")));
    EXPECT_THAT(more.text, Not(HasSubstr("[router]")));

    const Answer flag = check("", {"--router-args=--foo"});
    EXPECT_THAT(flag.text, HasSubstr("correct router_args (flag --router-args)"));
}

TEST_F(CheckConfigTest, ABadCertificateOrKeyFileIsTheLaunchersKeyNotTheTable) {
    std::ofstream(folder_ + "/tls.crt") << "no certificate";
    std::ofstream(folder_ + "/tls.key") << "no key";
    const Answer tls = check("tls_cert = \"" + folder_ + "/tls.crt\"\ntls_key = \"" + folder_ +
                             "/tls.key\"\n[router]\nping_s = 5\n");
    EXPECT_EQ(tls.code, 2);
    EXPECT_THAT(tls.text, AllOf(HasSubstr("tls_cert (file " + line(1) + ")"),
                                Not(HasSubstr("[router]")), Not(HasSubstr("ping_s"))));

    std::ofstream(folder_ + "/keys.toml") << "";
    const Answer keys = check("\nkeys_file = \"" + folder_ + "/keys.toml\"\n");
    EXPECT_EQ(keys.code, 2);
    EXPECT_THAT(keys.text, AllOf(HasSubstr("it has no key"), HasSubstr("put a new one"),
                                 HasSubstr("keys_file (file " + line(2) + ")")));
}

TEST_F(CheckConfigTest, UpRefusesTheSameBeforeAnythingStarts) {
    std::ofstream(file_path()) << "replica_args = [\"--foo\"]\n";
    EXPECT_EQ(command({"up", kModel, "--config", file_path(), "--backend", "cpu"}), 2);
    EXPECT_THAT(read("command.err"), AllOf(HasSubstr("the replica has no --foo"),
                                           HasSubstr("correct replica_args (file " + line(1))));
    EXPECT_EQ(command({"up", kModel, "--backend", "cpu", "--context", "16000000"}), 2);
    EXPECT_THAT(read("command.err"), HasSubstr("context (flag --context)"));
    EXPECT_EQ(read("command.out"), "");
}

TEST_F(CheckConfigTest, EverythingAChildIsGivenIsTheLaunchers) {
    std::ofstream(folder_ + "/keys.toml") << "";
    for (const char* name : {"/tls.crt", "/tls.key"})
        std::ofstream(folder_ + name) << "";
    up({"--keys-file",
        folder_ + "/keys.toml",
        "--insecure-no-auth",
        "--tls-cert",
        folder_ + "/tls.crt",
        "--tls-key",
        folder_ + "/tls.key",
        "--context",
        "4096",
        "--sequences",
        "2",
        "--checkpoint-memory-mib",
        "64",
        "--queued-tokens-max",
        "0",
        "--step-time-target-ms",
        "50",
        "--require-kernels",
        "a",
        "--disable-kernels",
        "b"},
       1);
    ASSERT_TRUE(wait_for("replica 0", "ready"));
    for (const auto& [who, program] : {std::pair{"router", ChildProgram::kRouter},
                                       std::pair{"replica 0", ChildProgram::kReplica}}) {
        const json flags = events(who, "start").front()["flags"];
        EXPECT_GE(flags.size(), 12U);
        for (const auto& [flag, value] : flags.items()) {
            EXPECT_TRUE(deploy::owned_by_launcher(program, deploy::key_of_argument(flag)))
                << who << " is given " << flag << ", which nobody else may set";
        }
    }
}

TEST_F(CheckConfigTest, AWrongCommandLineSaysWhatToDo) {
    EXPECT_EQ(command({"up", "--layot", "4x1"}), 2);
    EXPECT_THAT(read("command.err"),
                AllOf(HasSubstr("Q0201 unknown flag '--layot'"),
                      HasSubstr("did you mean '--layout'?"), HasSubstr("quadriga up --help")));
    EXPECT_EQ(command({"why"}), 2);
    EXPECT_THAT(read("command.err"),
                AllOf(HasSubstr("N is required"), HasSubstr("quadriga why --help")));
    EXPECT_EQ(command({}), 2);
    EXPECT_THAT(read("command.err"),
                AllOf(HasSubstr("no command is given"), HasSubstr("quadriga --help")));
}

TEST(ExampleTest, TheTableOfTheRouterHasEveryFlagWithItsDefault) {
    const std::map<std::string, std::string> values = values_of_router();
    ASSERT_GT(values.size(), 30U);
    std::map<std::string, std::string> shown;
    std::ifstream file(std::string(QUADRIGA_SOURCE_DIR) + "/deploy/quadriga.example.toml");
    bool is_table = false;
    for (std::string line; std::getline(file, line);) {
        if (line == "# [router]") is_table = true;
        const std::size_t at = line.find(" = ");
        if (!is_table || !line.starts_with("# ") || at == std::string::npos) continue;
        std::string value = line.substr(at + 3, line.find(" #", at) - at - 3);
        while (value.ends_with(' '))
            value.pop_back();
        shown[line.substr(2, at - 2)] = value;
    }
    for (const auto& [key, value] : values) {
        if (deploy::owned_by_launcher(ChildProgram::kRouter, key)) {
            EXPECT_FALSE(shown.contains(key)) << key << " is the launcher's";
            continue;
        }
        ASSERT_TRUE(shown.contains(key)) << key << " is not in the example";
        const std::string& text = shown.at(key);
        if (value == "none") {
            EXPECT_TRUE(text == "\"\"" || text == "[]") << key << " = " << text;
        } else if (value.find('(') == std::string::npos) {  // else a rule, not a number
            EXPECT_TRUE(text == value || text == "\"" + value + "\"")
                << key << " = " << text << ", the router says " << value;
        }
    }
    for (const auto& [key, value] : shown)
        EXPECT_TRUE(values.contains(key)) << key << " is no flag of the router";
}

}  // namespace
}  // namespace launcher_test
