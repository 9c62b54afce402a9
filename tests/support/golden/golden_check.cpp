// golden-check DIR [--models DIR] [--backend B]: runs every golden file of a folder through our own
// parts and prints one line each. The formats are told apart by their fields, so any folder of them
// will do.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tests/support/golden/checks.h"

namespace golden {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMissesShownMax = 8;
constexpr std::int32_t kRowsMax = 4096;  // longer texts go in several steps
constexpr int kExitMiss = 1;
constexpr int kExitUsage = 2;

struct Flags {
    std::string folder;
    std::string models;
    SessionOptions session;
    std::vector<std::string> skipped;  // file names
    bool json = false;
};

/// Which check a document wants, or none when it is no golden file.
enum class Format { kPrompts, kChats, kTokenizer, kSplits, kTemplates };

std::optional<Format> format_of(const Json& document) {
    if (!document.is_object()) return std::nullopt;
    if (document.contains("prompts")) return Format::kPrompts;
    if (document.contains("splits")) return Format::kSplits;
    if (!document.contains("cases") || document.at("cases").empty()) return std::nullopt;
    const Json& first = document.at("cases").front();
    if (first.contains("greedy_tokens")) return Format::kChats;
    if (first.contains("context")) return Format::kTemplates;
    if (first.contains("text") && first.contains("tokens")) return Format::kTokenizer;
    return std::nullopt;
}

/// The first part or only file of a model with this stem, in full precision.
std::optional<fs::path> model_named(const fs::path& folder, const std::string& stem) {
    for (const char* ending : {".gguf", "-bf16.gguf", "-f32.gguf", "-00001-of-00002.gguf"}) {
        if (fs::exists(folder / (stem + ending))) return folder / (stem + ending);
    }
    return std::nullopt;
}

/// Any quantisation of the model: its vocabulary is the same.
std::optional<fs::path> vocabulary_named(const fs::path& folder, const std::string& stem) {
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(stem + "-") && name.ends_with(".gguf")) return entry.path();
    }
    return std::nullopt;
}

/// X.gguf beside X.json; else the model whose name is the file's up to a dash: foal-greedy ->
/// foal-bf16.gguf.
std::optional<fs::path> model_for(const fs::path& golden, Format format, const Flags& flags) {
    std::vector<fs::path> folders{golden.parent_path()};
    if (!flags.models.empty()) folders.emplace_back(flags.models);
    std::string stem = golden.stem().string();
    for (;;) {
        for (const fs::path& folder : folders) {
            if (auto model = model_named(folder, stem)) return model;
            if (format != Format::kTokenizer) continue;
            if (auto model = vocabulary_named(folder, stem)) return model;
        }
        const std::size_t dash = stem.rfind('-');
        if (dash == std::string::npos) return std::nullopt;
        stem.resize(dash);
    }
}

/// The context must hold the longest text of the document.
std::int32_t context_for(const Json& document, Format format) {
    std::size_t longest = 0;
    if (format == Format::kPrompts) {
        for (const Json& prompt : document.at("prompts")) {
            const std::size_t greedy = prompt.contains("greedy") ? prompt.at("greedy").size() : 0;
            longest = std::max(longest, prompt.at("tokens").size() + greedy);
        }
    } else {
        for (const Json& item : document.at("cases")) {
            longest = std::max(longest,
                               item.at("prompt_tokens").size() + item.at("greedy_tokens").size());
        }
    }
    return static_cast<std::int32_t>(longest) + 1;
}

void run_with_model(const Json& document, Format format, const fs::path& path, const Flags& flags,
                    Report& report) {
    const std::optional<fs::path> model = model_for(path, format, flags);
    if (!model) {
        const std::string stem = path.stem().string();
        report.miss("its model (" + stem + ".gguf, or " + stem.substr(0, stem.find('-')) +
                    "-bf16.gguf) is neither beside it nor in the folder of --models");
        return;
    }
    if (format == Format::kTokenizer) {
        const auto file = replica::GgufFile::open(*model);
        if (!file) return report.miss(file.error().text());
        return check_tokenizer(document, *file, report);
    }
    SessionOptions options = flags.session;
    options.context = context_for(document, format);
    options.rows_max = std::clamp(options.context, options.rows_max, kRowsMax);
    const auto session = ModelSession::open(*model, options);
    if (!session) return report.miss(session.error());
    if (format == Format::kPrompts) return check_prompts(document, **session, report);
    check_chats(document, **session, report);
}

/// None when the file is no golden file.
std::optional<Report> run_file(const fs::path& path, const Flags& flags) {
    Report report;
    report.file = path.filename().string();
    try {
        std::ifstream stream(path);
        const Json document = Json::parse(stream);
        const std::optional<Format> format = format_of(document);
        if (!format) return std::nullopt;
        switch (*format) {
            case Format::kSplits:
                check_splits(document, report);
                break;
            case Format::kTemplates:
                check_templates(document, report);
                break;
            default:
                run_with_model(document, *format, path, flags, report);
        }
    } catch (const Json::exception& error) {
        report.miss(std::string("not in the expected form: ") + error.what());
    }
    return report;
}

void print(const Report& report) {
    const char* verdict = report.passed() ? "pass" : "MISS";
    if (report.tolerance > 0.0) {
        std::printf("%s  %-26s largest error %.2e (limit %.0e)  %s\n", verdict, report.file.c_str(),
                    report.error_max, report.tolerance, report.summary.c_str());
    } else {
        std::printf("%s  %-26s exact  %s\n", verdict, report.file.c_str(), report.summary.c_str());
    }
    const std::size_t shown = std::min(report.misses.size(), kMissesShownMax);
    for (std::size_t i = 0; i < shown; ++i)
        std::printf("      %s\n", report.misses[i].c_str());
    if (report.misses.size() > shown) {
        std::printf("      ... and %zu more\n", report.misses.size() - shown);
    }
    std::fflush(stdout);
}

Json to_json(const Report& report) {
    return {{"file", report.file},           {"passed", report.passed()},
            {"error_max", report.error_max}, {"tolerance", report.tolerance},
            {"summary", report.summary},     {"misses", report.misses}};
}

int run_folder(const Flags& flags) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(flags.folder)) {
        const std::string name = entry.path().filename().string();
        if (!entry.is_regular_file() || entry.path().extension() != ".json") continue;
        if (std::ranges::count(flags.skipped, name) == 0) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    std::size_t run = 0, failed = 0;
    Json list = Json::array();
    for (const fs::path& path : files) {
        const std::optional<Report> report = run_file(path, flags);
        if (!report) {
            std::fprintf(stderr, "skip  %s: no golden file of a known format\n",
                         path.filename().c_str());
            continue;
        }
        ++run;
        if (!report->passed()) ++failed;
        if (flags.json) list.push_back(to_json(*report));
        if (!flags.json) print(*report);
    }
    if (flags.json) {
        std::printf("%s\n", Json{{"files", list}, {"failed", failed}}.dump().c_str());
    } else {
        std::printf("%zu of %zu golden files pass\n", run - failed, run);
    }
    if (run == 0) {
        std::fprintf(stderr, "golden-check: no golden file in %s\n", flags.folder.c_str());
        return kExitUsage;
    }
    return failed == 0 ? 0 : kExitMiss;
}

}  // namespace
}  // namespace golden

int main(int argc, char** argv) {
    golden::Flags flags;
    CLI::App app("Runs every golden file of a folder and prints one line each.");
    app.footer("Exit codes: 0 all pass, 1 a miss, 2 usage, or no golden file in the folder.");
    app.add_option("DIR", flags.folder, "folder with golden files")
        ->required()
        ->check(CLI::ExistingDirectory);
    app.add_option("--models", flags.models, "folder with models that are not beside their file")
        ->check(CLI::ExistingDirectory);
    app.add_option("--backend", flags.session.backend, golden::backend_names())
        ->check(CLI::IsMember(golden::backend_list()))
        ->capture_default_str();
    app.add_option("--threads", flags.session.threads, "threads of the CPU backend, 0 = all")
        ->check(CLI::Range(0, 1024));
    app.add_option("--skip", flags.skipped, "a file to leave out; may be repeated");
    app.add_flag("--json", flags.json, "one JSON document instead of lines");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : golden::kExitUsage;
    }
    try {
        return golden::run_folder(flags);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "golden-check: %s\n", error.what());
        return golden::kExitUsage;
    }
}
