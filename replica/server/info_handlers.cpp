#include "proto/json.h"
#include "proto/limits.h"
#include "proto/openapi.h"
#include "proto/responses.h"
#include "replica/server/handlers.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;
using proto::Json;

std::vector<proto::ModelInfo> listed_models(const ServedModel& model) {
    proto::ModelInfo info;
    info.created = model.facts.created;
    info.max_model_len = model.max_model_len();
    info.n_ctx_train = model.facts.context_train;
    info.n_params = model.facts.parameters;
    info.size_bytes = model.facts.size_bytes;
    info.arch = model.facts.arch;
    std::vector<proto::ModelInfo> models;
    info.id = model.name;
    models.push_back(info);
    for (const std::string& alias : model.aliases) {
        info.id = alias;
        models.push_back(info);
    }
    return models;
}

Json kernels_json(const ServedModel& model) {
    Json kernels = Json::array();
    for (const kernels::KernelEntry& kernel : model.kernels()) {
        Json entry;
        entry["name"] = kernel.name;
        entry["variant"] = kernel.variant.empty() ? Json(nullptr) : Json(kernel.variant);
        entry["state"] = kernels::name_of(kernel.state);
        entry["reason"] = kernel.reason;
        entry["fallback"] = kernel.fallback.empty() ? Json(nullptr) : Json(kernel.fallback);
        entry["runs"] = kernel.runs;
        kernels.push_back(std::move(entry));
    }
    return kernels;
}

void add_model_info(const ServedModel& model, Json& info) {
    Json& facts = info["model"];
    facts["name"] = model.name;
    facts["aliases"] = model.aliases;
    facts["arch"] = model.facts.arch;
    facts["params"] = model.facts.parameters;
    facts["quant"] = model.facts.quant;
    facts["digest"] = model.facts.digest;
    facts["n_ctx_train"] = model.facts.context_train;
    info["max_model_len"] = model.max_model_len();
    info["kv"] = {{"dtype", model.kv_dtype},
                  {"blocks_total", model.limits.blocks_total},
                  {"block_tokens", model.limits.block_tokens}};
    info["limits"] = {
        {"body_bytes_max", proto::body_bytes_max(static_cast<std::size_t>(model.max_model_len()))},
        {"json_depth_max", proto::kJsonDepthMax},
        {"messages_max", proto::kMessagesMax},
        {"prompts_max", proto::kPromptsMax},
        {"choices_max", proto::kChoicesMax},
        {"top_logprobs_max", kernels::kTopLogprobsMax},
        {"tools_max", proto::kToolsMax},
        {"stop_strings_max", proto::kStopStringsMax}};
    info["sampling_defaults"] = {
        {"temperature", model.default_temperature}, {"top_p", 1.0}, {"top_k", 0}, {"min_p", 0.0}};
    info["tool_format"] = chat::name_of(model.tool_format);
    Json efforts = Json::array();
    for (const proto::ReasoningEffort effort : model.efforts.accepted) {
        efforts.push_back(proto::reasoning_effort_name(effort));
    }
    constexpr std::array<const char*, 4> kFields = {"reasoning_content", "reasoning", "both",
                                                    "inline"};
    info["reasoning"] = {{"separated", model.has_think_tags},
                         {"field", kFields[static_cast<std::size_t>(model.reasoning_field)]},
                         {"efforts", std::move(efforts)}};
    info["mtp"] = {{"available", model.facts.has_mtp},
                   {"draft_tokens_max", model.limits.draft_tokens_max}};
    info["kernels"] = kernels_json(model);
    info["degraded"] = model.is_degraded;
    info["chat_template"] =
        model.chat_template ? Json(model.chat_template->source()) : Json(nullptr);
}

std::string info_text(const AppState& state) {
    Json info;
    info["version"] = build_version();
    info["build"] = build_version();
    info["instance"] = state.instance;
    info["config_digest"] = state.options.config_digest;
    info["state"] = proto::replica_state_name(state.lifecycle.state());
    info["sequences_max"] = state.options.sequences;
    info["gpu_uuid"] = state.gpu_uuid();
    if (state.serving) {
        const ServedModel& model = *state.serving->model;
        add_model_info(model, info);
        info["limits"]["waiting_max"] = state.options.waiting_max();
        info["limits"]["queued_tokens_max"] =
            state.options.queued_tokens_bound(model.max_model_len());
        info["prefix_cache"] = {{"enabled", state.options.has_prefix_cache},
                                {"checkpoints_max", model.limits.snapshots},
                                {"checkpoint_bytes", model.limits.snapshot_bytes}};
    }
    return proto::json_text(info);
}

/// The few facts that clients of other servers look for.
std::string props_text(const AppState& state) {
    const ServedModel& model = *state.serving->model;
    Json props;
    props["default_generation_settings"] = {{"n_ctx", model.max_model_len()}};
    props["total_slots"] = state.options.sequences;
    props["model_path"] = model.facts.file_name;
    props["chat_template"] =
        model.chat_template ? Json(model.chat_template->source()) : Json(nullptr);
    props["build_info"] = build_version();
    props["modalities"] = {{"vision", false}, {"audio", false}};
    return proto::json_text(props);
}

proto::HttpResponse status_word(std::string_view word, int status) {
    return proto::json_response(R"({"status":")" + std::string(word) + R"("})", status);
}

proto::HttpResponse health(AppState& state) {
    state.engine_status();
    return state.is_wedged ? status_word("wedged", 503) : status_word("ok", 200);
}

proto::HttpResponse ready(AppState& state) {
    state.engine_status();
    if (const auto obstacle = state.lifecycle.obstacle(state.is_wedged)) {
        return status_word(*obstacle, 503);
    }
    return status_word("ready", 200);
}

proto::HttpResponse one_model(AppState& state, const std::string& id) {
    const ServedModel& model = *state.serving->model;
    for (const proto::ModelInfo& info : listed_models(model)) {
        if (info.id == id) return proto::json_response(proto::model_json(info));
    }
    return proto::error_response(model_not_found(model, id));
}

}  // namespace

void add_info_routes(AppState& state, proto::RouteTable& routes) {
    using Make = proto::HttpResponse (*)(AppState&, const std::string& rest);
    enum class Needs { kNothing, kModel };
    const auto add = [&](const char* path, Needs needs, Make make) {
        routes.add("GET", path,
                   [&state, needs, make](proto::HttpExchange& exchange,
                                         std::string rest) -> asio::awaitable<void> {
                       if (needs == Needs::kModel && !state.serving) {
                           co_await exchange.send(
                               proto::error_response(*state.lifecycle.refusal(state.is_wedged)));
                           co_return;
                       }
                       co_await exchange.send(make(state, rest));
                   });
    };
    add("/health", Needs::kNothing, [](AppState& s, const std::string&) { return health(s); });
    add("/ready", Needs::kNothing, [](AppState& s, const std::string&) { return ready(s); });
    add("/metrics", Needs::kNothing, [](AppState& s, const std::string&) {
        return proto::text_response(s.metrics.text(s.snapshot()), 200,
                                    "text/plain; version=0.0.4; charset=utf-8");
    });
    add("/info", Needs::kNothing,
        [](AppState& s, const std::string&) { return proto::json_response(info_text(s)); });
    add("/internal/status", Needs::kNothing, [](AppState& s, const std::string&) {
        return proto::json_response(s.status_publisher.report());
    });
    add("/props", Needs::kModel,
        [](AppState& s, const std::string&) { return proto::json_response(props_text(s)); });
    add("/v1/models", Needs::kModel, [](AppState& s, const std::string&) {
        return proto::json_response(proto::models_json(listed_models(*s.serving->model)));
    });
    add("/v1/models/{id}", Needs::kModel, one_model);
    routes.add("GET", "/openapi.json",
               [&routes](proto::HttpExchange& exchange, std::string) -> asio::awaitable<void> {
                   std::string document = proto::openapi_json(build_version(), routes);
                   co_await exchange.send(proto::json_response(std::move(document)));
               });
    routes.add("GET", "/internal/status/stream",
               [&state](proto::HttpExchange& exchange, std::string) -> asio::awaitable<void> {
                   if (exchange.request().method == "HEAD") {  // the stream itself never ends
                       proto::HttpResponse head =
                           proto::text_response("", 200, "text/event-stream");
                       co_await exchange.send(std::move(head));
                       co_return;
                   }
                   co_await state.status_publisher.stream(exchange);
               });
}

}  // namespace replica::server
