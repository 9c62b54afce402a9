// The template engine: a template from an untrusted file, rendered over an untrusted request.
//
//   byte 0: 1 the golden model's template instead of one from the input, 2 and 4 where the canary
//   goes, 8 the server's own limits   up to NUL: the template   rest: the context as JSON
//
// Holds: compiling and rendering end, within the limits and the processor time given; an error says
// something; the text is UTF-8 and its data spans are sorted, disjoint and not empty; a second
// rendering says the same. And the one thing that security rests on: a character that only the
// request had is marked as request data wherever it comes out. The canary is such a character, put
// behind every string of the context.
#include <cassert>
#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "proto/json_reader.h"
#include "proto/utf8.h"
#include "replica/chat/template.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using replica::chat::Json;
using replica::chat::Rendered;
using replica::chat::Template;
using replica::chat::TemplateError;
using replica::chat::TemplateErrorKind;
using replica::chat::TemplateLimits;

constexpr std::string_view kCanary = "\xE9\xBE\x98";  // U+9F98: printable, without case
constexpr double kSlackSeconds = 3.0;  // compiling, and what the sanitizers cost between two looks

enum class Canary { kNone, kInValues, kInKeysToo };

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Small ones, so that most inputs are quick and every limit is met.
TemplateLimits small_limits() {
    TemplateLimits limits;
    limits.loop_iterations_max = 2000;
    limits.nodes_max = 200'000;
    limits.range_max = 1000;
    limits.text_bytes_max = 64U << 10U;
    limits.cpu_time_max = std::chrono::milliseconds(300);
    return limits;
}

const std::string& golden_template() {
    static const std::string text = [] {
        std::ifstream file(QUADRIGA_SOURCE_DIR "/tests/golden/foal-template.json");
        return Json::parse(file).at("template").get<std::string>();
    }();
    return text;
}

/// An object in any case: what is no JSON becomes a string, what is no object a member.
Json context_of(std::string_view text) {
    const proto::Result<Json> value = proto::read_json(text);
    if (value && value->is_object()) return *value;
    Json context = Json::object();
    if (value) {
        context["x"] = *value;
    } else if (proto::find_broken_utf8(text) == std::string_view::npos) {
        context["x"] = std::string(text);
    }
    return context;
}

std::string with_canary(std::string text) {
    text.append(kCanary);
    return text;
}

Json marked(const Json& value, Canary canary) {
    if (value.is_string()) return with_canary(value.get<std::string>());
    if (!value.is_structured()) return value;
    if (value.is_array()) {
        Json result = Json::array();
        for (const Json& item : value)
            result.push_back(marked(item, canary));
        return result;
    }
    Json result = Json::object();
    for (const auto& [key, item] : value.items())
        result[canary == Canary::kInKeysToo ? with_canary(key) : key] = marked(item, canary);
    return result;
}

Json marked_context(const Json& context, Canary canary) {
    Json result = Json::object();
    for (const auto& [name, value] : context.items())
        result[name] = marked(value, canary);
    return result;
}

void check_spans(const Rendered& rendered) {
    std::size_t end = 0;
    for (const replica::ByteSpan& span : rendered.data_spans) {
        assert(span.begin >= end && span.begin < span.end && span.end <= rendered.text.size());
        end = span.end;
    }
}

bool is_data(const Rendered& rendered, std::size_t begin, std::size_t end) {
    for (const replica::ByteSpan& span : rendered.data_spans) {
        if (span.begin <= begin && end <= span.end) return true;
    }
    return false;
}

void check_canary(const Rendered& rendered) {
    const std::string& text = rendered.text;
    for (std::size_t at = text.find(kCanary); at != std::string::npos;
         at = text.find(kCanary, at)) {
        assert(is_data(rendered, at, at + kCanary.size()) && "request data came out unmarked");
        at += kCanary.size();
    }
}

void check_error(const TemplateError& error, const std::string& source,
                 const TemplateLimits& limits) {
    assert(error.line >= 0);
    assert(error.kind == TemplateErrorKind::kRaised || !error.message.empty());
    assert(error.message.size() <= limits.text_bytes_max + source.size() + 1024);
    assert(proto::find_broken_utf8(describe(error)) == std::string::npos);
}

void check_rendering(const Template& compiled, const Json& context, Canary canary,
                     const TemplateLimits& limits) {
    replica::chat::RenderOptions options;
    options.limits = limits;
    if (canary != Canary::kNone) options.trusted_names.clear();
    const auto rendered = compiled.render(context, options);
    const auto repeated = compiled.render(context, options);
    // The limit of time may come in one of them.
    const bool is_limit = (!rendered && rendered.error().kind == TemplateErrorKind::kLimit) ||
                          (!repeated && repeated.error().kind == TemplateErrorKind::kLimit);
    if (!rendered) {
        assert(rendered.error().kind != TemplateErrorKind::kSyntax);
        check_error(rendered.error(), compiled.source(), limits);
        if (!is_limit) assert(!repeated && repeated.error().message == rendered.error().message);
        return;
    }
    assert(rendered->text.size() <= limits.text_bytes_max);
    assert(proto::find_broken_utf8(rendered->text) == std::string::npos);
    check_spans(*rendered);
    if (!is_limit) {
        assert(repeated && repeated->text == rendered->text &&
               repeated->data_spans == rendered->data_spans);
    }
    // The template could spell the canary itself, plainly or with an escape.
    const std::string& source = compiled.source();
    const bool is_only_ours =
        source.find(kCanary) == std::string::npos && source.find('\\') == std::string::npos;
    if (canary != Canary::kNone && is_only_ours) check_canary(*rendered);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned flags = input.byte();
    const bool is_golden = (flags & 1U) != 0;
    const Canary canary = (flags & 2U) == 0   ? Canary::kNone
                          : (flags & 4U) == 0 ? Canary::kInValues
                                              : Canary::kInKeysToo;
    TemplateLimits limits = small_limits();
    if ((flags & 8U) != 0) limits = TemplateLimits();
    const std::string source = is_golden ? golden_template() : std::string(input.until('\0'));

    const double begin = cpu_seconds();
    const auto compiled = Template::compile(source);
    if (!compiled) {
        const TemplateErrorKind kind = compiled.error().kind;
        assert(kind == TemplateErrorKind::kSyntax || kind == TemplateErrorKind::kLimit);
        check_error(compiled.error(), source, limits);
    } else {
        const Json context = context_of(input.rest());
        const Json seen = canary == Canary::kNone ? context : marked_context(context, canary);
        check_rendering(*compiled, seen, canary, limits);
    }
    const double allowed = 2e-3 * static_cast<double>(limits.cpu_time_max.count());
    assert(cpu_seconds() - begin <= allowed + kSlackSeconds && "the limit of time holds");
    return 0;
}
