// The launcher's settings: precedence and origins, bad values answered with what is wanted, and an
// example file that documents every key with its true default.
#include "deploy/launcher/config.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/launcher/router_change.h"

namespace deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A file in the test's temporary folder, gone with the object.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& text) {
        path_ = testing::TempDir() + "quadriga-config-" +
                testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
        std::ofstream(path_) << text;
    }
    ~TemporaryFile() { std::filesystem::remove(path_); }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

std::string refusal_text(const ConfigSources& sources) {
    try {
        load_config(sources);
    } catch (const StartError& error) {
        EXPECT_EQ(error.failure().kind, FailureClass::kConfig);
        return to_text(error.failure());
    }
    return "accepted";
}

std::string refusal_of_file(const std::string& text) {
    const TemporaryFile file(text);
    ConfigSources sources;
    sources.file = file.path();
    return refusal_text(sources);
}

TEST(ConfigTest, FlagWinsOverEnvironmentOverFileOverDefault) {
    const TemporaryFile file("port = 1001\nmetrics_port = 1002\ncontext = 1003\n");
    ConfigSources sources;
    sources.file = file.path();
    sources.environment = {{"QUADRIGA_PORT", "2001"}, {"QUADRIGA_METRICS_PORT", "2002"}};
    sources.flags = {{"port", "3001"}};
    const LoadedConfig loaded = load_config(sources);
    EXPECT_EQ(loaded.config.port, 3001);
    EXPECT_EQ(loaded.config.metrics_port, 2002);
    EXPECT_EQ(loaded.config.context, 1003);
    EXPECT_EQ(loaded.config.replica_port_base, 8101);
    EXPECT_EQ(loaded.origins.at("port"), "flag --port");
    EXPECT_EQ(loaded.origins.at("metrics_port"), "environment QUADRIGA_METRICS_PORT");
    EXPECT_EQ(loaded.origins.at("context"), "file " + file.path() + ":3");
    EXPECT_EQ(loaded.origins.at("replica_port_base"), "default");
    EXPECT_THAT(to_text(loaded), HasSubstr("# flag --port"));
}

TEST(ConfigTest, ARestartOfTheRouterTakesItsPartAndNamesTheRest) {
    Config in_use;
    in_use.router_settings = {"--ping-s=7"};
    Config fresh = in_use;
    EXPECT_TRUE(router_change(in_use, fresh).not_applied.empty());
    fresh.router_settings = {"--ping-s=8"};
    fresh.keys_file = "/keys";
    fresh.tls_cert = "/cert";
    fresh.router_args = {"--log-level=debug"};
    fresh.port = 1;
    fresh.drain_grace_s = 1;
    fresh.insecure_no_auth = true;
    const RouterChange change = router_change(in_use, fresh);
    EXPECT_THAT(change.config.router_settings, ElementsAre("--ping-s=8"));
    EXPECT_EQ(change.config.keys_file, "/keys");
    EXPECT_EQ(change.config.tls_cert, "/cert");
    EXPECT_THAT(change.config.router_args, ElementsAre("--log-level=debug"));
    EXPECT_TRUE(change.config.insecure_no_auth);
    EXPECT_EQ(change.config.port, in_use.port);
    EXPECT_EQ(change.config.drain_grace_s, in_use.drain_grace_s);
    EXPECT_THAT(change.not_applied, ElementsAre("port", "drain_grace_s"));
}

TEST(ConfigTest, TheExampleDocumentsEveryKeyWithItsDefault) {
    ConfigSources sources;
    sources.file = std::string(QUADRIGA_SOURCE_DIR) + "/deploy/quadriga.example.toml";
    const LoadedConfig loaded = load_config(sources);
    for (const Setting& setting : settings()) {
        EXPECT_THAT(loaded.origins.at(std::string(setting.key)), HasSubstr("file"))
            << setting.key << " is not in the example";
        EXPECT_EQ(setting.value_text(loaded.config), setting.value_text(Config{})) << setting.key;
    }
}

TEST(ConfigTest, UnknownKeysAreErrorsWithASuggestion) {
    EXPECT_THAT(refusal_of_file("prot = 1\n"), HasSubstr("did you mean 'port'?"));
    EXPECT_THAT(refusal_of_file("replica_port = 1\n"), HasSubstr("replica_port_base"));
    EXPECT_THAT(refusal_of_file("xyzzyxyzzy = 1\n"), HasSubstr("no key has a name like it"));
    EXPECT_THAT(refusal_of_file("[replica]\nport = 1\n"), HasSubstr("unknown key 'replica'"));
    EXPECT_THAT(refusal_of_file("router = 1\n"), HasSubstr("unknown key 'router'"));
}

TEST(ConfigTest, TheTableOfTheRouterBecomesItsFlags) {
    const TemporaryFile file(
        "port = 1001\n[router]\nping_s = 7.5\ndecision_header = false\nbody_bytes_max = 1024\n"
        "cors_origins = [\"https://a.example\", \"https://b.example\"]\n");
    ConfigSources sources;
    sources.file = file.path();
    const LoadedConfig loaded = load_config(sources);
    EXPECT_THAT(loaded.config.router_settings,
                testing::UnorderedElementsAre(
                    "--ping-s=7.5", "--decision-header=false", "--body-bytes-max=1024",
                    "--cors-origins=https://a.example", "--cors-origins=https://b.example"));
    EXPECT_EQ(loaded.origins.at("router.ping_s"), "file " + file.path() + ":3");
    EXPECT_THAT(refusal_of_file("[router]\nping_s = {}\n"), HasSubstr("router.ping_s"));
    EXPECT_THAT(refusal_of_file("tls_cert = \"a\"\n"), HasSubstr("tls_key is missing"));
}

TEST(ConfigTest, WhatTheLauncherSetsOfItsChildrenIsRefusedWhereItStands) {
    for (const char* key :
         {"replica = [\"http://127.0.0.1:1\"]", "replicas = 4", "check_config = true", "port = 5",
          "host = \"0.0.0.0\"", "admin_socket = \"/x\"", "announce_fd = 4", "death_fd = 5",
          "internal_key_fd = 6", "internal_key_file = \"k\"", "last_good_dir = \"/x\"",
          "layout = \"4x1\"", "tls_cert = \"c\"", "keys_file = \"k\"", "drain_grace = 1",
          "help = true"}) {
        const std::string text =
            refusal_of_file(std::string("[router]\nping_s = 5\n") + key + "\n");
        EXPECT_THAT(text, HasSubstr("has no place in [router]")) << key;
        EXPECT_THAT(text, HasSubstr(".toml:3")) << key;
        EXPECT_THAT(text, HasSubstr("\n  why   ")) << key;
        EXPECT_THAT(text, HasSubstr("\n  fix   ")) << key;
    }
    EXPECT_THAT(refusal_of_file("[router]\nport = 5\n"), HasSubstr("or give --port"));
    const std::string args = refusal_of_file("\nreplica_args = [\"--context\", \"5\"]\n");
    EXPECT_THAT(args, HasSubstr("--context has no place in replica_args, file"));
    EXPECT_THAT(args, HasSubstr(".toml:2"));
    EXPECT_THAT(refusal_text({.flags = {{"router_args", "--check-config"}}}),
                HasSubstr("no place in router_args, flag --router-args"));
    EXPECT_THAT(refusal_text({.flags = {{"replica_args", "-h"}}}), HasSubstr("--help"));
    EXPECT_EQ(refusal_of_file("replica_args = [\"--graph-steps\", \"8\"]\n"), "accepted");
    EXPECT_EQ(refusal_of_file("[router]\nstep_stall_s = 5\nadmin_listen = \"::1:5\"\n"),
              "accepted");
}

TEST(ConfigTest, TheDigestTellsSettingsApartAndNotPlaces) {
    Config config;
    const std::string digest = digest_of(config);
    EXPECT_THAT(digest, testing::MatchesRegex("sha256:[0-9a-f]{64}"));
    config.runtime_dir = "/elsewhere";
    EXPECT_EQ(digest_of(config), digest);
    config.context = 4096;
    EXPECT_NE(digest_of(config), digest);
    Config routers;
    routers.router_settings = {"--ping-s=5"};
    EXPECT_NE(digest_of(routers), digest);
}

TEST(ConfigTest, WhatAValueComesToStandsBehindItsOrigin) {
    const LoadedConfig loaded = load_config({});
    const std::string text = to_text(loaded, {{"backend", "cpu: no driver"}});
    EXPECT_THAT(text, HasSubstr("# default; here cpu: no driver\n"));
}

TEST(ConfigTest, BadValuesSayWhatIsWantedAndWhere) {
    EXPECT_THAT(refusal_of_file("\nport = 70000\n"), HasSubstr("0 to 65535"));
    EXPECT_THAT(refusal_of_file("\nport = 70000\n"), HasSubstr(".toml:2"));
    EXPECT_THAT(refusal_of_file("port = \"8080\"\n"), HasSubstr("a number without quotes"));
    EXPECT_THAT(refusal_of_file("port = \"8080\"\n"), HasSubstr("port cannot be '8080'"));
    EXPECT_THAT(refusal_of_file("gpus = [0, 1]\n"), HasSubstr(R"(for example gpus = ["0", "1"])"));
    EXPECT_THAT(refusal_of_file("gpus = \"0\"\n"), HasSubstr(R"(for example gpus = ["0"])"));
    EXPECT_THAT(refusal_text({.flags = {{"kv", "bf16"}}}), HasSubstr("f16 or f32"));
    EXPECT_THAT(refusal_of_file("port = 80.5\n"), HasSubstr("a whole number"));
    EXPECT_THAT(refusal_of_file("model = 3\n"), HasSubstr("a string in quotes"));
    EXPECT_THAT(refusal_of_file("require_kernels = [1]\n"), HasSubstr("a list of strings"));
    EXPECT_THAT(refusal_of_file("load_stall_s = 0\n"), HasSubstr("load_stall_s"));
    EXPECT_THAT(refusal_of_file("load_stall_s = nan\n"), HasSubstr("load_stall_s"));
    EXPECT_THAT(refusal_of_file("port = \n"), HasSubstr("not TOML"));
    EXPECT_THAT(refusal_of_file(std::string(2'000'000, '#')),
                HasSubstr("it is longer than 1048576 bytes"));
    EXPECT_THAT(refusal_text({.flags = {{"port", "12x"}}}), HasSubstr("flag --port"));
    EXPECT_THAT(refusal_text({.flags = {{"port", ""}}}), HasSubstr("wanted"));
    EXPECT_THAT(refusal_text({.flags = {{"backend", "rocm"}}}), HasSubstr("auto, cpu or cuda"));
    EXPECT_THAT(refusal_text({.flags = {{"drafts", "on"}}}), HasSubstr("auto, always or off"));
    EXPECT_THAT(refusal_text({.flags = {{"prefix_cache", "yes"}}}), HasSubstr("on or off"));
    EXPECT_THAT(refusal_of_file("draft_tokens = 9\n"), HasSubstr("1 to 8"));
    EXPECT_THAT(refusal_text({.flags = {{"replica_port_base", "65534"}}}), HasSubstr("65535"));
    EXPECT_THAT(refusal_text({.file = "/nowhere/quadriga.toml"}), HasSubstr("No such file"));
}

TEST(ConfigTest, MissingDefaultFilesAreFine) {
    EXPECT_EQ(load_config({.default_files = {"/nowhere/quadriga.toml"}}).config.port, 8080);
}

TEST(ConfigTest, LayoutsAreReplicasTimesDevices) {
    EXPECT_EQ(replicas_of_layout("4x1"), 4);
    EXPECT_EQ(replicas_of_layout("1x1"), 1);
    for (const char* bad : {"", "4", "x", "4x", "x1", "0x1", "4x0", "-1x1", "4x1x1", "99x1", "4 x1",
                            "99999999999x1"}) {
        EXPECT_THROW(replicas_of_layout(bad), StartError) << bad;
    }
    EXPECT_THAT(refusal_text({.flags = {{"layout", "1x4"}}}), HasSubstr("tensor parallelism"));
}

TEST(ConfigTest, TheServedNameIsTheFileNameWithoutItsEnding) {
    EXPECT_EQ(load_config({.flags = {{"model", "/m/foal-iq4_xs.gguf"}}}).config.served_name,
              "foal-iq4_xs");
    EXPECT_EQ(load_config({.flags = {{"model", "plain"}}}).config.served_name, "plain");
    EXPECT_EQ(
        load_config({.flags = {{"model", "a.gguf"}, {"served_name", "b"}}}).config.served_name,
        "b");
}

TEST(ConfigTest, ListsAreCommaSeparatedInFlags) {
    const LoadedConfig loaded = load_config({.flags = {{"require_kernels", "a,b"}}});
    EXPECT_THAT(loaded.config.require_kernels, testing::ElementsAre("a", "b"));
}

TEST(ConfigTest, AYesOrNoIsABooleanInTheFileAndAWordElsewhere) {
    EXPECT_FALSE(load_config({}).config.insecure_no_auth);
    EXPECT_TRUE(load_config({.flags = {{"insecure_no_auth", "true"}}}).config.insecure_no_auth);
    const TemporaryFile file("insecure_no_auth = true\nkeys_file = \"k.toml\"\n");
    EXPECT_TRUE(load_config({.file = file.path()}).config.insecure_no_auth);
    EXPECT_EQ(load_config({.file = file.path()}).config.keys_file, "k.toml");
    EXPECT_FALSE(
        load_config({.environment = {{"QUADRIGA_INSECURE_NO_AUTH", "false"}}, .file = file.path()})
            .config.insecure_no_auth);
    EXPECT_THAT(refusal_of_file("insecure_no_auth = \"true\"\n"), HasSubstr("true or false"));
    EXPECT_THAT(refusal_of_file("insecure_no_auth = 1\n"), HasSubstr("true or false"));
    EXPECT_THAT(refusal_text({.environment = {{"QUADRIGA_INSECURE_NO_AUTH", "yes"}}}),
                HasSubstr("true or false"));
}

TEST(ConfigTest, LoopbackIsWhatOnlyThisMachineReaches) {
    for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"})
        EXPECT_TRUE(is_loopback(host)) << host;
    for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "12.7.0.1", "1127.0.0.1", ""})
        EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(ConfigTest, SecondsBecomeTheFleetsLimits) {
    const LoadedConfig loaded = load_config({.flags = {{"load_stall_s", "0.25"}}});
    EXPECT_EQ(loaded.config.fleet_limits().load_stall, Duration{250});
    EXPECT_EQ(loaded.config.fleet_limits().hello, Duration{5'000});
}

}  // namespace
}  // namespace deploy
