#include "replica/server/model_loader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "kernels/cpu/memory.h"
#include "kernels/quant/format.h"
#include "proto/limits.h"
#include "replica/gguf/reader.h"
#include "replica/model/runner.h"
#include "replica/server/device_backend.h"
#include "replica/server/digest.h"
#include "replica/server/log.h"
#include "replica/tokenizer/gguf_tokenizer.h"

namespace replica::server {
namespace {

/// In order of need: the runner uses the backend, which reads the file's blocks in place.
struct Resources {
    GgufFile file;
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<ModelRunner> runner;
};

tl::unexpected<StartFailure> failed(ExitCode code, std::string id, std::string error_class,
                                    std::string what, std::string why, std::string fix) {
    return tl::make_unexpected(StartFailure{code,
                                            {.id = std::move(id),
                                             .error_class = std::move(error_class),
                                             .what = std::move(what),
                                             .why = std::move(why),
                                             .fix = std::move(fix)}});
}

tl::unexpected<StartFailure> model_failure(const ModelError& error) {
    if (error.kind == ModelErrorKind::kMemory) {
        return failed(ExitCode::kDeviceMemory, "Q0500", "device_memory", error.what, error.why,
                      error.fix);
    }
    if (error.kind == ModelErrorKind::kFlags) {
        return failed(ExitCode::kUsage, "Q0210", "config", error.what, error.why, error.fix);
    }
    return failed(ExitCode::kModelFile, "Q0430", "model_file", error.what, error.why, error.fix);
}

tl::unexpected<StartFailure> file_failure(const GgufError& error) {
    return failed(ExitCode::kModelFile, "Q0400", "model_file", error.what, error.why, error.fix);
}

/// Over metadata and tensor directory: two files with equal digests hold the same model unless
/// somebody made them differ on purpose. Reading all the weights would double the load time.
std::string model_digest(const GgufFile& file) {
    Sha256 digest;
    for (const GgufEntry& entry : file.metadata().entries()) {
        digest.update(entry.key);
        digest.update(entry.bytes);
    }
    for (const GgufTensor& tensor : file.tensors()) {
        digest.update(tensor.name + " " + std::to_string(tensor.type_id) + " " +
                      tensor.shape_text() + " " + std::to_string(tensor.file_offset) + "\n");
    }
    return digest.hex();
}

/// The type that most bytes of the file have.
std::string dominant_type(const GgufFile& file) {
    std::map<std::string, std::uint64_t> bytes_of;
    for (const GgufTensor& tensor : file.tensors()) {
        bytes_of[std::string(kernels::name_of(tensor.dtype))] += tensor.bytes;
    }
    const auto most =
        std::max_element(bytes_of.begin(), bytes_of.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == bytes_of.end() ? std::string() : most->first;
}

std::int64_t modified_at(const std::filesystem::path& path) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path, error);
    if (error) return 0;
    const auto system = std::chrono::file_clock::to_sys(time).time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(system).count();
}

ModelFacts facts_of(const GgufFile& file, const ModelConfig& config) {
    ModelFacts facts;
    facts.arch = arch_name(config.arch);
    facts.quant = dominant_type(file);
    facts.digest = "sha256:" + model_digest(file);
    facts.context_train = config.context_train;
    facts.created = modified_at(file.path());
    facts.file_name = file.path().filename().string();
    facts.has_mtp = !config.mtp_layers.empty();
    for (const GgufTensor& tensor : file.tensors())
        facts.parameters += tensor.elements();
    for (const GgufPart& part : file.parts()) {
        facts.size_bytes += static_cast<std::int64_t>(part.bytes);
    }
    return facts;
}

tl::expected<Tokenizer, StartFailure> load_tokenizer(const GgufFile& file,
                                                     const ServerOptions& options) {
    const auto refused = [&](const TokenizerError& error) {
        return failed(ExitCode::kModelFile, "Q0410", "model_file",
                      file.path().string() + ": " + error.key, error.message,
                      "use a file whose tokenizer is complete");
    };
    auto data = load_tokenizer_data(file.metadata());
    if (!data) return refused(data.error());
    auto tokenizer = Tokenizer::from_data(std::move(*data), {.pre_override = options.pre_override});
    if (!tokenizer) return refused(tokenizer.error());
    for (const std::string& warning : tokenizer->warnings()) {
        log_event(LogLevel::kWarning, "tokenizer", {{"what", warning}});
    }
    return std::move(*tokenizer);
}

tl::expected<std::optional<chat::Template>, StartFailure> load_template(const GgufFile& file) {
    constexpr std::string_view kKey = "tokenizer.chat_template";
    if (!file.metadata().contains(kKey)) return std::nullopt;
    const auto refused = [&](std::string why) {
        return failed(ExitCode::kModelFile, "Q0420", "model_file",
                      file.path().string() + ": " + std::string(kKey), std::move(why),
                      "use a file with a template we can run");
    };
    const auto text = file.metadata().get_string(kKey);
    if (!text) return refused(text.error().text());
    auto compiled = chat::Template::compile(*text);
    if (!compiled) return refused(chat::describe(compiled.error()));
    for (const std::string& warning : compiled->warnings()) {
        log_event(LogLevel::kWarning, "template", {{"what", warning}});
    }
    return std::move(*compiled);
}

RunnerOptions runner_options(const ServerOptions& options) {
    RunnerOptions runner;
    runner.context = options.context;
    runner.sequences_max = options.sequences;
    runner.step_rows_max = std::max(options.step_token_budget_or_default(), options.sequences);
    runner.kv_dtype = options.kv == KvType::kF16 ? kernels::DType::kF16 : kernels::DType::kF32;
    runner.kv_tokens = options.kv_tokens;
    if (options.has_prefix_cache) {
        runner.snapshot_memory_bytes =
            options.checkpoint_bytes_max(kernels::cpu::memory_available_bytes());
    }
    runner.device_memory_bytes_max = static_cast<std::uint64_t>(options.device_memory_mib) << 20U;
    if (options.drafts != DraftMode::kOff) runner.draft_tokens_max = options.draft_tokens;
    runner.draft_batch_max = options.draft_batch;
    return runner;
}

/// What the plan places on the device, by the kinds that /metrics knows.
std::vector<std::pair<std::string, std::uint64_t>> device_memory(const MemoryPlan& plan) {
    return {{"weights", plan.weight_bytes},
            {"kv", plan.kv_bytes + plan.state_bytes},
            {"checkpoints", plan.snapshots_on_device ? plan.snapshot_bytes : 0},
            {"workspace",
             plan.replay_bytes + plan.buffer_bytes + plan.rope_bytes + plan.scratch_bytes}};
}

std::string fingerprint_of(const ServedModel& model) {
    Sha256 digest;
    digest.update(build_version() + " " + model.facts.digest + " " + model.kv_dtype);
    for (const kernels::KernelEntry& kernel : model.kernels()) {
        digest.update(" " + kernels::full_name(kernel) + " " +
                      std::string(kernels::name_of(kernel.state)));
    }
    return "q-" + digest.hex().substr(0, 8);
}

proto::ReasoningField reasoning_field_of(std::string_view name) {
    if (name == "reasoning") return proto::ReasoningField::kReasoning;
    if (name == "both") return proto::ReasoningField::kBoth;
    if (name == "inline") return proto::ReasoningField::kInline;
    return proto::ReasoningField::kReasoningContent;
}

std::unique_ptr<Engine> start_engine(const ServerOptions& options, const LoadHooks& hooks,
                                     const ServedModel& model, ModelRunner& runner) {
    EngineOptions engine;
    engine.sequences_max = options.sequences;
    // Admission bounds requests; each may have several prompts.
    engine.waiting_max =
        static_cast<std::int32_t>(proto::kPromptsMax) * (options.sequences + options.waiting_max());
    engine.queued_tokens_max = options.queued_tokens_bound(model.max_model_len());
    engine.step_token_budget = options.step_token_budget_or_default();
    engine.step_time_target = options.step_time_target_or_default();
    engine.has_prefix_cache = options.has_prefix_cache;
    engine.draft_tokens_max = model.limits.draft_tokens_max;
    engine.draft_batch_max = options.draft_batch;
    engine.drafts_always = options.drafts == DraftMode::kAlways;
    engine.end_tokens = model.tokenizer.end_tokens();
    engine.on_step = hooks.on_step;
    engine.on_fatal = hooks.on_device_lost;
    auto started = std::make_unique<Engine>(runner, std::move(engine));
    if (hooks.on_engine_change) started->on_status_change(hooks.on_engine_change);
    return started;
}

/// Steps' graphs are captured while nobody waits: at 3 ms each, or until the time is over.
void rehearse_steps(const ServerOptions& options, const LoadHooks& hooks, ModelRunner& runner) {
    constexpr std::chrono::seconds kTimeMax{5};
    const RunnerLimits& limits = runner.limits();
    const std::vector<Rehearsal> plan =
        plan_rehearsals({.sequences = std::min(options.sequences, limits.step.seqs),
                         .draft_tokens_max = limits.draft_tokens_max,
                         .draft_batch_max = options.draft_batch,
                         .logit_rows = limits.step.logit_rows,
                         .steps_max = options.graph_steps});
    const auto begin = std::chrono::steady_clock::now();
    std::size_t ready = 0;
    for (; ready < plan.size() && std::chrono::steady_clock::now() - begin < kTimeMax; ++ready) {
        if (!runner.rehearse(plan[ready])) break;
        hooks.on_progress(proto::ReplicaState::kWarming, ready + 1, plan.size());
    }
    if (ready == 0) return;  // the CPU keeps no steps
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    log_event(LogLevel::kInfo, "steps_captured",
              {{"steps", std::to_string(ready)},
               {"planned", std::to_string(plan.size())},
               {"seconds", std::to_string(time.count())}});
}

}  // namespace

std::optional<StartFailure> check_required_kernels(const std::vector<kernels::KernelEntry>& kernels,
                                                   const std::vector<std::string>& required) {
    const std::vector<std::string> absent = kernels::absent(kernels, required);
    if (absent.empty()) return std::nullopt;
    std::string all;
    for (const std::string& sentence : absent)
        all += (all.empty() ? "" : "; ") + sentence;
    return failed(ExitCode::kKernelRequired, "Q0700", "kernel", "a required kernel is not armed",
                  std::move(all), "make it serve, or leave it out of --require-kernels")
        .value();
}

std::optional<MemoryPlan> plan_without_limit(const ServerOptions& options, const ModelHead& head) {
    const auto config = read_model_config(head.file);
    if (!config) return std::nullopt;
    MemorySupply supply;
    supply.free_bytes = std::numeric_limits<std::uint64_t>::max();
    const auto plan = plan_memory(*config, runner_options(options), supply);
    return plan ? std::optional(*plan) : std::nullopt;
}

tl::expected<ModelHead, StartFailure> read_model_head(const ServerOptions& options) {
    auto file = GgufFile::open(options.model_path);
    if (!file) return file_failure(file.error());
    auto tokenizer = load_tokenizer(*file, options);
    if (!tokenizer) return tl::make_unexpected(tokenizer.error());
    auto chat_template = load_template(*file);
    if (!chat_template) return tl::make_unexpected(chat_template.error());
    const auto config = read_model_config(*file);
    if (!config) return model_failure(config.error());
    if (const auto error = check_context(*config, options.context)) return model_failure(*error);
    return ModelHead{std::move(*file), std::move(*tokenizer), std::move(*chat_template)};
}

tl::expected<Serving, StartFailure> load_model(const ServerOptions& options, const LoadHooks& hooks,
                                               std::optional<ModelHead> head) {
    auto device = open_device(options);
    if (!device) return tl::make_unexpected(device.error());
    if (!head) {
        auto read = read_model_head(options);
        if (!read) return tl::make_unexpected(read.error());
        head = std::move(*read);
    }
    Tokenizer& tokenizer = head->tokenizer;

    auto resources =
        std::make_shared<Resources>(Resources{std::move(head->file), nullptr, nullptr});
    resources->backend = std::move(device->backend);
    auto runner =
        ModelRunner::load(resources->file, *resources->backend, runner_options(options),
                          [&](std::uint64_t done, std::uint64_t total) {
                              hooks.on_progress(proto::ReplicaState::kLoading, done, total);
                          });
    if (!runner) return model_failure(runner.error());
    resources->runner = std::move(*runner);
    for (const std::string& warning : resources->runner->warnings()) {
        log_event(LogLevel::kWarning, "model", {{"what", warning}});
    }
    if (tokenizer.vocabulary_size() != resources->runner->config().vocabulary) {
        return failed(ExitCode::kModelFile, "Q0411", "model_file", options.model_path,
                      "the tokenizer has " + std::to_string(tokenizer.vocabulary_size()) +
                          " tokens, the embedding has " +
                          std::to_string(resources->runner->config().vocabulary) + " rows",
                      "convert the model again");
    }
    resources->runner->limit_vocabulary(tokenizer.vocabulary_used());

    auto model = std::make_shared<ServedModel>(ServedModel{
        .name = options.served_name,
        .aliases = options.aliases,
        .facts = facts_of(resources->file, resources->runner->config()),
        .tokenizer = std::move(tokenizer),
        .chat_template = std::move(head->chat_template),
        .limits = resources->runner->limits(),
        .kv_dtype = options.kv == KvType::kF16 ? "f16" : "f32",
        .default_temperature = options.temperature,
        .reasoning_field = reasoning_field_of(options.reasoning_field),
    });
    model->kernels = std::move(device->kernels);
    model->gpu_uuid = resources->backend->device().uuid;
    const std::vector<kernels::KernelEntry> kernels = model->kernels();
    if (auto failure = check_required_kernels(kernels, options.require_kernels)) {
        return tl::make_unexpected(*std::move(failure));
    }
    model->is_degraded = std::ranges::any_of(kernels, kernels::is_missing);
    model->device_memory = device_memory(resources->runner->plan());
    describe_template(*model, options.tool_format);
    model->fingerprint = fingerprint_of(*model);
    rehearse_steps(options, hooks, *resources->runner);
    auto engine = start_engine(options, hooks, *model, *resources->runner);
    return Serving{std::move(resources), std::move(model), std::move(engine)};
}

}  // namespace replica::server
