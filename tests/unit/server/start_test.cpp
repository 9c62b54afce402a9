// Proves the edges of the process: command line, descriptors from a launcher, the ready pipe.
#include <array>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "replica/server/inherited.h"
#include "replica/server/model_loader.h"
#include "replica/server/options.h"
#include "replica/server/ready_pipe.h"

namespace replica::server {
namespace {

CommandLine parsed(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "quadriga-replica");
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

TEST(OptionsTest, ReadsWhatALauncherPasses) {
    const CommandLine line = parsed({"--model",
                                     "/m/foal-iq4_xs.gguf",
                                     "--device",
                                     "cpu",
                                     "--replica-index",
                                     "3",
                                     "--instance",
                                     "9f2c41d07ab35e18",
                                     "--threads",
                                     "2",
                                     "--drain-deadline-s",
                                     "8",
                                     "--ready-fd",
                                     "4",
                                     "--death-fd",
                                     "5",
                                     "--internal-key-fd",
                                     "6",
                                     "--require-kernels",
                                     "a",
                                     "--require-kernels",
                                     "b",
                                     "--cores",
                                     "0,1"});
    ASSERT_TRUE(line.options) << line.text;
    EXPECT_EQ(line.options->served_name, "foal-iq4_xs");
    EXPECT_EQ(line.options->replica_index, 3);
    EXPECT_EQ(line.options->drain_deadline, std::chrono::seconds{8});
    EXPECT_EQ(line.options->internal_key_fd, 6);
    EXPECT_THAT(line.options->require_kernels, ::testing::ElementsAre("a", "b"));
    EXPECT_THAT(line.options->cores, ::testing::ElementsAre(0, 1));
}

TEST(OptionsTest, AGpuTakesMoreAtOnceUnlessAsked) {
    const auto cpu = *parsed({"--model", "m"}).options;
    const auto gpu = *parsed({"--model", "m", "--device", "0"}).options;
    EXPECT_EQ(cpu.sequences, 4);
    EXPECT_EQ(cpu.step_token_budget_or_default(), 64);
    EXPECT_EQ(gpu.sequences, 16);
    EXPECT_EQ(gpu.step_token_budget_or_default(), 4096);
    const auto asked = *parsed({"--model", "m", "--device", "0", "--sequences", "2",
                                "--step-token-budget", "64", "--cuda-lib-dir", "/opt/cuda"})
                            .options;
    EXPECT_EQ(asked.sequences, 2);
    EXPECT_EQ(asked.step_token_budget_or_default(), 64);
    EXPECT_EQ(asked.cuda_library_dir, "/opt/cuda");
}

TEST(OptionsTest, ReadsWhatTheEngineKeepsDraftsAndQueues) {
    const CommandLine line = parsed({"--model",
                                     "m",
                                     "--prefix-cache",
                                     "off",
                                     "--checkpoint-memory-mib",
                                     "64",
                                     "--kv-tokens",
                                     "4096",
                                     "--drafts",
                                     "always",
                                     "--draft-tokens",
                                     "2",
                                     "--draft-batch",
                                     "1",
                                     "--queued-tokens-max",
                                     "0",
                                     "--step-time-target-ms",
                                     "0",
                                     "--graph-steps",
                                     "7"});
    ASSERT_TRUE(line.options) << line.text;
    const ServerOptions& options = *line.options;
    EXPECT_FALSE(options.has_prefix_cache);
    EXPECT_EQ(options.checkpoint_bytes_max(1), std::uint64_t{64} << 20U);
    EXPECT_EQ(options.kv_tokens, 4096);
    EXPECT_EQ(options.drafts, DraftMode::kAlways);
    EXPECT_EQ(options.draft_tokens, 2);
    EXPECT_EQ(options.draft_batch, 1);
    EXPECT_EQ(options.graph_steps, 7);
    EXPECT_EQ(options.queued_tokens_bound(1000), 0);
    EXPECT_EQ(options.step_time_target_or_default(), std::chrono::milliseconds{0});
}

TEST(OptionsTest, DefaultsFollowFromMemoryContextAndDevice) {
    ServerOptions options;
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
    EXPECT_EQ(options.checkpoint_bytes_max(8 * kGiB), kGiB);
    EXPECT_EQ(options.checkpoint_bytes_max(64 * kGiB), 2 * kGiB);
    EXPECT_EQ(options.queued_tokens_bound(4096), 16 * 2048) << "half a context a waiting place";
    EXPECT_EQ(options.step_time_target_or_default(), std::chrono::milliseconds{200});
    EXPECT_EQ(options.step_token_budget_or_default(), 64);
    options.device = "0";
    EXPECT_EQ(options.step_time_target_or_default(), std::chrono::milliseconds{100});
    EXPECT_EQ(options.step_token_budget_or_default(), 4096);
    options.step_token_budget = 512;
    EXPECT_EQ(options.step_token_budget_or_default(), 512) << "what is asked for holds everywhere";
}

TEST(OptionsTest, AUsageErrorHasExitCodeTwoAndHelpHasZero) {
    EXPECT_EQ(parsed({}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--sequences", "0"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--kv", "f8"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--prefix-cache", "maybe"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--drafts", "on"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--draft-tokens", "9"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--queued-tokens-max", "-1"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--instance", "xyz"}).exit_code, 2);
    EXPECT_EQ(parsed({"--model", "m", "--modle", "n"}).exit_code, 2);
    EXPECT_EQ(parsed({"--help"}).exit_code, 0);
    EXPECT_FALSE(parsed({"--help"}).options.has_value());
}

struct Pipe {
    int read = -1, write = -1;
    Pipe() {
        std::array<int, 2> ends{};
        if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
        read = ends[0];
        write = ends[1];
    }
};

TEST(InternalKeyTest, TextIsTakenAsItIsAndBytesAsHexDigits) {
    Pipe text;
    ASSERT_EQ(::write(text.write, "secret\n", 7), 7);
    EXPECT_EQ(read_internal_key(text.read), "secret");
    Pipe bytes;
    ASSERT_EQ(::write(bytes.write, "\x00\xFF\x10", 3), 3);
    EXPECT_EQ(read_internal_key(bytes.read), "00ff10");
    Pipe empty;
    ::close(empty.write);
    EXPECT_THROW(read_internal_key(empty.read), std::runtime_error);
}

TEST(ReadyPipeTest, EventsAreLinesWithTheInstance) {
    Pipe pipe;
    {
        ReadyPipe ready(pipe.write, "9f2c41d07ab35e18");
        ready.send(proto::HelloEvent{.pid = 1, .build = "b", .config = "sha256:0"});
        ready.send(
            proto::PhaseEvent{.phase = proto::ReplicaState::kLoading, .done = 1, .total = 2});
    }
    std::array<char, 4096> buffer{};
    const ssize_t size = ::read(pipe.read, buffer.data(), buffer.size());
    proto::LineReader lines;
    lines.feed({buffer.data(), static_cast<std::size_t>(size)});
    for (int i = 0; i < 2; ++i) {
        const auto line = lines.next();
        ASSERT_TRUE(line);
        const auto event = proto::parse_pipe_event(*line);
        ASSERT_TRUE(event);
        EXPECT_EQ(event->instance, "9f2c41d07ab35e18");
    }
}

TEST(ReadyPipeTest, ProgressIsDroppedWhenNobodyReads) {
    Pipe pipe;
    ReadyPipe ready(pipe.write, "9f2c41d07ab35e18");
    constexpr int kMoreThanAPipeHolds = 4096;
    for (int i = 0; i < kMoreThanAPipeHolds; ++i) {
        ready.send(
            proto::PhaseEvent{.phase = proto::ReplicaState::kLoading, .done = 1, .total = 2});
    }
    ::close(pipe.read);
}

TEST(RequiredKernelsTest, ARefusedStartHasExitSevenAndNamesWhatIsNotArmed) {
    std::vector<kernels::KernelEntry> kernels(3);
    kernels[0].name = "matmul_mma";
    kernels[0].variant = "IQ4_XS";
    kernels[1].name = "attention";
    kernels[1].state = kernels::KernelState::kWrongArch;
    kernels[1].reason = "needs sm_90, card is sm_80";
    kernels[2].name = "unused";
    kernels[2].state = kernels::KernelState::kDisabled;
    kernels[2].is_wanted = false;
    EXPECT_FALSE(check_required_kernels(kernels, {}));
    EXPECT_FALSE(check_required_kernels(kernels, {"matmul_mma", "matmul_mma/IQ4_XS"}));
    const auto all = check_required_kernels(kernels, {"*"});
    ASSERT_TRUE(all);
    EXPECT_EQ(all->exit_code, ExitCode::kKernelRequired);
    EXPECT_EQ(all->fatal.error_class, "kernel");
    EXPECT_EQ(all->fatal.why, "kernel attention is wrong_arch: needs sm_90, card is sm_80");
    EXPECT_EQ(check_required_kernels(kernels, {"c"})->fatal.why, "no kernel is called c");
    EXPECT_FALSE(check_required_kernels({}, {"*"})) << "the CPU has none and needs none";
}

TEST(OptionsTest, KernelsAreDisabledByName) {
    const CommandLine line = parsed(
        {"--model", "m", "--disable-kernels", "matmul_mma/Q6_K,a", "--device-memory-mib", "4096"});
    ASSERT_TRUE(line.options) << line.text;
    EXPECT_THAT(line.options->disable_kernels, ::testing::ElementsAre("matmul_mma/Q6_K", "a"));
    EXPECT_EQ(line.options->device_memory_mib, 4096);
    EXPECT_EQ(parsed({"--model", "m", "--device-memory-mib", "-1"}).exit_code, 2);
}

TEST(ModelLoaderTest, AMissingFileAndAMissingDeviceAreNamed) {
    ServerOptions options;
    options.model_path = "/no/such/model.gguf";
    LoadHooks hooks;
    hooks.on_progress = [](proto::ReplicaState, std::uint64_t, std::uint64_t) {};
    const auto missing = load_model(options, hooks);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().exit_code, ExitCode::kModelFile);
    EXPECT_THAT(missing.error().text(), ::testing::HasSubstr("/no/such/model.gguf"));
    options.device = "0";
    const auto no_device = load_model(options, hooks);
    ASSERT_FALSE(no_device);
    EXPECT_EQ(no_device.error().exit_code, ExitCode::kDriver);
}

TEST(ModelLoaderTest, WhatWasReadBeforeIsNotReadAgain) {
    ServerOptions options;
    options.model_path = QUADRIGA_SOURCE_DIR "/models/foal-iq4_xs.gguf";
    options.context = 256;
    options.sequences = 1;
    auto head = read_model_head(options);
    ASSERT_TRUE(head) << head.error().text();
    options.model_path = "/no/such/model.gguf";  // nobody looks there
    LoadHooks hooks;
    hooks.on_progress = [](proto::ReplicaState, std::uint64_t, std::uint64_t) {};
    const auto serving = load_model(options, hooks, std::move(*head));
    ASSERT_TRUE(serving) << serving.error().text();
    EXPECT_GT(serving->model->tokenizer.vocabulary_size(), 0);
    EXPECT_TRUE(serving->model->chat_template.has_value());
}

}  // namespace
}  // namespace replica::server
