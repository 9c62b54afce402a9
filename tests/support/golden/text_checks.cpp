#include <chrono>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "replica/chat/template.h"
#include "replica/tokenizer/pretokenizer.h"
#include "tests/support/golden/chat_prompt.h"
#include "tests/support/golden/checks.h"

namespace golden {
namespace {

using replica::chat::Template;

/// "2031-02-03T04:05:06"
std::chrono::local_seconds parse_time(const std::string& text) {
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
    if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d", &year, &month, &day, &hour, &minute,
                    &second) != 6) {
        return {};
    }
    const std::chrono::year_month_day date{std::chrono::year(year),
                                           std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day))};
    return std::chrono::local_seconds(std::chrono::local_days(date).time_since_epoch() +
                                      std::chrono::hours(hour) + std::chrono::minutes(minute) +
                                      std::chrono::seconds(second));
}

/// The kind of error must be right, and the words where the template itself chose them.
void compare_error(const Json& expected, const replica::chat::TemplateError& error,
                   const std::string& where, Report& report) {
    const auto kind = expected.at("kind").get<std::string>();
    if (kind != name_of(error.kind)) {
        report.miss(where + ": error of kind " + std::string(name_of(error.kind)) + " (" +
                    error.message + "), expected " + kind);
    } else if (kind == "raised" && expected.at("message").get<std::string>() != error.message) {
        report.miss(where + ": raised '" + error.message + "'");
    }
}

void check_template_case(const Json& item, const std::string& text,
                         const replica::chat::RenderOptions& options, Report& report) {
    const std::string where = item.value("name", std::string("case"));
    const auto fail = [&](const replica::chat::TemplateError& error) {
        if (item.contains("error")) {
            compare_error(item.at("error"), error, where, report);
        } else {
            report.miss(where + ": " + describe(error));
        }
    };
    const auto compiled = Template::compile(text);
    if (!compiled) return fail(compiled.error());
    const auto rendered = compiled->render(item.at("context"), options);
    if (!rendered) return fail(rendered.error());
    if (item.contains("error")) {
        report.miss(where + ": rendered, expected an error");
    } else if (rendered->text != item.at("output").get<std::string>()) {
        report.miss(where + ": rendered '" + rendered->text + "'");
    }
}

}  // namespace

void check_tokenizer(const Json& document, const replica::GgufFile& model, Report& report) {
    const auto tokenizer = load_tokenizer(model);
    if (!tokenizer) {
        report.miss(tokenizer.error());
        return;
    }
    const Json& cases = document.at("cases");
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto text = cases[i].at("text").get<std::string>();
        const auto expected = cases[i].at("tokens").get<std::vector<std::int32_t>>();
        if (tokenizer->encode(text, {.add_special = false, .parse_special = true}) != expected) {
            report.miss("case " + std::to_string(i) + ": other tokens");
        }
        tokens += expected.size();
    }
    report.summary = std::to_string(cases.size()) + " texts, " + std::to_string(tokens) + " tokens";
}

void check_splits(const Json& document, Report& report) {
    const Json& texts = document.at("texts");
    std::size_t compared = 0;
    for (const auto& [name, expected] : document.at("splits").items()) {
        const auto kind = replica::pre_tokenizer_by_name(name);
        if (!kind) {
            report.miss("unknown pre-tokeniser " + name);
            continue;
        }
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const auto text = texts[i].get<std::string>();
            std::vector<std::string> pieces;
            std::size_t begin = 0;
            for (const std::size_t end : replica::split_pieces(*kind, text)) {
                pieces.push_back(text.substr(begin, end - begin));
                begin = end;
            }
            if (pieces != expected[i].get<std::vector<std::string>>()) {
                report.miss(name + ", text " + std::to_string(i) + ": other pieces");
            }
            ++compared;
        }
    }
    report.summary =
        std::to_string(compared) + " splits of " + std::to_string(texts.size()) + " texts";
}

void check_templates(const Json& document, Report& report) {
    replica::chat::RenderOptions options;
    options.now = parse_time(document.value("strftime_now", std::string()));
    const Json& cases = document.at("cases");
    for (const Json& item : cases) {
        const Json& text =
            item.contains("template") ? item.at("template") : document.at("template");
        check_template_case(item, text.get<std::string>(), options, report);
    }
    report.summary = std::to_string(cases.size()) + " renderings";
}

}  // namespace golden
