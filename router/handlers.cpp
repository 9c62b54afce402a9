#include "router/handlers.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <utility>
#include <variant>

#include "proto/json.h"
#include "proto/openai.h"
#include "proto/openapi.h"
#include "proto/status.h"
#include "router/admission.h"
#include "router/metrics_endpoint.h"
#include "router/pass_through.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr std::int64_t kOutputTokensKept = 256;
constexpr int kPriorityMax = 100;  // and its negative; the range of the body's field

bool is_generation(std::string_view path) {
    return path == "/v1/chat/completions" || path == "/v1/completions";
}

/// No Content-Type is read as JSON; parameters such as charset do not matter.
bool is_json(std::string_view content_type) {
    const std::size_t end = content_type.find_first_of("; \t");
    return content_type.empty() ||
           proto::equal_no_case(content_type.substr(0, end), "application/json");
}

proto::Result<void> check_model(const ReplicaSet& set, const std::string& model) {
    if (set.is_model_known(model)) return {};
    return tl::unexpected(unknown_model(set, model));
}

/// KV room a request must find for its answer before it starts; a longer one finds more as it runs.
std::int64_t output_kept(std::optional<std::int64_t> max_tokens) {
    return std::min<std::int64_t>(kOutputTokensKept, max_tokens.value_or(kOutputTokensKept));
}

/// Fills the fields that both kinds of requests share.
GenerationJob job_of(const proto::GenerationRequest& request, int header_priority,
                     const JobContext& context) {
    GenerationJob job;
    job.model = request.model;
    job.served_model = context.names ? context.names->of(request.model) : request.model;
    job.is_stream = request.stream;
    job.priority = request.priority.value_or(header_priority);
    job.sequences = request.n;
    if (context.caller) {
        job.caller = context.caller;
        job.key = context.caller->key;
        job.priority = std::max(job.priority, context.caller->priority_min);
    }
    return job;
}

BoundaryOptions boundary_options(const JobContext& context, const GenerationJob& job) {
    const bool is_isolated = context.isolates_keys && context.caller;
    return {.key = context.hash_key,
            .model = job.served_model,
            .isolate = is_isolated ? std::string_view(context.caller->name) : std::string_view(),
            .prompt_tokens = job.prompt_tokens};
}

proto::Result<GenerationJob> parse_chat_job(const proto::HttpRequest& request, int priority,
                                            const Estimator& estimator, const JobContext& context) {
    const auto chat = proto::parse_chat_request(request.body);
    if (!chat) return tl::unexpected(chat.error());
    GenerationJob job = job_of(*chat, priority, context);
    job.prompt_bytes = request.body.size();
    job.prompt_tokens = estimator.prompt_tokens(job.served_model, job.prompt_bytes);
    job.output_tokens =
        estimator.output_tokens(job.served_model, job.key, chat->max_tokens, job.sequences);
    job.output_tokens_kept = output_kept(chat->max_tokens);
    job.boundaries =
        std::make_shared<const Boundaries>(boundaries_of(*chat, boundary_options(context, job)));
    return job;
}

proto::Result<GenerationJob> parse_completion_job(const proto::HttpRequest& request, int priority,
                                                  const Estimator& estimator,
                                                  const JobContext& context) {
    const auto completion = proto::parse_completion_request(request.body);
    if (!completion) return tl::unexpected(completion.error());
    GenerationJob job = job_of(*completion, priority, context);
    for (const proto::Prompt& prompt : completion->prompts) {
        if (const auto* text = std::get_if<std::string>(&prompt)) {
            job.prompt_bytes += text->size();
            job.prompt_tokens += estimator.prompt_tokens(job.served_model, text->size());
        } else {  // token ids are exact
            job.prompt_tokens +=
                static_cast<std::int64_t>(std::get<std::vector<std::int32_t>>(prompt).size());
        }
    }
    job.sequences *= static_cast<int>(completion->prompts.size());
    job.output_tokens =
        estimator.output_tokens(job.served_model, job.key, completion->max_tokens, job.sequences);
    job.output_tokens_kept = output_kept(completion->max_tokens);
    job.boundaries = std::make_shared<const Boundaries>(
        boundaries_of(*completion, boundary_options(context, job)));
    return job;
}

}  // namespace

proto::Result<int> parse_priority_header(const proto::Headers& headers) {
    const std::string_view text = headers.get(proto::kHeaderPriority);
    if (text.empty() || text == "default") return 0;
    if (text == "interactive") return -20;
    if (text == "bulk") return 20;
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < -kPriorityMax ||
        value > kPriorityMax) {
        return proto::fail(proto::ErrorCode::kInvalidValue,
                           "x-quadriga-priority is a number from -100 to 100, or interactive, "
                           "default or bulk.",
                           std::string(proto::kHeaderPriority));
    }
    return value;
}

proto::Result<GenerationJob> parse_job(const proto::HttpRequest& request,
                                       const Estimator& estimator, const JobContext& context) {
    const proto::Result<int> priority = parse_priority_header(request.headers);
    if (!priority) return tl::unexpected(priority.error());
    proto::Result<GenerationJob> job =
        request.path == "/v1/chat/completions"
            ? parse_chat_job(request, *priority, estimator, context)
            : parse_completion_job(request, *priority, estimator, context);
    if (job) job->target = request.path;
    return job;
}

Handlers::Handlers(Services& services)
    : services_(services), cors_(services.config.cors_origins), dashboard_(services) {
    using proto::HttpExchange;
    const auto generation = [this](HttpExchange& exchange, const std::string&) {
        return generate(exchange);
    };
    const auto pass = [this](HttpExchange& exchange, const std::string&) {
        return pass_through(services_, exchange);
    };
    routes_.add("POST", "/v1/chat/completions", generation);
    routes_.add("POST", "/v1/completions", generation);
    routes_.add("POST", "/tokenize", pass);
    routes_.add("POST", "/detokenize", pass);
    routes_.add("POST", "/apply-template", pass);
    routes_.add("GET", "/v1/models", [this](HttpExchange& exchange, const std::string&) {
        return list_models(exchange);
    });
    routes_.add("GET", "/v1/models/{id}", [this](HttpExchange& exchange, std::string id) {
        return show_model(exchange, std::move(id));
    });
    routes_.add("GET", "/health", [](HttpExchange& exchange, std::string) -> asio::awaitable<void> {
        (void)co_await exchange.send(proto::json_response(R"({"status":"ok"})"));
    });
    routes_.add("GET", "/ready",
                [this](HttpExchange& exchange, const std::string&) { return ready(exchange); });
    routes_.add("GET", "/info",
                [this](HttpExchange& exchange, const std::string&) { return info(exchange); });
    routes_.add("GET", "/metrics", [this](HttpExchange& exchange, const std::string&) {
        return serve_own_metrics(services_, exchange);
    });
    routes_.add("GET", "/metrics/all", [this](HttpExchange& exchange, const std::string&) {
        return serve_all_metrics(services_, exchange);
    });
    routes_.add("GET", "/props", pass);
    routes_.add("GET", "/openapi.json",
                [this](HttpExchange& exchange, std::string) -> asio::awaitable<void> {
                    std::string document = proto::openapi_json(kVersion, routes_);
                    (void)co_await exchange.send(proto::json_response(std::move(document)));
                });
    routes_.add("GET", "/sd/prometheus",
                [this](HttpExchange& exchange, const std::string&) { return discover(exchange); });
    dashboard_.add_routes(routes_);
}

bool needs_key(const Config& config, const proto::HttpRequestHead& head) {
    if (head.method == "OPTIONS") return false;  // a browser asks before it may send a key
    if (head.path == "/health" || head.path == "/ready" || is_page_path(head.path)) return false;
    const bool is_metrics =
        head.path == "/metrics" || head.path == "/metrics/all" || head.path == "/sd/prometheus";
    return !(is_metrics && config.metrics_open && is_loopback_address(head.peer));
}

std::optional<proto::HttpResponse> Handlers::admit(proto::HttpRequestHead& head) {
    if (cors_.is_on()) head.answer_headers = cors_.fields(head, routes_.allow(head.path));
    const auto admission = std::make_shared<Admission>();
    admission->arrival = Clock::now();
    admission->caller = services_.keys.find(head.headers);
    if (!admission->caller && needs_key(services_.config, head)) return unauthorized_response();
    if (auto refusal = routes_.refuse(head.method, head.path)) return refusal;
    head.ticket = admission;
    if (is_pass_through(head.path) && head.method != "OPTIONS") {
        proto::Result<KeyBudget::Share> place = services_.dispatcher.enter(admission->caller->key);
        if (!place) return proto::error_response(place.error());
        admission->pass = std::move(*place);
    }
    if (head.method != "POST") return std::nullopt;
    if (!is_json(head.headers.get("content-type"))) {
        return proto::error_response(
            {proto::ErrorCode::kUnsupportedMediaType, "Content-Type must be application/json."});
    }
    const KeyId key = admission->caller->key;
    if (const auto refusal = services_.dispatcher.refuse_early(is_generation(head.path), key)) {
        return proto::error_response(*refusal);
    }
    if (is_generation(head.path)) {
        admission->arrival_place = services_.dispatcher.arrive(key);
    }
    // A body longer than its limit is refused by the server next and takes nothing.
    if (head.content_length && *head.content_length <= body_bytes_max()) {
        return admit_body(head, *head.content_length);
    }
    return std::nullopt;
}

std::optional<proto::HttpResponse> Handlers::admit_body(const proto::HttpRequestHead& head,
                                                        std::size_t bytes) {
    const std::shared_ptr<Admission> admission = admission_of(head.ticket);
    const KeyId key = admission->caller->key;
    KeyBudget::Share& share = admission->body;
    if (services_.dispatcher.bodies().grow(share, bytes, key)) return std::nullopt;
    return proto::error_response(services_.dispatcher.refuse_body(bytes - share.amount(), key));
}

std::size_t Handlers::body_bytes_max() const {
    return services_.config.body_bytes_max.value_or(
        proto::body_bytes_max(static_cast<std::size_t>(services_.set.context_tokens_max())));
}

/// A large body is read on another thread, while this one goes on relaying. Nothing is read for a
/// client that has left before its turn came.
asio::awaitable<void> Handlers::read_large_body(proto::HttpExchange& exchange,
                                                const JobContext& context,
                                                std::optional<proto::Result<GenerationJob>>& job) {
    // A copy, since answers teach the original meanwhile; its averages are few.
    const Estimator estimator = services_.estimator;
    const proto::HttpRequest& request = exchange.request();
    std::function<void()> read = [&] { job.emplace(parse_job(request, estimator, context)); };
    const auto has_left = std::make_shared<std::atomic<bool>>(false);
    exchange.on_disconnect([has_left] { *has_left = true; });
    ParsePool::Unwanted is_unwanted = has_left;
    co_await services_.parse_pool.run(std::move(read), std::move(is_unwanted));
    exchange.on_disconnect({});
}

asio::awaitable<void> Handlers::generate(proto::HttpExchange& exchange) {
    const auto began = Clock::now();
    const std::shared_ptr<Admission> admission = admission_of(exchange.request().ticket);
    const JobContext context{.hash_key = services_.hash_key,
                             .caller = admission->caller,
                             .names = services_.set.served_names(),
                             .isolates_keys = services_.config.affinity_isolate_keys};
    std::optional<proto::Result<GenerationJob>> read;
    if (exchange.request().body.size() > kParseInlineBytesMax) {
        co_await read_large_body(exchange, context, read);
        if (!read) co_return;  // the client has left
    } else {
        read.emplace(parse_job(exchange.request(), services_.estimator, context));
    }
    proto::Result<GenerationJob>& job = *read;
    if (job) {
        if (const auto known = check_model(services_.set, job->model); !known) {
            job = tl::unexpected(known.error());
        }
    }
    services_.metrics.overhead_seconds.at(static_cast<std::size_t>(Stage::kAdmit))
        ->Observe(std::chrono::duration<double>(Clock::now() - began).count());
    if (!job) {
        (void)co_await exchange.send(proto::error_response(job.error()));
        co_return;
    }
    job->arrival = admission->arrival;
    job->body_share = std::move(admission->body);
    admission->arrival_place.release();  // it takes its place in the queue, or starts, at once
    Generation generation(services_, exchange, std::move(*job));
    co_await generation.run();
}

asio::awaitable<void> Handlers::list_models(proto::HttpExchange& exchange) {
    std::string body = R"({"object":"list","data":[)";
    bool is_first = true;
    for (const std::string& entry : services_.set.model_entries()) {
        if (!std::exchange(is_first, false)) body += ',';
        body += entry;
    }
    body += "]}";
    (void)co_await exchange.send(proto::json_response(std::move(body)));
}

asio::awaitable<void> Handlers::show_model(proto::HttpExchange& exchange, std::string id) {
    if (const std::optional<std::string> entry = services_.set.model_entry(id)) {
        (void)co_await exchange.send(proto::json_response(*entry));
        co_return;
    }
    const proto::Result<void> known = check_model(services_.set, id);
    proto::ApiError error{proto::ErrorCode::kModelNotFound,
                          "The model '" + proto::printable(id) + "' does not exist."};
    if (!known) error = known.error();  // names what there is
    (void)co_await exchange.send(proto::error_response(error));
}

asio::awaitable<void> Handlers::ready(proto::HttpExchange& exchange) {
    const FleetMode mode = services_.set.mode(Clock::now());
    const bool is_draining = is_leaving_ || services_.dispatcher.is_draining();
    const bool is_ready = mode == FleetMode::kServing && !is_draining;
    proto::Json body;
    body["status"] = is_ready                       ? "ready"
                     : is_draining                  ? "draining"
                     : mode == FleetMode::kStarting ? "loading"
                                                    : "no_replica_ready";
    if (!is_ready) {
        for (const auto& [index, replica] : services_.set.replicas()) {
            body["replicas"].push_back(
                {{"name", std::to_string(index)}, {"state", std::string(name_of(replica.state))}});
        }
    }
    proto::HttpResponse answer = proto::json_response(proto::json_text(body), is_ready ? 200 : 503);
    if (!is_ready) {
        answer.headers.add("Retry-After",
                           std::to_string(services_.dispatcher.retry_when_ready_s()));
    }
    (void)co_await exchange.send(std::move(answer));
}

asio::awaitable<void> Handlers::info(proto::HttpExchange& exchange) {
    // The replicas' own texts go in as they are: they may be large, and nothing here reads them.
    std::string body = R"({"role":"router","version":")" + std::string(kVersion) +
                       R"(","config_digest":")" + services_.config.digest() + R"(","replicas":[)";
    bool is_first = true;
    for (const auto& [index, replica] : services_.set.replicas()) {
        if (!std::exchange(is_first, false)) body += ',';
        body +=
            R"({"name":")" + std::to_string(index) + R"(","url":)" +
            proto::json_string(replica.url) + R"(,"state":")" +
            std::string(name_of(replica.state)) + R"(","instance":)" +
            proto::json_string(replica.instance()) + R"(,"in_flight":)" +
            std::to_string(replica.account ? replica.account->sequences() : 0) + R"(,"info":)" +
            (replica.info && !replica.info->info_json.empty() ? replica.info->info_json : "null") +
            "}";
    }
    body += "]}";
    (void)co_await exchange.send(proto::json_response(std::move(body)));
}

asio::awaitable<void> Handlers::discover(proto::HttpExchange& exchange) {
    proto::Json targets = proto::Json::array();
    for (const auto& [index, replica] : services_.set.replicas()) {
        targets.push_back({{"targets", proto::Json::array({replica.endpoint.text()})},
                           {"labels", proto::Json::object()}});
    }
    (void)co_await exchange.send(proto::json_response(proto::json_text(targets)));
}

}  // namespace router
