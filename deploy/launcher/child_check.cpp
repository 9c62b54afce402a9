#include "deploy/launcher/child_check.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "deploy/launcher/owned_keys.h"
#include "deploy/launcher/prepare.h"
#include "deploy/launcher/program_output.h"

namespace deploy {
namespace {

/// A child and its command line, by who chose what.
struct Asked {
    ChildProgram kind = ChildProgram::kRouter;
    std::string title;  // "the router"
    std::string program;
    std::vector<std::string> own;    // from the launcher's keys
    std::vector<std::string> table;  // from [router]
    std::vector<std::string> more;   // router_args or replica_args
    std::string more_key;
};

/// What a program said, in the launcher's three parts.
struct Words {
    std::string what;
    std::string why;
    std::string fix;

    std::string sentence() const { return what + (why.empty() ? "" : ": " + why); }
    std::string all() const { return what + " " + why; }
};

std::optional<ProgramOutput> ask(const Asked& asked, bool with_table, bool with_more) {
    std::vector<std::string> argv = asked.own;
    if (with_table) argv.insert(argv.end(), asked.table.begin(), asked.table.end());
    if (with_more) argv.insert(argv.end(), asked.more.begin(), asked.more.end());
    argv.emplace_back("--check-config");
    return output_of(asked.program, argv);
}

bool is_good(const std::optional<ProgramOutput>& output) {
    return output && output->exit_code == 0;
}

/// "Q0210 WHAT", "  why   WHY", "  fix   FIX" of the replica; one line of the router.
Words words_of(const std::string& text) {
    Words words;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("  why   ")) {
            words.why = line.substr(8);
        } else if (line.starts_with("  fix   ")) {
            words.fix = line.substr(8);
        } else if (!line.empty() && !line.starts_with("Run with --help")) {
            words.what += (words.what.empty() ? "" : " ") + line;
        }
    }
    for (const std::string_view program : {"quadriga-router: ", "quadriga-replica: "}) {
        if (words.what.starts_with(program)) words.what.erase(0, program.size());
    }
    const bool has_id = words.what.size() > 6 && words.what[0] == 'Q' && words.what[5] == ' ' &&
                        std::isdigit(static_cast<unsigned char>(words.what[1])) != 0;
    if (has_id) words.what.erase(0, 6);
    return words;
}

/// Every "--name" in `text`, in order.
std::vector<std::string> flags_in(std::string_view text) {
    std::vector<std::string> flags;
    for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at)) {
        std::size_t end = at + 2;
        while (end < text.size() && (std::islower(static_cast<unsigned char>(text[end])) != 0 ||
                                     std::isdigit(static_cast<unsigned char>(text[end])) != 0 ||
                                     text[end] == '-' || text[end] == '_')) {
            ++end;
        }
        if (end > at + 2) flags.emplace_back(text.substr(at, end - at));
        at = end;
    }
    return flags;
}

bool names_flag(const std::vector<std::string>& flags, std::string_view key) {
    return std::ranges::find(flags, flag_of_key(key)) != flags.end();
}

void add_place(std::string& places, const std::string& key, const std::string& origin) {
    places += (places.empty() ? "" : ", ") + key + " (" + origin + ")";
}

/// The launcher's keys that the words are about: by flag, by value (a path), or by name.
std::string own_places(const LoadedConfig& loaded, const Words& words) {
    const std::vector<std::string> flags = flags_in(words.all());
    std::string places;
    for (const Setting& setting : settings()) {
        bool is_named = names_flag(flags, setting.key) ||
                        words.what.starts_with(std::string(setting.key) + " ");
        if (const auto* field = std::get_if<std::string Config::*>(&setting.field)) {
            const std::string& value = loaded.config.*(*field);
            const bool is_path = value.find_first_of("/.") != std::string::npos;
            is_named = is_named || (is_path && words.all().find(value) != std::string::npos);
        }
        if (is_named)
            add_place(places, std::string(setting.key),
                      loaded.origins.at(std::string(setting.key)));
    }
    return places;
}

/// Keys of [router] that the words are about.
std::string table_places(const LoadedConfig& loaded, const Asked& asked, const Words& words) {
    const std::vector<std::string> flags = flags_in(words.all());
    std::string places;
    std::string last;
    for (const std::string& argument : asked.table) {
        const std::string key = key_of_argument(argument);
        const std::string value = argument.substr(argument.find('=') + 1);
        const bool is_path = value.find('/') != std::string::npos;
        const bool is_named =
            names_flag(flags, key) || (is_path && words.all().find(value) != std::string::npos);
        if (!is_named || key == last) continue;
        last = key;
        add_place(places, "router." + key, loaded.origins.at("router." + key));
    }
    return places;
}

/// The nearest flag that the program has.
std::string near_flag(const Asked& asked, std::string_view flag) {
    const auto help = output_of(asked.program, {"--help"});
    if (!is_good(help)) return "";
    const std::vector<std::string> flags = flags_in(help->text);
    std::vector<std::string_view> names;
    for (const std::string& one : flags) {
        if (!owned_by_launcher(asked.kind, key_of_argument(one)))
            names.push_back(std::string_view(one).substr(2));
    }
    return did_you_mean(flag.substr(2), names);
}

std::string key_of_name(std::string name) {
    std::ranges::replace(name, '-', '_');
    return name;
}

/// The first flag that the program does not know; empty when the error is another one.
std::string unexpected_flag(const Words& words) {
    if (words.what.find("not expected") == std::string::npos) return "";
    const std::vector<std::string> flags = flags_in(words.what);
    return flags.empty() ? "" : flags.front();
}

[[noreturn]] void refuse(FailureClass kind, std::string what, std::string why, std::string fix) {
    throw StartError(
        {.kind = kind, .what = std::move(what), .why = std::move(why), .fix = std::move(fix)});
}

[[noreturn]] void refuse_table(const LoadedConfig& loaded, const Asked& asked, const Words& words) {
    const std::string unknown = unexpected_flag(words);
    const std::string key = key_of_argument(unknown);
    if (const auto given = loaded.origins.find("router." + key);
        !unknown.empty() && given != loaded.origins.end()) {
        const std::string near = key_of_name(near_flag(asked, unknown));
        refuse(FailureClass::kConfig, "unknown key '" + key + "' in [router], " + given->second,
               near.empty() ? "no key has a name like it" : "did you mean '" + near + "'?",
               "all keys: quadriga check-config, or quadriga-router --help");
    }
    const std::string places = table_places(loaded, asked, words);
    refuse(FailureClass::kConfig, asked.title + " cannot run with these settings", words.sentence(),
           "correct " + (places.empty() ? "the table [router] in " + loaded.file : places) +
               "; all keys: quadriga-router --help");
}

[[noreturn]] void refuse_more(const LoadedConfig& loaded, const Asked& asked, const Words& words) {
    const std::string unknown = unexpected_flag(words);
    std::string why = words.sentence();
    if (!unknown.empty()) {
        const std::string near = near_flag(asked, unknown);
        why = asked.title + " has no " + unknown +
              (near.empty() ? std::string() : "; did you mean '--" + near + "'?");
    }
    const std::string name = asked.program.substr(asked.program.rfind('/') + 1);
    refuse(FailureClass::kConfig, asked.title + " cannot run with these arguments", why,
           "correct " + asked.more_key + " (" + loaded.origins.at(asked.more_key) +
               "); all arguments: " + name + " --help");
}

[[noreturn]] void refuse_own(const LoadedConfig& loaded, const Asked& asked,
                             const ProgramOutput& output) {
    const Words words = words_of(output.text);
    const FailureClass kind = classify({.wait_status = output.exit_code << 8}).kind;
    const std::string places = own_places(loaded, words);
    std::string fix = words.fix;
    if (!places.empty()) fix += (fix.empty() ? "correct " : "; it is ") + places;
    if (fix.empty()) fix = "compare with the output of quadriga check-config";
    refuse(kind,
           asked.title + (kind == FailureClass::kModelFile ? " cannot serve this model"
                                                           : " cannot run with these settings"),
           words.sentence(), fix);
}

/// By leaving parts out: the first part with which the answer is bad has the error.
[[noreturn]] void refuse_part(const LoadedConfig& loaded, const Asked& asked,
                              const ProgramOutput& output) {
    if (asked.table.empty() && asked.more.empty()) refuse_own(loaded, asked, output);
    if (const auto own = ask(asked, false, false); own && !is_good(own)) {
        refuse_own(loaded, asked, *own);
    }
    if (!asked.table.empty()) {
        const auto table = ask(asked, true, false);
        if (table && !is_good(table)) refuse_table(loaded, asked, words_of(table->text));
    }
    refuse_more(loaded, asked, words_of(output.text));
}

}  // namespace

std::string check_router(const LoadedConfig& loaded, const LaunchPlan& plan) {
    Config own = loaded.config;
    own.router_settings.clear();
    own.router_args.clear();
    const Asked asked{.kind = ChildProgram::kRouter,
                      .title = "the router",
                      .program = plan.router_program,
                      .own = router_arguments(own, plan.runtime_dir),
                      .table = loaded.config.router_settings,
                      .more = loaded.config.router_args,
                      .more_key = "router_args"};
    const auto output = ask(asked, true, true);
    if (!output) {
        refuse(FailureClass::kInternal, "the router does not check its settings",
               plan.router_program + " does not answer", "try: " + plan.router_program + " --help");
    }
    if (!is_good(output)) refuse_part(loaded, asked, *output);
    return output->text;
}

std::optional<std::string> check_replica(const LoadedConfig& loaded, const LaunchPlan& plan) {
    Config own = loaded.config;
    own.replica_args.clear();
    const Asked asked{
        .kind = ChildProgram::kReplica,
        .title = "the replica",
        .program = plan.replica_program,
        .own = replica_arguments(own, {.device = plan.is_cuda() ? "0" : "cpu",
                                       .instance = "0000000000000000",
                                       .threads = plan.threads.empty() ? 0 : plan.threads[0]}),
        .table = {},
        .more = loaded.config.replica_args,
        .more_key = "replica_args"};
    const auto output = ask(asked, false, true);
    if (!output) return std::nullopt;
    if (!is_good(output)) refuse_part(loaded, asked, *output);
    return output->text;
}

}  // namespace deploy
