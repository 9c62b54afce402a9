#include "proto/ready_pipe.h"

#include <algorithm>
#include <cassert>

#include "proto/json_fields.h"
#include "proto/json_reader.h"
#include "proto/limits.h"

namespace proto {
namespace {

// --- writing: one overload per event, all with "event" and "instance" first

Json begin(std::string_view name, const std::string& instance) {
    return Json{{"event", name}, {"instance", instance}};
}

Json event_json(const std::string& instance, const HelloEvent& event) {
    Json json = begin("hello", instance);
    json["pid"] = event.pid;
    json["build"] = event.build;
    json["config"] = event.config;
    return json;
}

Json event_json(const std::string& instance, const PhaseEvent& event) {
    Json json = begin("phase", instance);
    json["phase"] = replica_state_name(event.phase);
    json["done"] = event.done;
    json["total"] = event.total;
    return json;
}

Json event_json(const std::string& instance, const KernelsEvent& event) {
    Json json = begin("kernels", instance);
    Json& kernels = json["kernels"] = Json::array();
    for (const KernelState& kernel : event.kernels) {
        Json entry{{"name", kernel.name}, {"state", kernel.state}};
        if (!kernel.reason.empty()) entry["reason"] = kernel.reason;
        kernels.push_back(std::move(entry));
    }
    return json;
}

Json event_json(const std::string& instance, const SelftestEvent& event) {
    Json json = begin("selftest", instance);
    json["passed"] = event.passed;
    json["tokens_sha256"] = event.tokens_sha256;
    json["prefill_tokens_per_s"] = event.prefill_tokens_per_s;
    json["decode_tokens_per_s"] = event.decode_tokens_per_s;
    return json;
}

Json event_json(const std::string& instance, const ReadyEvent& event) {
    Json json = begin("ready", instance);
    json["gpu_uuids"] = event.gpu_uuids;
    return json;
}

Json event_json(const std::string& instance, const FatalEvent& event) {
    Json json = begin("fatal", instance);
    json["id"] = event.id;
    json["class"] = event.error_class;
    json["what"] = event.what;
    json["why"] = event.why;
    json["fix"] = event.fix;
    return json;
}

std::string line_of(const Json& json) {
    std::string line = json_text(json);
    line += '\n';
    assert(line.size() <= kEventLineBytesMax && "a reader would refuse this line");
    return line;
}

// --- reading

using AnyEvent = decltype(PipeEvent::event);

Result<AnyEvent> read_hello(const Json& json) {
    HelloEvent event;
    FieldReader fields(json);
    fields.require("pid", event.pid);
    fields.read("build", event.build);
    fields.read("config", event.config);
    return fields.result<AnyEvent>(std::move(event));
}

Result<AnyEvent> read_phase(const Json& json) {
    PhaseEvent event;
    FieldReader fields(json);
    fields.require("phase", event.phase);
    fields.read("done", event.done);
    fields.read("total", event.total);
    if (event.phase != ReplicaState::kLoading && event.phase != ReplicaState::kWarming &&
        event.phase != ReplicaState::kSelftest) {
        return fail(ErrorCode::kInvalidValue, "A replica cannot be in this phase.", "phase");
    }
    return fields.result<AnyEvent>(event);
}

Result<AnyEvent> read_kernels(const Json& json) {
    KernelsEvent event;
    const auto kernels = json.find("kernels");
    if (kernels == json.end() || !kernels->is_array()) {
        return fail(ErrorCode::kInvalidType, "The member 'kernels' must be an array.", "kernels");
    }
    for (const Json& entry : *kernels) {
        if (!entry.is_object()) {
            return fail(ErrorCode::kInvalidType, "A kernel must be an object.", "kernels");
        }
        KernelState kernel;
        FieldReader fields(entry);
        fields.require("name", kernel.name);
        fields.require("state", kernel.state);
        fields.read("reason", kernel.reason);
        Result<KernelState> read = fields.result(std::move(kernel));
        if (!read) return tl::unexpected(read.error());
        event.kernels.push_back(std::move(*read));
    }
    return AnyEvent(std::move(event));
}

Result<AnyEvent> read_selftest(const Json& json) {
    SelftestEvent event;
    FieldReader fields(json);
    fields.require("passed", event.passed);
    fields.read("tokens_sha256", event.tokens_sha256);
    fields.read("prefill_tokens_per_s", event.prefill_tokens_per_s);
    fields.read("decode_tokens_per_s", event.decode_tokens_per_s);
    return fields.result<AnyEvent>(std::move(event));
}

Result<std::vector<std::string>> read_texts(const Json& json, const char* name) {
    const auto list = json.find(name);
    if (list == json.end() || !list->is_array()) {
        return fail(ErrorCode::kInvalidType,
                    "The member '" + std::string(name) + "' must be an array.", name);
    }
    std::vector<std::string> texts;
    for (const Json& text : *list) {
        if (!text.is_string()) {
            return fail(ErrorCode::kInvalidType, "'" + std::string(name) + "' holds texts only.",
                        name);
        }
        texts.push_back(text.get<std::string>());
    }
    return texts;
}

Result<AnyEvent> read_ready(const Json& json) {
    auto uuids = read_texts(json, "gpu_uuids");
    if (!uuids) return tl::unexpected(uuids.error());
    ReadyEvent event;
    event.gpu_uuids = std::move(*uuids);
    return AnyEvent(std::move(event));
}

Result<AnyEvent> read_fatal(const Json& json) {
    FatalEvent event;
    FieldReader fields(json);
    fields.require("id", event.id);
    fields.require("class", event.error_class);
    fields.read("what", event.what);
    fields.read("why", event.why);
    fields.read("fix", event.fix);
    return fields.result<AnyEvent>(std::move(event));
}

Result<AnyEvent> read_event(const std::string& name, const Json& json) {
    if (name == "hello") return read_hello(json);
    if (name == "phase") return read_phase(json);
    if (name == "kernels") return read_kernels(json);
    if (name == "selftest") return read_selftest(json);
    if (name == "ready") return read_ready(json);
    if (name == "fatal") return read_fatal(json);
    return fail(ErrorCode::kInvalidValue, "Unknown event '" + printable(name, 32) + "'.", "event");
}

bool is_index(int index) {
    return index >= 0 && index <= kReplicaIndexMax;
}

tl::unexpected<ApiError> bad_index() {
    return fail(ErrorCode::kInvalidValue, "The index is out of its range.", "index");
}

bool is_instance_id(std::string_view text) {
    return text.size() == 16 &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string to_json_line(const PipeEvent& event) {
    return line_of(
        std::visit([&](const auto& e) { return event_json(event.instance, e); }, event.event));
}

Result<PipeEvent> parse_pipe_event(std::string_view line) {
    if (line.size() >= kEventLineBytesMax) {
        return fail(ErrorCode::kInvalidValue, "The line is too long.");
    }
    Result<Json> json = read_json_object(line);
    if (!json) return tl::unexpected(json.error());
    std::string name, instance;
    FieldReader fields(*json);
    fields.require("event", name);
    fields.require("instance", instance);
    if (Result<bool> ok = fields.result(true); !ok) return tl::unexpected(ok.error());
    if (!is_instance_id(instance)) {
        return fail(ErrorCode::kInvalidValue, "An instance id is 16 hex digits.", "instance");
    }
    Result<AnyEvent> event = read_event(name, *json);
    if (!event) return tl::unexpected(event.error());
    return PipeEvent{std::move(instance), std::move(*event)};
}

std::string to_json_line(const ReplicaAnnouncement& announcement) {
    Json json{{"index", announcement.index},
              {"url", announcement.url},
              {"instance", announcement.instance},
              {"state", replica_state_name(announcement.state)},
              {"eta_s", announcement.eta_s}};
    if (announcement.watts > 0) json["watts"] = announcement.watts;
    if (announcement.celsius > 0) json["celsius"] = announcement.celsius;
    if (announcement.is_drained) json["drained"] = true;
    return line_of(json);
}

Result<ReplicaAnnouncement> parse_announcement(std::string_view line) {
    Result<Json> json = read_json_object(line);
    if (!json) return tl::unexpected(json.error());
    ReplicaAnnouncement announcement;
    FieldReader fields(*json);
    fields.require("index", announcement.index);
    fields.require("url", announcement.url);
    fields.require("state", announcement.state);
    fields.read("instance", announcement.instance);
    fields.read_between("eta_s", announcement.eta_s, 0, kReportedSecondsMax);
    fields.read("watts", announcement.watts);
    fields.read("celsius", announcement.celsius);
    fields.read("drained", announcement.is_drained);
    Result<ReplicaAnnouncement> read = fields.result(std::move(announcement));
    if (!read) return read;
    if (!is_index(read->index)) return bad_index();
    if (!read->instance.empty() && !is_valid_instance(read->instance)) {
        return fail(ErrorCode::kInvalidValue, "An instance is 1 to 64 of [A-Za-z0-9._-].",
                    "instance");
    }
    return read;
}

std::string to_json_line(const DrainOrder& order) {
    return line_of({{"index", order.index}, {"drained", order.is_drained}});
}

Result<DrainOrder> parse_drain_order(std::string_view line) {
    Result<Json> json = read_json_object(line);
    if (!json) return tl::unexpected(json.error());
    DrainOrder order;
    FieldReader fields(*json);
    fields.require("index", order.index);
    fields.require("drained", order.is_drained);
    Result<DrainOrder> read = fields.result(std::move(order));
    if (read && !is_index(read->index)) return bad_index();
    return read;
}

std::string to_json_line(const ReloadReport& report) {
    return line_of({{"reloaded", report.done}, {"errors", report.errors}});
}

Result<ReloadReport> parse_reload_report(std::string_view line) {
    Result<Json> json = read_json_object(line);
    if (!json) return tl::unexpected(json.error());
    auto done = read_texts(*json, "reloaded");
    if (!done) return tl::unexpected(done.error());
    auto errors = read_texts(*json, "errors");
    if (!errors) return tl::unexpected(errors.error());
    ReloadReport report;
    report.done = std::move(*done);
    report.errors = std::move(*errors);
    return report;
}

std::string to_json_line(RouterNews word) {
    return line_of({{"router", word == RouterNews::kServing ? "serving" : "let_go"}});
}

Result<RouterNews> parse_router_news(std::string_view line) {
    Result<Json> json = read_json_object(line);
    if (!json) return tl::unexpected(json.error());
    std::string word;
    FieldReader fields(*json);
    fields.require("router", word);
    const Result<std::string> read = fields.result(std::move(word));
    if (!read) return tl::unexpected(read.error());
    if (*read == "serving") return RouterNews::kServing;
    if (*read == "let_go") return RouterNews::kLetGo;
    return fail(ErrorCode::kInvalidValue, "The word is neither 'serving' nor 'let_go'.", "router");
}

void LineReader::feed(std::string_view bytes) {
    if (is_failed_) return;
    buffer_.erase(0, begin_);
    begin_ = 0;
    buffer_ += bytes;
}

std::optional<std::string> LineReader::next() {
    if (is_failed_) return std::nullopt;
    const std::size_t end = buffer_.find('\n', begin_);
    if (std::min(end, buffer_.size()) - begin_ >= kEventLineBytesMax) {
        is_failed_ = true;
        return std::nullopt;
    }
    if (end == std::string::npos) return std::nullopt;
    std::string line = buffer_.substr(begin_, end - begin_);
    begin_ = end + 1;
    return line;
}

}  // namespace proto
