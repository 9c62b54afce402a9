// quadriga-gguf: look at, check, quantise and make up model files.
//
// Exit codes: 0 done; 2 wrong usage; 4 the model file is unreadable, broken or cannot be written.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "kernels/quant/encode.h"
#include "kernels/quant/format.h"
#include "replica/gguf/tool/inspect.h"
#include "replica/gguf/tool/quantize.h"
#include "replica/gguf/tool/synth.h"
#include "replica/gguf/tool/verify.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitModelFile = 4;

/// Wrong usage that CLI11 cannot see by itself.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

int report(const replica::GgufError& error) {
    std::fprintf(stderr, "quadriga-gguf: %s\n  why: %s\n", error.what.c_str(), error.why.c_str());
    if (!error.fix.empty()) std::fprintf(stderr, "  fix: %s\n", error.fix.c_str());
    return kExitModelFile;
}

/// One line per recipe, for --help.
std::string recipe_help() {
    std::string text = "Types of --type:\n";
    for (const replica::Recipe& recipe : replica::all_recipes()) {
        std::string name(recipe.name);
        name.resize(8, ' ');
        text += "  " + name + std::string(recipe.summary) + "\n";
    }
    return text;
}

const replica::Recipe& recipe_named(const std::string& name) {
    const replica::Recipe* recipe = replica::find_recipe(name);
    if (recipe == nullptr)
        throw UsageError("--type " + name + " is unknown; see --help for the list");
    return *recipe;
}

/// "REGEX=TYPE"
replica::TypeOverride parse_override(const std::string& text) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
        throw UsageError("--tensor-type " + text + " is not of the form REGEX=TYPE");
    const std::string type = text.substr(equals + 1);
    const auto dtype = kernels::dtype_by_name(type);
    if (!dtype || !kernels::can_encode(*dtype))
        throw UsageError("--tensor-type " + text + ": no tensors of type " + type +
                         " can be written");
    try {
        return {std::regex(text.substr(0, equals)), *dtype};
    } catch (const std::regex_error& error) {
        throw UsageError("--tensor-type " + text + ": bad expression: " + error.what());
    }
}

struct Arguments {
    std::string input, output, type, shape;
    std::vector<std::string> overrides;
    bool json = false, dry_run = false, no_mtp = false;
    std::size_t elements = 8;
    std::uint64_t seed = 0;
    int threads = 0;
};

int run_inspect(const Arguments& arguments) {
    const auto file = replica::GgufFile::open(arguments.input, {.allow_unsupported_types = true});
    if (!file) return report(file.error());
    const replica::InspectOptions options = {.elements_max = arguments.elements};
    const std::string text = arguments.json ? replica::inspect_json(*file, options)
                                            : replica::inspect_text(*file, options);
    std::fputs(text.c_str(), stdout);
    return 0;
}

int run_verify(const Arguments& arguments) {
    const auto result = replica::verify({.input = arguments.input,
                                         .threads = arguments.threads,
                                         .progress = replica::Progress::style_of_stderr()});
    if (!result) return report(result.error());
    for (const std::string& warning : result->warnings)
        std::fprintf(stderr, "warning: %s\n", warning.c_str());
    for (const replica::GgufError& fault : result->faults)
        report(fault);
    if (!result->faults.empty()) return kExitModelFile;
    std::printf("%s: good: %llu tensors, %llu blocks with finite scales, shapes %s\n",
                arguments.input.c_str(), static_cast<unsigned long long>(result->tensors),
                static_cast<unsigned long long>(result->blocks),
                result->shapes_checked ? "as the metadata asks" : "not checked");
    return 0;
}

/// Writing over the input would lose the better model for the worse one.
void refuse_same_file(const Arguments& arguments) {
    std::error_code ignored;  // a missing file is another message's business
    if (std::filesystem::equivalent(arguments.input, arguments.output, ignored))
        throw UsageError(
            "OUT is the same file as IN; the original would be lost. Give OUT another "
            "name");
}

int run_quantize(const Arguments& arguments) {
    refuse_same_file(arguments);
    replica::QuantizeJob job = {.input = arguments.input,
                                .output = arguments.output,
                                .recipe = &recipe_named(arguments.type),
                                .threads = arguments.threads,
                                .progress = replica::Progress::style_of_stderr()};
    for (const std::string& text : arguments.overrides)
        job.overrides.push_back(parse_override(text));
    const auto result = replica::quantize(job);
    if (!result) return report(result.error());
    if (!result->requantised.empty()) {
        std::fprintf(stderr,
                     "warning: %zu tensors were quantised already (%s, ...); start from the F16 or "
                     "BF16 model for full quality\n",
                     result->requantised.size(), result->requantised.front().c_str());
    }
    std::printf("%s: %s from %s of weights, %.3f bits per value\n", arguments.output.c_str(),
                replica::bytes_text(result->output_bytes).c_str(),
                replica::bytes_text(result->input_bytes).c_str(), result->bits_per_weight);
    return 0;
}

int run_synth(const Arguments& arguments) {
    const replica::PublicShape* shape = replica::find_public_shape(arguments.shape);
    if (shape == nullptr)
        throw UsageError("--shape " + arguments.shape +
                         " is unknown; there are 0.8b, 2b, 4b, 9b and 27b");
    replica::SynthJob job = {.output = arguments.output,
                             .name = "Synthetic " + arguments.shape,
                             .shape = shape->shape,
                             .recipe = &recipe_named(arguments.type),
                             .seed = arguments.seed,
                             .threads = arguments.threads,
                             .progress = replica::Progress::style_of_stderr()};
    if (arguments.no_mtp) job.shape.mtp_blocks = 0;
    const std::vector<replica::SynthTensor> plan = replica::plan_synth(job.shape, *job.recipe);
    for (const replica::SynthTensor& tensor : plan) {
        if (!replica::can_fill_random(tensor.spec.dtype))
            throw UsageError("--type " + arguments.type + " cannot be synthesised");
    }
    if (arguments.dry_run) {
        std::printf("%zu tensors, %llu bytes of data\n", plan.size(),
                    static_cast<unsigned long long>(replica::synth_data_bytes(plan)));
        return 0;
    }
    if (arguments.output.empty()) throw UsageError("synth needs OUT, the file to write");
    const auto bytes = replica::synth(job);
    if (!bytes) return report(bytes.error());
    std::printf("%s: %s\n", arguments.output.c_str(), replica::bytes_text(*bytes).c_str());
    return 0;
}

int run(int argc, char** argv) {
    CLI::App app("Looks at, checks, quantises and makes up GGUF model files.", "quadriga-gguf");
    app.require_subcommand(1);
    app.footer(
        "Exit codes: 0 done, 2 wrong usage, 4 the model file is unreadable, broken or cannot be "
        "written.");
    Arguments arguments;
    const auto add_threads = [&](CLI::App* command) {
        command->add_option("--threads", arguments.threads, "Threads; 0 = as many as cores")
            ->check(CLI::Range(0, 1024));
    };

    CLI::App* inspect = app.add_subcommand("inspect", "Show metadata, tensors and types of a file");
    inspect->add_option("FILE", arguments.input, "Model file, or the first part of one")
        ->required();
    inspect->add_flag("--json", arguments.json, "One JSON object instead of text");
    inspect->add_option("--elements", arguments.elements, "Elements shown of each array")
        ->capture_default_str();

    CLI::App* verify = app.add_subcommand(
        "verify", "Check a file: container, shapes, and that all scales are finite");
    verify->add_option("FILE", arguments.input, "Model file, or the first part of one")->required();
    add_threads(verify);

    CLI::App* quantize = app.add_subcommand("quantize", "Write a model with other tensor types");
    quantize->add_option("IN", arguments.input, "Model to read; best in BF16 or F16")->required();
    quantize->add_option("OUT", arguments.output, "File to write")->required();
    quantize->add_option("--type", arguments.type, "Mix of types, see below")->required();
    quantize->add_option(
        "--tensor-type", arguments.overrides,
        "REGEX=TYPE: tensors whose name matches get this type; may be repeated, the "
        "first match counts");
    add_threads(quantize);
    quantize->footer(recipe_help());

    CLI::App* synth = app.add_subcommand(
        "synth", "Write a model of a published shape with random weights, MTP block included");
    synth->add_option("--shape", arguments.shape, "0.8b, 2b, 4b, 9b or 27b")->required();
    synth->add_option("--type", arguments.type, "Mix of types: iq4_xs, q4_k_m, q8_0, bf16, ...")
        ->required();
    synth->add_option("--seed", arguments.seed, "Seed of the weights")->capture_default_str();
    synth->add_flag("--no-mtp", arguments.no_mtp, "Leave the MTP block out");
    synth->add_flag("--dry-run", arguments.dry_run, "Print the sizes only");
    synth->add_option("OUT", arguments.output, "File to write");
    add_threads(synth);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    if (inspect->parsed()) return run_inspect(arguments);
    if (verify->parsed()) return run_verify(arguments);
    if (quantize->parsed()) return run_quantize(arguments);
    return run_synth(arguments);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const UsageError& error) {
        std::fprintf(stderr, "quadriga-gguf: %s\n", error.what());
        return kExitUsage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "quadriga-gguf: %s\n", error.what());
        return kExitModelFile;
    }
}
