// Proves that a scrape has the catalogue's families, all of them and no others, each with help, and
// that what the engine counts arrives under its name.
#include "replica/server/metrics.h"

#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

namespace replica::server {
namespace {

using ::testing::HasSubstr;

/// Names without the prefix quadriga_replica_. kernel_... and selftest_passed appear with the
/// first kernel and the first self-test.
const std::set<std::string>& catalogue() {
    static const std::set<std::string> names = {
        "state", "ready", "degraded", "uptime_seconds", "load_seconds", "selftest_passed",
        "kernel_armed", "kernel_runs_total", "device_memory_bytes", "config_info", "build_info",
        "cache_info",
        // requests
        "requests_running", "requests_waiting", "sequences_max", "queued_tokens", "requests_total",
        "requests_finished_total", "requests_rejected_total", "unknown_fields_total",
        "client_disconnects_total", "cancel_to_free_seconds", "preemptions_total",
        // tokens
        "prompt_tokens_total", "cached_prompt_tokens_total", "generation_tokens_total",
        "request_prompt_tokens", "request_generation_tokens", "output_parse_fallback_total",
        // time
        "time_to_first_token_seconds", "inter_token_latency_seconds",
        "time_per_output_token_seconds", "queue_seconds", "prefill_seconds", "decode_seconds",
        "request_seconds", "prefill_tokens_per_second", "decode_tokens_per_second",
        // steps
        "steps_total", "step_seconds", "step_tokens", "step_token_budget", "batch_sequences",
        "last_step_age_seconds", "longest_step_seconds",
        // caches and drafts
        "kv_blocks_used", "kv_blocks_total", "kv_block_tokens", "kv_cache_used_ratio",
        "prefix_query_tokens_total", "prefix_hit_tokens_total", "checkpoints", "checkpoint_bytes",
        "checkpoints_created_total", "checkpoints_restored_total", "checkpoints_evicted_total",
        "draft_tokens_total", "draft_tokens_accepted_total", "spec_draft_tokens", "spec_cost_ratio",
        "spec_gain_ratio"};
    return names;
}

EngineStatus busy_engine() {
    EngineStatus engine;
    engine.blocks_total = 100;
    engine.blocks_free = 75;
    engine.block_tokens = 16;
    engine.step_token_budget = 48;
    engine.cache.is_enabled = true;
    engine.cache.query_tokens_total = 900;
    engine.cache.hit_tokens_total = 640;
    engine.cache.blocks_cached = 50;
    engine.cache.checkpoints = 3;
    engine.cache.checkpoint_bytes = 3072;
    engine.cache.created_total = 5;
    engine.cache.restored_total = 4;
    engine.cache.evicted_total = 2;
    engine.draft.draft_tokens_max = 2;
    engine.draft.draft_tokens = 1;
    engine.draft.drafted_total = {20, 10};
    engine.draft.accepted_total = {15, 6};
    engine.draft.cost_ratio = 1.25;
    engine.draft.gain_ratio = 1.5;
    return engine;
}

/// Every family that only an event makes, made once.
std::string full_scrape() {
    Metrics metrics(0, "pony");
    metrics.observe_step({.decode_rows = 1, .prefill_rows = 2, .sequences = 2});
    metrics.observe_step({.decode_rows = 1, .sequences = 1});
    metrics.count_request("/v1/completions", 200);
    metrics.count_rejected("queue_full");
    metrics.count_disconnect(RequestPhase::kQueue);
    ChoiceEnd end;
    end.finish_reason = "stop";
    end.parse_fallbacks = {{"unclosed_call", 1}};
    metrics.observe_finished(end, std::chrono::seconds{1});
    MetricsSnapshot snapshot;
    snapshot.selftest_passed = true;
    snapshot.load_seconds = {{"loading", 1.0}};
    kernels::KernelEntry kernel;
    kernel.name = "matmul_mma";
    kernel.variant = "IQ4_XS";
    kernel.runs = 7;
    snapshot.kernels = {kernel};
    snapshot.device_memory = {{"weights", 1000}, {"kv", 200}};
    snapshot.gpu_uuid = "CPU-0";
    snapshot.config_digest = "sha256:00";
    snapshot.engine = busy_engine();
    return metrics.text(snapshot);
}

TEST(MetricsTest, AScrapeHasTheCataloguesFamiliesAndNoOthersAndAllHaveHelp) {
    std::set<std::string> found;
    std::map<std::string, int> helps;
    std::istringstream lines(full_scrape());
    for (std::string line; std::getline(lines, line);) {
        constexpr std::string_view kHelp = "# HELP quadriga_replica_";
        if (!line.starts_with(kHelp)) continue;
        const std::size_t end = line.find(' ', kHelp.size());
        const std::string name = line.substr(kHelp.size(), end - kHelp.size());
        found.insert(name);
        EXPECT_EQ(++helps[name], 1) << name << " is there twice";
        EXPECT_GT(line.size(), end + 3) << name << " has no help";
    }
    for (const std::string& name : catalogue())
        EXPECT_TRUE(found.contains(name)) << name << " is missing in the scrape";
    for (const std::string& name : found)
        EXPECT_TRUE(catalogue().contains(name)) << name << " is missing in the catalogue";
}

TEST(MetricsTest, WhatTheEngineCountsArrivesUnderItsName) {
    const std::string text = full_scrape();
    const std::string labels = R"(model="pony",replica="0")";
    for (const std::string& line : {
             "kv_blocks_used{" + labels + "} 25",
             "kv_cache_used_ratio{" + labels + "} 0.25",
             "cached_prompt_tokens_total{" + labels + "} 640",
             "prefix_query_tokens_total{" + labels + "} 900",
             "prefix_hit_tokens_total{" + labels + "} 640",
             "checkpoints{" + labels + R"(,tier="host"} 3)",
             "checkpoint_bytes{" + labels + R"(,tier="host"} 3072)",
             "checkpoints_created_total{" + labels + R"(,tier="host"} 5)",
             "checkpoints_restored_total{" + labels + R"(,tier="host"} 4)",
             "checkpoints_evicted_total{" + labels + R"(,tier="host"} 2)",
             "draft_tokens_total{" + labels + R"(,position="1"} 20)",
             "draft_tokens_accepted_total{" + labels + R"(,position="2"} 6)",
             "spec_draft_tokens{" + labels + "} 1",
             "spec_cost_ratio{" + labels + "} 1.25",
             "spec_gain_ratio{" + labels + "} 1.5",
             "step_token_budget{" + labels + "} 48",
             "config_info{" + labels + R"(,digest="sha256:00"} 1)",
         }) {
        EXPECT_THAT(text, HasSubstr("\nquadriga_replica_" + line + "\n"));
    }
    EXPECT_THAT(text, HasSubstr(R"(gpu_uuid="CPU-0",kind="weights"} 1000)"));
    EXPECT_EQ(text.find(R"(position="3")"), std::string::npos);
}

}  // namespace
}  // namespace replica::server
