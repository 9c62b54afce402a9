#include "replica/server/app_state.h"

#include <algorithm>

#include "proto/http_message.h"
#include "replica/server/expected_wait.h"

namespace replica::server {

AppState::AppState(boost::asio::any_io_executor io, ServerOptions server_options,
                   std::optional<std::string> key)
    : executor(std::move(io)),
      options(std::move(server_options)),
      instance(options.instance.empty() ? proto::make_instance_id() : options.instance),
      internal_key(std::move(key)),
      metrics(options.replica_index, options.served_name),
      admission({.running_max = options.sequences, .waiting_max = options.waiting_max()}),
      status_publisher([this] { return status(); }) {}

std::optional<EngineStatus> AppState::engine_status() {
    if (!serving) return std::nullopt;
    EngineStatus engine = serving->engine->status();
    is_wedged = wedge_watch.observe(engine, Clock::now());
    return engine;
}

std::int64_t AppState::requests_waiting(const EngineStatus& engine) const {
    // Those inside that have no generation yet are being read or prepared.
    const auto preparing = admission.inside() - static_cast<int>(generations.size());
    return engine.waiting + std::max(preparing, 0);
}

proto::ReplicaStatus AppState::status() {
    proto::ReplicaStatus report;
    report.replica = options.replica_index;
    report.instance = instance;
    report.state = lifecycle.state();
    report.sequences_max = options.sequences;
    report.model = options.served_name;
    report.eta_s = lifecycle.eta_s(Clock::now());
    const auto engine = engine_status();
    if (!engine) return report;
    const auto ms = [](auto duration) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    };
    report.degraded = serving->model->is_degraded;
    report.step = engine->steps;
    if (engine->last_step_end != Clock::time_point{}) {
        report.step_age_ms = ms(Clock::now() - engine->last_step_end);
    }
    report.running = engine->running;
    report.waiting = static_cast<int>(requests_waiting(*engine));
    report.queued_tokens = engine->queued_tokens;
    report.kv_blocks_free = engine->blocks_free;
    report.kv_blocks_total = engine->blocks_total;
    report.block_tokens = engine->block_tokens;
    report.prefill_tokens_per_s = engine->prefill_tokens_per_s;
    report.decode_tokens_per_s = engine->decode_tokens_per_s;
    report.longest_step_ms = ms(engine->longest_step);
    report.max_model_len = engine->max_model_len;
    report.prompt_tokens_total = engine->prompt_tokens_total;
    report.generated_tokens_total = engine->generated_tokens_total;
    return report;
}

MetricsSnapshot AppState::snapshot() {
    MetricsSnapshot result;
    result.engine = engine_status();
    if (result.engine) result.requests_waiting = requests_waiting(*result.engine);
    result.state = lifecycle.state();
    result.is_ready = !lifecycle.obstacle(is_wedged).has_value();
    result.selftest_passed = selftest_passed;
    result.uptime = Clock::now() - started_at;
    result.load_seconds = load_seconds;
    result.gpu_uuid = gpu_uuid();
    result.config_digest = options.config_digest;
    if (serving) {
        result.is_degraded = serving->model->is_degraded;
        result.kernels = serving->model->kernels();
        result.device_memory = serving->model->device_memory;
    }
    return result;
}

std::string AppState::gpu_uuid() const {
    if (options.is_cpu()) return "CPU-" + std::to_string(options.replica_index);
    return serving ? serving->model->gpu_uuid : std::string();
}

double AppState::expected_wait_s() {
    const auto engine = engine_status();
    if (!engine) return 1.0;
    return server::expected_wait_s(*engine, requests_waiting(*engine));
}

}  // namespace replica::server
